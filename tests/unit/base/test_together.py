"""Syncs of many files at once, and the fallback if the kernel does not support this."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyjs.base.disk import OsDisk
from pyjs.base.together import Together


class TellingDisk(OsDisk):
    """Records which syncs were requested; some of them fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failing = ""

    def _tell(self, call: str) -> None:
        self.calls.append(call)
        if call == self.failing:
            raise OSError(errno.EIO, "bad medium")

    def sync_filesystem(self, fd: int) -> None:
        self._tell("syncfs")

    def sync_file(self, fd: int) -> None:
        self._tell("file")

    def check_file(self, fd: int) -> None:
        self._tell("check")

    def sync_dir(self, path: str) -> None:
        self._tell(path.rpartition("/")[2])


class Site:
    """A directory with a file in it."""

    def __init__(self, directory: Path) -> None:
        (directory / "root").mkdir()
        self.disk = TellingDisk()
        self.together = Together(self.disk, f"{directory}/root")
        self.fd = self.disk.open_file(f"{directory}/f", create=True)
        self.names = f"{directory}"

    def sync(self) -> list[str]:
        """Return the calls that a sync of one file and one directory makes."""
        self.disk.calls.clear()
        self.together.sync_file(self.fd)
        self.together.sync_dir(self.names)
        return self.disk.calls


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_file_system_is_synced_once_and_files_are_checked(site: Site) -> None:
    site.together.begin()
    assert site.disk.calls == ["syncfs", "root"]
    assert site.sync() == ["check"]
    site.together.end()
    site.together.end()
    assert site.sync() == ["file", Path(site.names).name]


@pytest.mark.parametrize("failing", ["syncfs", "root"])
def test_where_the_whole_cannot_be_synced_each_file_is(site: Site, failing: str) -> None:
    site.disk.failing = failing
    site.together.begin()
    assert site.sync() == ["file", Path(site.names).name]
    site.together.end()


def test_a_file_elsewhere_is_synced_for_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TellingDisk, "shares_filesystem", lambda self, fd, path: False)
    site.together.begin()
    assert site.sync() == ["file", Path(site.names).name]


def test_a_write_that_failed_is_reported_for_its_file(site: Site) -> None:
    site.together.begin()
    site.disk.failing = "check"
    with pytest.raises(OSError, match="bad medium"):
        site.together.sync_file(site.fd)

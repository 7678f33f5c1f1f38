"""Descriptors under one limit: which file stays open, which is closed, and the effect of a failed sync."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pyjs.base.disk import OsDisk
from pyjs.store.open_files import OpenFiles


class CountingDisk(OsDisk):
    """Counts opens, closes and syncs; has a limit of open files, and files whose sync fails."""

    def __init__(self) -> None:
        self.paths: dict[int, str] = {}
        self.opened: list[str] = []
        self.synced: list[str] = []
        self.limit = 1000
        self.bad: set[str] = set()

    def open_file(self, path: str, *, create: bool = False) -> int:
        self._take()
        fd = super().open_file(path, create=create)
        self.paths[fd] = path.rpartition("/")[2]
        self.opened.append(self.paths[fd])
        return fd

    def open_read_only(self, path: str) -> int:
        self._take()
        return super().open_read_only(path)

    def _take(self) -> None:
        if len(self.paths) >= self.limit:
            raise OSError(errno.EMFILE, "too many open files")

    def close_file(self, fd: int) -> None:
        self.paths.pop(fd, None)
        super().close_file(fd)

    def sync_file(self, fd: int) -> None:
        self.synced.append(self.paths[fd])
        if self.paths[fd] in self.bad:
            raise OSError(errno.EIO, "bad medium")
        super().sync_file(fd)

    @property
    def open_now(self) -> list[str]:
        return sorted(self.paths.values())


class Site:
    """Some files in a directory, of which three may be open."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = CountingDisk()
        self.files = OpenFiles(self.disk, 3)

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def open(self, *names: str) -> None:
        for name in names:
            self.files.open(self.path(name), create=True)

    def write(self, *names: str) -> None:
        for name in names:
            self.disk.write_at(self.files.open(self.path(name), create=True), b"x", 0)
            self.files.wrote(self.path(name))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_file_is_opened_once(site: Site) -> None:
    assert site.files.open(site.path("a"), create=True) == site.files.open(site.path("a"))
    assert site.disk.opened == ["a"]


def test_a_file_that_is_absent_is_not_made(site: Site) -> None:
    with pytest.raises(FileNotFoundError):
        site.files.open(site.path("a"))
    assert site.files.count == 0


def test_the_file_that_was_used_least_recently_is_closed(site: Site) -> None:
    site.open("a", "b", "c", "a", "d")
    assert site.disk.open_now == ["a", "c", "d"]


def test_an_unsynced_file_stays_open(site: Site) -> None:
    site.write("a")
    site.open("b", "c", "d", "e")
    assert site.disk.open_now == ["a", "d", "e"]
    assert site.disk.synced == []


def test_where_all_files_are_unsynced_they_are_synced_before_one_is_closed(site: Site) -> None:
    site.write("a", "b", "c", "d")
    assert site.disk.open_now == ["b", "c", "d"]
    assert site.disk.synced == ["a", "b", "c"]
    # only the last file still needs a sync
    taken, failure = site.files.take([site.path(name) for name in "abcd"])
    assert ([file.path for file in taken], failure) == ([site.path("d")], None)


def test_an_error_of_a_file_that_was_closed_goes_to_the_job_that_syncs_it_next(site: Site) -> None:
    # given
    site.disk.bad = {"b"}
    site.write("a", "b", "c", "d")
    # when
    _, failure = site.files.take([site.path("b")])
    # then
    assert failure is not None
    assert failure.errno == errno.EIO
    assert site.files.take([site.path("b")]) == ([], None)


def test_a_file_that_a_job_has_is_not_closed(site: Site) -> None:
    site.write("a", "b")
    taken, _ = site.files.take([site.path("a"), site.path("b")])
    site.open("c", "d", "e", "f")
    assert site.disk.open_now == ["a", "b", "f"]
    site.files.give_back(taken)
    assert site.disk.open_now == ["f"]


def test_all_files_may_be_with_jobs_and_more_are_opened(site: Site) -> None:
    site.write("a", "b", "c")
    site.files.take([site.path(name) for name in "abc"])
    site.write("d")
    assert site.files.count == 4


def test_the_file_that_is_to_be_kept_stays_open_after_its_sync(site: Site) -> None:
    site.write("a", "b")
    taken, _ = site.files.take([site.path("a"), site.path("b")])
    site.files.give_back(taken, keep=site.path("b"))
    assert site.disk.open_now == ["b"]


def test_what_is_written_during_a_sync_is_left_for_the_next(site: Site) -> None:
    site.write("a")
    taken, _ = site.files.take([site.path("a")])
    site.write("a")
    site.files.give_back(taken)
    assert site.disk.open_now == ["a"]
    again, _ = site.files.take([site.path("a")])
    assert again == taken


def test_a_closed_file_that_a_job_has_is_closed_after_it(site: Site) -> None:
    site.write("a")
    taken, _ = site.files.take([site.path("a")])
    site.files.close(site.path("a"))
    assert (site.files.count, site.disk.open_now) == (0, ["a"])
    site.write("a")  # possibly another file
    site.files.give_back(taken)
    assert (site.files.count, site.disk.open_now) == (1, ["a"])


def test_a_closed_file_takes_its_error_along(site: Site) -> None:
    site.disk.bad = {"a"}
    site.write("a", "b", "c", "d")
    site.files.close(site.path("a"))
    assert site.files.take([site.path("a")]) == ([], None)


def test_files_below_a_directory_are_closed(site: Site) -> None:
    (site.directory / "s").mkdir()
    (site.directory / "st").mkdir()
    site.open("s/a", "st/b")
    site.write("s/c")
    site.files.close_below(site.path("s"))
    assert site.disk.open_now == ["b"]


def test_files_are_crowded_when_most_are_unsynced(site: Site) -> None:
    site.write("a")
    assert not site.files.crowded
    site.write("b", "b")
    assert site.files.crowded
    taken, _ = site.files.take([site.path("a")])
    assert not site.files.crowded
    site.files.give_back(taken)


def test_for_want_of_descriptors_others_are_closed(site: Site) -> None:
    site.open("a")
    site.write("b")
    site.disk.limit = 2
    site.open("c")
    assert site.disk.open_now == ["b", "c"]
    site.write("c")
    site.open("d")
    assert site.disk.open_now == ["c", "d"]


def test_reading_makes_room_for_itself(site: Site) -> None:
    site.open("a", "b")
    site.disk.limit = 2
    site.disk.close_file(site.files.open_to_read(site.path("a")))
    assert site.disk.open_now == ["b"]


def test_where_nothing_can_be_closed_the_error_is_told(site: Site) -> None:
    site.disk.limit = 0
    with pytest.raises(OSError, match="too many"):
        site.files.open(site.path("a"), create=True)
    with pytest.raises(OSError, match="too many"):
        site.files.open_to_read(site.path("a"))


def test_another_error_closes_nothing(site: Site) -> None:
    site.open("a")
    with pytest.raises(FileNotFoundError):
        site.files.open_to_read(site.path("z"))
    assert site.disk.open_now == ["a"]

"""The files of a batch become durable together, with few calls, and no error is lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.support.disk import FaultyDisk, LossyDisk

from pyjs.base.disk import OsDisk
from pyjs.store.sync_set import OPEN_MAX, TOGETHER_MIN, SyncSet


class CountingDisk(OsDisk):
    """Records syncs; those of the file system fail with `error`."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.synced: list[str] = []
        self.paths: dict[int, str] = {}
        self.elsewhere = ""  # paths that contain this are on another file system

    @property
    def open_count(self) -> int:
        return len(self.paths)

    def open_file(self, path: str, *, create: bool = False) -> int:
        fd = super().open_file(path, create=create)
        self.paths[fd] = path
        return fd

    def close_file(self, fd: int) -> None:
        super().close_file(fd)
        self.paths.pop(fd, None)

    def sync_file(self, fd: int) -> None:
        self.synced.append(Path(self.paths[fd]).name)

    def sync_dir(self, path: str) -> None:
        self.synced.append(f"{Path(path).name}/")

    def sync_filesystem(self, fd: int) -> None:
        self.synced.append("all")
        if self.error:
            raise OSError(self.error, "syncfs")

    def shares_filesystem(self, fd: int, path: str) -> bool:
        return not self.elsewhere or self.elsewhere not in path


def write(dirty: SyncSet, disk: OsDisk, path: Path, data: bytes = b"x") -> None:
    disk.write_at(dirty.open(str(path), create=True), data, 0)


def test_few_files_and_directories_are_synced_one_by_one(tmp_path: Path) -> None:
    disk = CountingDisk()
    with SyncSet(disk, str(tmp_path)) as dirty:
        write(dirty, disk, tmp_path / "a")
        write(dirty, disk, tmp_path / "b")
        write(dirty, disk, tmp_path / "a")
        dirty.add_directory(str(tmp_path))

        dirty.sync()

    assert disk.synced == ["a", "b", f"{tmp_path.name}/"]
    assert disk.open_count == 0


def test_many_files_are_synced_together(tmp_path: Path) -> None:
    disk = CountingDisk()
    with SyncSet(disk, str(tmp_path)) as dirty:
        for number in range(TOGETHER_MIN + 1):
            write(dirty, disk, tmp_path / f"f{number}")

        dirty.sync()

    assert disk.synced == ["all"]


def test_a_second_sync_has_nothing_to_do(tmp_path: Path) -> None:
    disk = CountingDisk()
    with SyncSet(disk, str(tmp_path)) as dirty:
        write(dirty, disk, tmp_path / "a")
        dirty.sync()
        dirty.sync()

    assert disk.synced == ["a"]


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_each_is_synced_where_the_file_system_cannot_be(tmp_path: Path, error: int) -> None:
    disk = CountingDisk(error)
    with SyncSet(disk, str(tmp_path)) as dirty:
        for number in range(TOGETHER_MIN + 1):
            write(dirty, disk, tmp_path / f"f{number}")

        dirty.sync()

    assert disk.synced == ["all", *(f"f{number}" for number in range(TOGETHER_MIN + 1))]


def test_what_is_on_another_file_system_is_synced_for_itself(tmp_path: Path) -> None:
    disk = CountingDisk()
    disk.elsewhere = "f3"
    with SyncSet(disk, str(tmp_path)) as dirty:
        for number in range(TOGETHER_MIN + 1):
            write(dirty, disk, tmp_path / f"f{number}")

        dirty.sync()

    assert disk.synced == ["all", "f3"]


def test_a_sync_of_the_file_system_that_fails_is_an_error(tmp_path: Path) -> None:
    disk = CountingDisk(errno.EIO)
    with SyncSet(disk, str(tmp_path)) as dirty:
        for number in range(TOGETHER_MIN + 1):
            write(dirty, disk, tmp_path / f"f{number}")

        with pytest.raises(OSError, match="syncfs"):
            dirty.sync()


def test_a_file_that_cannot_be_synced_is_an_error(tmp_path: Path) -> None:
    disk = FaultyDisk(at=2, error=errno.EIO)
    with SyncSet(disk, str(tmp_path)) as dirty:
        write(dirty, disk, tmp_path / "a")

        with pytest.raises(OSError, match="EIO"):
            dirty.sync()


def test_descriptors_are_bounded_and_every_file_is_synced(tmp_path: Path) -> None:
    disk = CountingDisk(errno.ENOSYS)
    with SyncSet(disk, str(tmp_path)) as dirty:
        for number in range(OPEN_MAX + 5):
            write(dirty, disk, tmp_path / f"f{number}")
            assert disk.open_count <= OPEN_MAX

        dirty.sync()

    assert len(disk.synced) == 1 + OPEN_MAX + 5


def test_a_file_is_synced_under_its_new_name(tmp_path: Path) -> None:
    disk = CountingDisk()
    with SyncSet(disk, str(tmp_path)) as dirty:
        write(dirty, disk, tmp_path / "new")
        disk.rename(str(tmp_path / "new"), str(tmp_path / "name"))
        dirty.renamed(str(tmp_path / "new"), str(tmp_path / "name"))
        dirty.renamed(str(tmp_path / "unknown"), str(tmp_path / "other"))

        dirty.sync()

    assert disk.synced == ["new"]  # synced through the same descriptor, under the name by which it was opened
    assert disk.open_count == 0


def test_what_is_removed_again_is_not_synced(tmp_path: Path) -> None:
    disk = CountingDisk()
    (tmp_path / "d").mkdir()
    with SyncSet(disk, str(tmp_path)) as dirty:
        write(dirty, disk, tmp_path / "d" / "a")
        write(dirty, disk, tmp_path / "dd")
        dirty.add_directory(str(tmp_path / "d"))
        dirty.forget(str(tmp_path / "d"))
        disk.remove_tree(str(tmp_path / "d"))

        dirty.sync()

    assert disk.synced == ["dd"]


def test_what_was_synced_survives_a_loss_of_power(tmp_path: Path) -> None:
    disk = LossyDisk()
    with SyncSet(disk, str(tmp_path)) as dirty:
        for number in range(TOGETHER_MIN + 1):
            write(dirty, disk, tmp_path / f"f{number}", b"data")
        dirty.add_directory(str(tmp_path))

        dirty.sync()

    disk.lose_power()
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"data"}
    assert len(list(tmp_path.iterdir())) == TOGETHER_MIN + 1

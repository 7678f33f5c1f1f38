"""The disk of this machine."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.disk import SimDisk

import pyjs.base.disk
from pyjs.base.disk import Disk, OsDisk


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk()


def test_what_is_written_is_read_at_its_place(disk: OsDisk, tmp_path: Path) -> None:
    fd = disk.open_file(f"{tmp_path}/f", create=True)
    disk.write_at(fd, b"world", 6)
    disk.write_at(fd, memoryview(b"hello"), 0)
    assert disk.read_at(fd, 100, 0) == b"hello\0world"
    assert disk.read_at(fd, 3, 6) == b"wor"
    assert disk.read_at(fd, 3, 50) == b""
    assert disk.size_of(fd) == 11
    disk.truncate(fd, 5)
    disk.sync_file(fd)
    disk.close_file(fd)
    disk.sync_dir(str(tmp_path))
    assert disk.read_file(f"{tmp_path}/f") == b"hello"


def test_a_write_goes_on_until_all_bytes_are_taken(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, bytes(data)[:2], offset))
    fd = disk.open_file(f"{tmp_path}/f", create=True)
    disk.write_at(fd, b"abcdefg", 1)
    disk.close_file(fd)
    assert disk.read_file(f"{tmp_path}/f") == b"\0abcdefg"


def test_a_read_goes_on_until_the_file_ends(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"abcdefg")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: real(fd, min(size, 3), offset))
    fd = disk.open_read_only(f"{tmp_path}/f")
    assert disk.read_at(fd, 100, 0) == b"abcdefg"
    assert disk.read_at(fd, 4, 1) == b"bcde"
    disk.close_file(fd)


def test_a_file_is_checked_after_its_file_system_was_synced(disk: OsDisk, tmp_path: Path) -> None:
    fd = disk.open_file(f"{tmp_path}/f", create=True)
    disk.write_at(fd, b"x", 0)
    disk.check_file(fd)
    assert disk.shares_filesystem(fd, fd)
    disk.close_file(fd)
    with pytest.raises(OSError, match="descriptor"):
        disk.check_file(fd)


def test_a_file_that_cannot_be_checked_is_synced(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("pyjs.base.disk._sync_file_range", None)
    monkeypatch.setattr(OsDisk, "sync_file", lambda self, fd: synced.append(fd))
    disk.check_file(7)
    assert synced == [7]


class FailedCheck:
    """A sync_file_range that fails; the kernel then does not report the error to a later sync."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, fd: int, *rest: object) -> int:
        ctypes.set_errno(self._number)
        return -1


def test_a_failed_write_that_a_check_reports_is_not_lost(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = disk.open_file(f"{tmp_path}/f", create=True)
    monkeypatch.setattr("pyjs.base.disk._sync_file_range", FailedCheck(errno.EIO))
    with pytest.raises(OSError, match="Input/output") as caught:
        disk.check_file(fd)
    assert caught.value.errno == errno.EIO
    monkeypatch.setattr("pyjs.base.disk._sync_file_range", FailedCheck(errno.ENOSYS))
    disk.check_file(fd)
    disk.close_file(fd)


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE, errno.EACCES])
def test_a_failed_sync_never_looks_as_if_nothing_was_lost(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    fd = disk.open_file(f"{tmp_path}/f", create=True)
    monkeypatch.setattr("pyjs.base.disk._sync_file_range", FailedCheck(number))
    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "fsync", fail)

    for sync in (
        lambda: disk.check_file(fd),
        lambda: disk.sync_file(fd),
        lambda: disk.sync_dir(str(tmp_path)),
    ):
        with pytest.raises(OSError, match="Input/output error") as caught:
            sync()
        assert caught.value.errno == errno.EIO
    disk.close_file(fd)


def test_space_is_reserved(disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = disk.open_file(f"{tmp_path}/f", create=True)
    disk.allocate(fd, 0, 8192)
    assert disk.size_of(fd) == 8192
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    disk.allocate(fd, 8192, 100)
    assert disk.size_of(fd) == 8292
    disk.allocate(fd, 0, 100)
    assert disk.size_of(fd) == 8292
    disk.close_file(fd)


def test_a_map_shows_the_file(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abcdefg")
    fd = disk.open_read_only(f"{tmp_path}/f")
    with disk.map_file(fd, 5) as seen:
        assert seen[:] == b"abcde"
        with pytest.raises(TypeError):
            seen[0] = 0
    disk.close_file(fd)


def test_files_and_directories_are_the_owners_alone(disk: OsDisk, tmp_path: Path) -> None:
    disk.make_dirs(f"{tmp_path}/a/b")
    disk.make_dirs(f"{tmp_path}/a/b")
    disk.close_file(disk.open_file(f"{tmp_path}/a/b/f", create=True))
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")] == [0o700, 0o700]
    assert stat.S_IMODE((tmp_path / "a/b/f").stat().st_mode) == 0o600


def test_no_directory_is_made_where_a_file_is(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("file", "file/below"):
        with pytest.raises(OSError, match="file"):
            disk.make_dirs(f"{tmp_path}/{path}")


def test_absent_files_are_errors_and_absent_directories_are_empty(disk: OsDisk, tmp_path: Path) -> None:
    for call in (disk.open_file, disk.open_read_only, disk.read_file, disk.unlink, disk.remove_tree):
        with pytest.raises(FileNotFoundError):
            call(f"{tmp_path}/none")
    assert disk.list_dir(f"{tmp_path}/none") == []
    assert not disk.exists(f"{tmp_path}/none")


def test_names_are_listed_in_order_renamed_and_removed(disk: OsDisk, tmp_path: Path) -> None:
    for name in "cab":
        (tmp_path / name).write_text(name)
    disk.rename(f"{tmp_path}/a", f"{tmp_path}/b")
    disk.unlink(f"{tmp_path}/c")
    assert disk.list_dir(str(tmp_path)) == ["b"]
    assert disk.read_file(f"{tmp_path}/b") == b"a"


def test_a_tree_is_removed_without_following_links(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("x")
    (tmp_path / "tree/deep/er").mkdir(parents=True)
    (tmp_path / "tree/deep/f").write_text("x")
    (tmp_path / "tree/link").symlink_to(tmp_path / "outside")
    disk.remove_tree(f"{tmp_path}/tree")
    assert disk.list_dir(str(tmp_path)) == ["outside"]
    assert disk.exists(f"{tmp_path}/outside/kept")


def test_a_tree_is_removed_in_parts_without_following_links(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/kept").write_text("x")
    (tmp_path / "tree/deep/er").mkdir(parents=True)
    for name in ("tree/a", "tree/deep/b", "tree/deep/er/c"):
        (tmp_path / name).write_text("x")
    (tmp_path / "tree/link").symlink_to(tmp_path / "outside")
    removed = [disk.remove_some(f"{tmp_path}/tree", 3), disk.remove_some(f"{tmp_path}/tree", 3)]
    assert removed == [3, 1]
    assert disk.list_dir(str(tmp_path)) == ["outside"]
    assert disk.exists(f"{tmp_path}/outside/kept")


def test_a_lock_is_held_against_others_until_it_is_closed(disk: OsDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    attempt = "import sys; from pyjs.base.disk import OsDisk; OsDisk().lock(sys.argv[1])"
    fd = disk.lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(path)
    refused = subprocess.run([sys.executable, "-c", attempt, path], capture_output=True, text=True)
    assert "BlockingIOError" in refused.stderr
    disk.close_file(fd)
    disk.close_file(disk.lock(path))


def test_readers_share_a_lock_that_is_there_and_keep_others_off(disk: OsDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    with pytest.raises(FileNotFoundError):
        disk.lock_shared(path)
    disk.close_file(disk.lock(path))

    readers = [disk.lock_shared(path), disk.lock_shared(path)]

    with pytest.raises(BlockingIOError):
        disk.lock(path)
    for fd in readers:
        disk.close_file(fd)
    disk.close_file(disk.lock(path))


def test_a_directory_is_told_from_a_file(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert [disk.is_directory(f"{tmp_path}/{name}") for name in ("", "file", "absent")] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("kind", [OsDisk, SimDisk])
def test_a_disk_leaves_no_call_to_the_seam(kind: type[Disk]) -> None:
    seam = {name for name, found in vars(Disk).items() if not name.startswith("_") and callable(found)}

    left = {name for name in seam if getattr(kind, name) is getattr(Disk, name)}

    assert left <= {"unlock"}  # the base class itself unlocks, by closing the descriptor


def test_the_whole_file_system_is_synced_where_that_can_be_trusted(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyjs.base.disk, "SYNCFS_TYPES", _Everything())
    fd = disk.open_directory(str(tmp_path))

    disk.sync_filesystem(fd)
    disk.close_file(fd)

    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.sync_filesystem(fd)


def test_an_unknown_file_system_is_not_synced_as_a_whole(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyjs.base.disk, "SYNCFS_TYPES", frozenset())
    fd = disk.open_directory(str(tmp_path))

    with pytest.raises(OSError, match="syncfs") as caught:
        disk.sync_filesystem(fd)

    disk.close_file(fd)
    assert caught.value.errno == errno.EOPNOTSUPP


def test_paths_of_another_file_system_are_told_apart(disk: OsDisk, tmp_path: Path) -> None:
    fd = disk.open_directory(str(tmp_path))

    assert disk.shares_filesystem(fd, str(tmp_path))
    assert not disk.shares_filesystem(fd, "/proc")
    disk.close_file(fd)


class _Everything(frozenset[int]):
    def __contains__(self, number: object) -> bool:
        return True


def test_a_lock_that_was_given_back_is_free_although_another_process_has_the_file(
    disk: OsDisk, tmp_path: Path
) -> None:
    path = str(tmp_path / "lock")
    fd = disk.lock(path)
    inherited = os.dup(fd)  # the same open file, as a forked child has

    disk.unlock(fd)

    disk.unlock(disk.lock(path))
    os.close(inherited)

"""Jobs of the node log for other threads: they make their calls in order, and return errors."""

from __future__ import annotations

import errno
from random import Random

import pytest
from tests.sim.disk import SimDisk

from pyjs.consensus.log.files import Header, LogFile
from pyjs.consensus.log.sync_job import FreshFileJob, SyncJob
from pyjs.store.format.layout import UNSYNCED


def disk_with_calls() -> tuple[SimDisk, list[str]]:
    disk, kinds = SimDisk(Random(1)), []
    call = disk._due

    def due(kind: str, path: str, size: int = 0) -> bool:
        kinds.append(kind)
        return call(kind, path, size)

    disk._due = due  # type: ignore[method-assign]
    disk.make_dirs("/log")
    kinds.clear()
    return disk, kinds


def opened(disk: SimDisk, number: int) -> LogFile:
    file = LogFile(Header(4096, 1, number, 1, 1, 0), f"/log/{number}")
    file.fd = disk.open_file(file.path, create=True)
    return file


def test_bytes_are_durable_before_names_and_names_before_seals() -> None:
    disk, kinds = disk_with_calls()
    job = SyncJob(disk, [opened(disk, 1), opened(disk, 2)], "/log", 9)
    job.seals, job.has_names = [(job.files[0], b"seal")], True
    kinds.clear()
    assert job() is None
    assert kinds == ["sync", "sync", "sync_dir", "write", "sync"]


def test_an_error_ends_a_sync() -> None:
    disk, kinds = disk_with_calls()
    job = SyncJob(disk, [opened(disk, 1), opened(disk, 2)], "/log", 9)
    kinds.clear()
    disk.fail_in = 0
    error = job()
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert kinds == ["sync", "open"]  # the mark
    assert job.is_marked
    assert UNSYNCED in disk.list_dir("/log")


def test_a_mark_that_the_disk_refuses_is_left_to_the_owner_of_the_job() -> None:
    disk, _ = disk_with_calls()
    job = SyncJob(disk, [opened(disk, 1)], "/log", 9)
    disk.fail_in, disk.fail_more = 0, 1
    assert isinstance(job(), OSError)
    assert not job.is_marked


def test_a_file_in_advance_has_its_name_when_it_is_durable() -> None:
    disk, kinds = disk_with_calls()
    assert FreshFileJob(disk, "/log", (1 << 20) + 100)() is None
    assert kinds == ["open", "write", "write", "sync", "rename", "sync_dir"]
    assert disk.read_file("/log/fresh.spare") == bytes((1 << 20) + 100)


def test_a_file_in_advance_that_fails_returns_the_error() -> None:
    disk, _ = disk_with_calls()
    disk.fail_in, disk.failure = 1, errno.ENOSPC
    error = FreshFileJob(disk, "/log", 4096)()
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert disk.list_dir("/log") == ["fresh.tmp"]


@pytest.mark.parametrize(
    ("calls", "is_sync"), [(0, False), (1, False), (2, True), (3, False), (4, True)], ids=str
)
def test_a_file_in_advance_says_whether_a_sync_has_failed(calls: int, is_sync: bool) -> None:
    disk, _ = disk_with_calls()
    disk.fail_in = calls
    job = FreshFileJob(disk, "/log", 4096)

    assert isinstance(job(), OSError)
    assert job.has_failed_sync is job.is_marked is is_sync
    assert (UNSYNCED in disk.list_dir("/log")) is is_sync

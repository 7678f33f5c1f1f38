"""The I/O thread syncs consumer logs; a failed sync is reported, and its bytes never count as durable."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.sim.disk import SimDisk
from tests.support.disk import FaultyDisk, LossyDisk, Same

from pyjs.base.disk import OsDisk
from pyjs.store.format.layout import UNSYNCED
from pyjs.store.open_files import OpenFiles
from pyjs.store.state.consumer_state import ConsumerStateFile, OpenLogs
from pyjs.store.state.log_sync import JOB_LOGS_MAX, LogSync


class Logs:
    """The logs of some consumers, and the number of requested syncs."""

    def __init__(self, directory: Path, disk: OsDisk | None = None, open_max: int = 256) -> None:
        self.directory = directory
        self.disk = disk or OsDisk()
        self.asked = 0
        self.told: list[Exception | None] = []
        self.sync = LogSync(self.disk, self.note)
        self.open_logs = OpenLogs(self.disk, OpenFiles(self.disk, open_max), self.sync)

    def note(self, sync: LogSync) -> None:
        self.asked += 1

    def file(self, name: str = "c") -> ConsumerStateFile:
        """Return the state file of a new consumer."""
        self.disk.make_dirs(f"{self.directory}/{name}")
        file = ConsumerStateFile(self.disk, f"{self.directory}/{name}", self.open_logs)
        file.snapshot(b"state")
        return file

    def kept(self, name: str = "c") -> list[bytes]:
        """Return the deltas that another process reads from the file."""
        return ConsumerStateFile(OsDisk(), f"{self.directory}/{name}").load()[1]


def test_deltas_survive_a_loss_of_power_once_they_are_synced(tmp_path: Path) -> None:
    disk = LossyDisk()
    logs = Logs(tmp_path, disk)
    file = logs.file()
    file.append(b"one")
    logs.sync.sync_now()
    file.append(b"two")

    disk.lose_power()

    assert logs.kept() == [b"one"]


def test_deltas_are_lost_with_the_power_before(tmp_path: Path) -> None:
    disk = LossyDisk()
    logs = Logs(tmp_path, disk)
    logs.file().append(b"one")

    disk.lose_power()

    assert logs.kept() == []


def test_deltas_after_a_failed_sync_and_a_restart_survive_a_loss_of_power() -> None:
    disk = SimDisk(Same(0.9))
    disk._faults = Same(0.0)  # a failed sync loses every write
    logs = OpenLogs(disk)
    file = ConsumerStateFile(disk, "/c", logs)
    file.snapshot(b"state")
    logs.sync.sync_now()
    file.append(b"one")
    disk.fail_in, disk.failing = 0, "sync"
    logs.sync.sync_now()
    disk._fds.clear()  # killed, and its pages stay in memory

    logs = OpenLogs(disk)
    file = ConsumerStateFile(disk, "/c", logs)
    assert file.load() == (b"state", [b"one"], [])
    file.append(b"two")
    logs.sync.sync_now()
    disk.lose_power()

    file = ConsumerStateFile(disk, "/c")
    assert file.load() == (b"state", [b"one", b"two"], [])
    file.snapshot(b"all")
    assert disk.list_dir("/c") == ["log.2", "snap.2"]


def test_a_log_that_cannot_be_written_again_after_a_failed_sync_is_a_problem(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.file().append(b"one")
    (tmp_path / "c" / UNSYNCED).touch()
    file = ConsumerStateFile(FaultyDisk(0, errno.EIO), str(tmp_path / "c"))
    snapshot, deltas, (problem,) = file.load()
    assert (snapshot, deltas) == (b"state", [b"one"])
    assert "EIO" in problem


def test_one_sync_is_asked_for_however_much_is_written(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    one, two = logs.file("a"), logs.file("b")
    for file in (one, two, one):
        file.append(b"x")
    assert logs.asked == 1
    logs.sync.sync_now()
    one.append(b"y")
    assert logs.asked == 2


def test_who_waits_is_told_when_the_bytes_of_that_moment_are_safe(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    file = logs.file()
    file.append(b"one")
    file.when_synced(logs.told.append)
    job = logs.sync.begin_sync()
    assert job
    file.append(b"two")
    file.when_synced(logs.told.append)
    assert logs.sync.begin_sync() is None

    logs.sync.finish_sync(job())

    assert logs.told == [None]
    logs.sync.sync_now()
    assert logs.told == [None, None]


def test_a_log_whose_descriptor_was_given_up_is_synced_as_well(tmp_path: Path) -> None:
    disk = LossyDisk()
    logs = Logs(tmp_path, disk, open_max=1)
    for name in "abc":
        logs.file(name).append(name.encode())
    logs.sync.sync_now()

    disk.lose_power()

    assert [logs.kept(name) for name in "abc"] == [[b"a"], [b"b"], [b"c"]]


def test_thousands_of_logs_are_synced_in_small_jobs_with_few_descriptors(tmp_path: Path) -> None:
    class Counting(OsDisk):
        open = most = 0

        def open_file(self, path: str, *, create: bool = False) -> int:
            self.open += 1
            self.most = max(self.most, self.open)
            return super().open_file(path, create=create)

        def close_file(self, fd: int) -> None:
            self.open -= 1
            super().close_file(fd)

    disk = Counting()
    logs = Logs(tmp_path, disk, open_max=8)
    files = [logs.file(f"c{number}") for number in range(3 * JOB_LOGS_MAX)]
    for file in files:
        file.append(b"x")
        file.when_synced(logs.told.append)
    jobs = 0
    while job := logs.sync.begin_sync():
        jobs += 1
        logs.sync.finish_sync(job())
    assert jobs == 3
    assert logs.asked == 3
    assert logs.told == [None] * len(files)
    assert disk.most <= 10


def test_one_job_takes_all_logs_of_an_interval(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.sync = logs.open_logs.sync = LogSync(logs.disk, logs.note, always=False)
    for number in range(JOB_LOGS_MAX + 1):
        logs.file(f"c{number}").append(b"x")
    job = logs.sync.begin_sync()
    assert job
    logs.sync.finish_sync(job())
    assert logs.sync.begin_sync() is None


def test_a_failed_sync_is_told_and_the_log_is_not_believed(tmp_path: Path) -> None:
    # given
    disk = FaultyDisk(error=errno.EIO)
    logs = Logs(tmp_path, disk)
    bad, good = logs.file("bad"), logs.file("good")
    for file in (bad, good):
        file.append(b"one")
        file.when_synced(logs.told.append)
    # the first sync of the first job
    disk.at = disk.calls + 1  # the first sync of the first job
    logs.sync.sync_now()
    # then
    first, second = logs.told
    assert isinstance(first, OSError)
    assert second is None
    with pytest.raises(OSError, match="could not be synced"):
        bad.append(b"two")
    good.append(b"two")
    bad.snapshot(b"again")
    bad.append(b"three")
    assert logs.kept("bad") == [b"three"]
    assert logs.kept("good") == [b"one", b"two"]


def test_a_log_that_was_replaced_or_removed_needs_no_sync(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    replaced, removed = logs.file("replaced"), logs.file("removed")
    for file in (replaced, removed):
        file.append(b"one")
        file.when_synced(logs.told.append)
    replaced.snapshot(b"later")
    logs.open_logs.files.close_below(f"{tmp_path}/removed")
    logs.disk.remove_tree(f"{tmp_path}/removed")

    logs.sync.sync_now()

    assert logs.told == [None, None]

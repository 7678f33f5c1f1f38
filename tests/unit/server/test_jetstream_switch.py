"""JetStream stops when no thread works on its files any more, and every request is answered."""

from __future__ import annotations

import random

from tests.sim.disk import SimDisk
from tests.sim.process import STORE_DIR, Process

from pyjs.base.disk import Disk
from pyjs.jetstream.files.metadata import Change
from pyjs.store.sync_set import SyncSet


class Noting(Change):
    """Writes a file, and records whether the store was still locked."""

    def __init__(self, process: Process, name: str) -> None:
        self.path = f"{STORE_DIR}/{name}"
        self.process = process
        self.locked: bool | None = None

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        self.locked = any(path.endswith(".lock") for path in self.process.disk.open_files)
        disk.write_at(dirty.open(self.path, create=True), b"x", 0)


def started() -> Process:
    process = Process(SimDisk(random.Random(1)), 10**18, 1, True, 10**9)
    process.start()
    return process


def test_a_stop_waits_for_changes_of_metadata() -> None:
    process = started()
    assert process.node.jetstream is not None
    writer = process.node.jetstream.shared.metadata
    changes = [Noting(process, "a"), Noting(process, "b")]
    told: list[Exception | None] = []
    for change in changes:
        writer.submit(change, told.append)

    process.stop()

    assert told == [None, None]
    assert [change.locked for change in changes] == [True, True]
    assert process.disk.open_files == []


def test_a_stop_without_changes_does_not_wait() -> None:
    process = started()

    process.stop()

    assert "JetStream Shutdown" in [text for _, text in process.log.lines]


def test_a_second_start_is_heard_after_each_turn_alone() -> None:
    process = started()
    hooks = len(process.driver.after_turn)
    process.switch.stop(lambda: None)
    process.settle()

    process.switch.start_on(process.loop, process.clock)

    assert len(process.driver.after_turn) == hooks

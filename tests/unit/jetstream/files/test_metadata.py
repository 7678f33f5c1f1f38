"""Changes of metadata become durable in batches, and each change has its own result."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.disk import FaultyDisk

from pyjs.base.disk import Disk, OsDisk
from pyjs.base.errors import StoreFailed
from pyjs.core.sink import Turn
from pyjs.jetstream.files.metadata import BATCH_MAX, Change, MetadataWriter
from pyjs.store.sync_set import SyncSet

if TYPE_CHECKING:
    from pyjs.core.chore import Step


class Noting(Change):
    """A change that writes a file; `bad` ones fail."""

    def __init__(self, path: Path, bad: Exception | None = None) -> None:
        self.path = str(path)
        self.bad = bad
        self.undone = False

    def write(self, disk: Disk, dirty: SyncSet) -> None:
        if self.bad is not None:
            raise self.bad
        disk.write_at(dirty.open(self.path, create=True), b"x", 0)

    def undo(self, disk: Disk) -> None:
        self.undone = True
        disk.unlink(self.path)


class Batches:
    """A writer, its thread, and the outcomes of its changes."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self.turn = Turn()
        self.writer = MetadataWriter(self.turn, disk or OsDisk(), str(directory))
        self.told: list[str] = []

    def request(self, name: str, change: Change | None = None) -> None:
        """Make a request that changes something, as its handler would."""

        def steps() -> Iterator[Step]:
            try:
                yield from self.writer.commit(change or Noting(self.directory / name))
                self.told.append(name)
            except StoreFailed as error:
                self.told.append(f"{name}: {error.reason}")

        self.turn.go_on(steps())
        self.go_on()

    def go_on(self) -> None:
        """Continue all chores that can continue."""
        while chores := self.turn.take("chores"):
            self.turn.chores.extend(chore for chore in chores if chore.go_on())

    def thread(self) -> int:
        """Run the queued jobs; return their number."""
        jobs = self.turn.take("jobs")
        for job in jobs:
            failure = None
            try:
                job.run()
            except Exception as error:
                failure = error
            job.finish(failure)
        self.go_on()
        return len(jobs)


@pytest.fixture
def batches(tmp_path: Path) -> Batches:
    return Batches(tmp_path)


def test_a_change_is_answered_when_it_is_durable(batches: Batches, tmp_path: Path) -> None:
    batches.request("a")
    assert batches.told == []
    assert batches.writer.pending == 1

    batches.thread()

    assert batches.told == ["a"]
    assert (tmp_path / "a").exists()
    assert batches.writer.pending == 0


def test_what_comes_while_a_batch_is_in_flight_is_the_next_batch(batches: Batches) -> None:
    batches.request("a")
    batches.request("b")
    batches.request("c")

    assert batches.thread() == 1
    assert batches.told == ["a"]
    assert batches.thread() == 1
    assert batches.told == ["a", "b", "c"]


def test_a_batch_is_bounded(batches: Batches) -> None:
    for number in range(BATCH_MAX + 2):
        batches.request(f"{number}")

    batches.thread()
    batches.thread()

    assert len(batches.told) == BATCH_MAX + 1
    batches.thread()
    assert len(batches.told) == BATCH_MAX + 2


def test_a_change_that_fails_does_not_touch_the_others(batches: Batches, tmp_path: Path) -> None:
    batches.request("first")
    batches.request("a")
    batches.request("b", Noting(tmp_path / "b", OSError(errno.ENOSPC, "No space left on device")))
    batches.request("c")

    batches.thread()
    batches.thread()

    assert batches.told == ["first", "a", "b: No space left on device", "c"]


def test_a_sync_that_fails_fails_every_change_of_the_batch_and_takes_it_back(tmp_path: Path) -> None:
    batches = Batches(tmp_path, FaultyDisk(at=5, error=errno.EIO))
    changes = [Noting(tmp_path / name) for name in "ab"]
    told: list[Exception | None] = []
    for change in changes:
        batches.writer.submit(change, told.append)
    batches.thread()  # opens and writes a; syncs a

    batches.thread()

    assert told[0] is None
    assert isinstance(told[1], StoreFailed)
    assert [change.undone for change in changes] == [False, True]
    assert not (tmp_path / "b").exists()


def test_a_change_that_cannot_be_taken_back_has_failed_all_the_same(tmp_path: Path) -> None:
    batches = Batches(tmp_path, FaultyDisk(at=2, error=errno.EIO, forever=True))
    batches.request("a")

    batches.thread()

    assert batches.told == ["a: EIO"]


def test_an_unexpected_exception_reaches_the_one_who_waits(batches: Batches, tmp_path: Path) -> None:
    told: list[Exception | None] = []
    batches.writer.submit(Noting(tmp_path / "a", ZeroDivisionError("defect")), told.append)

    batches.thread()

    assert [type(each) for each in told] == [ZeroDivisionError]


def test_a_batch_that_cannot_begin_fails(tmp_path: Path) -> None:
    batches = Batches(tmp_path / "absent")
    batches.request("a")

    batches.thread()

    assert batches.told == ["a: No such file or directory"]
    with pytest.raises(StoreFailed, match="No such file"):
        batches.writer.commit_now(Noting(tmp_path / "absent" / "b"))


def test_a_change_can_be_made_at_once(batches: Batches, tmp_path: Path) -> None:
    batches.writer.commit_now(Noting(tmp_path / "a"))

    assert (tmp_path / "a").exists()
    with pytest.raises(StoreFailed, match="full"):
        batches.writer.commit_now(Noting(tmp_path / "b", OSError(errno.ENOSPC, "full")))
    with pytest.raises(ZeroDivisionError):
        batches.writer.commit_now(Noting(tmp_path / "b", ZeroDivisionError()))


def test_a_closed_writer_refuses_and_ends_what_it_took(batches: Batches, tmp_path: Path) -> None:
    told: list[Exception | None] = []
    batches.request("a")
    batches.request("b")

    batches.writer.close()
    batches.request("c")
    batches.writer.submit(Noting(tmp_path / "d"), told.append)
    batches.thread()
    batches.thread()

    assert batches.told == ["c: the server is shutting down", "a", "b"]
    assert str(told[0]).endswith("the server is shutting down")
    assert batches.writer.pending == 0


def test_a_stop_without_a_thread_ends_what_was_taken_once(batches: Batches, tmp_path: Path) -> None:
    told: list[Exception | None] = []
    for name in "ab":
        batches.writer.submit(Noting(tmp_path / name), told.append)

    batches.writer.finish_now()
    batches.thread()  # the thread runs a batch that it has already taken

    assert told == [None, None]
    assert (tmp_path / "b").exists()


def test_a_stop_tells_of_a_batch_that_cannot_begin(tmp_path: Path) -> None:
    batches = Batches(tmp_path / "absent")
    told: list[Exception | None] = []
    batches.writer.submit(Noting(tmp_path / "a"), told.append)

    batches.writer.finish_now()

    assert isinstance(told[0], StoreFailed)
    assert "1 changes" not in str(told[0])

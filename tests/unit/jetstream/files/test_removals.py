"""Removal of directories and memory by jobs: the amount of work per job, and failures."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from tests.support.disk import FaultyDisk
from tests.unit.store.file_state import subject_counts

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.core.job import JobQueue
from pyjs.core.sink import Turn
from pyjs.jetstream.files.removals import FILES_PER_JOB, MemoryRelease, Removals
from pyjs.store.memory import MemStore


class Fixture:
    """Removals whose jobs the test runs individually."""

    def __init__(self, disk: OsDisk | None = None) -> None:
        self.log = ListLog()
        self.turn = Turn()
        self.removals = Removals(disk or OsDisk(), self.log, self.turn)

    def run_job(self) -> bool:
        """Run the one queued job; return whether there was one."""
        jobs = self.turn.take("jobs")
        assert len(jobs) <= 1
        for job in jobs:
            assert job.queue is JobQueue.REMOVALS
            failure = None
            try:
                job.run()
            except OSError as error:
                failure = error
            job.finish(failure)
        return bool(jobs)


def fill(directory: Path, count: int) -> str:
    """Make a directory with `count` files."""
    directory.mkdir(parents=True)
    for number in range(count):
        (directory / str(number)).touch()
    return str(directory)


def files_in(directory: Path) -> int:
    """Return the number of files below a directory."""
    return sum(path.is_file() for path in directory.rglob("*"))


def test_a_job_removes_a_bounded_number_of_files(tmp_path: Path) -> None:
    given = Fixture()
    given.removals.add(fill(tmp_path / "a", 2 * FILES_PER_JOB + 1))
    left = []
    while given.run_job():
        left.append(files_in(tmp_path))
    assert left == [FILES_PER_JOB + 1, 1, 0]
    assert not (tmp_path / "a").exists()


def test_one_job_removes_many_small_directories(tmp_path: Path) -> None:
    given = Fixture()
    for number in range(5):
        given.removals.add(fill(tmp_path / str(number), 2))
    assert given.run_job()
    assert given.run_job()
    assert not given.run_job()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_told_and_keeps_nothing_else(tmp_path: Path) -> None:
    given = Fixture(FaultyDisk(0, errno.EIO))
    given.removals.add(fill(tmp_path / "a", 1))
    given.removals.add(fill(tmp_path / "b", 1))
    while given.run_job():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert f"{tmp_path}/a cannot be removed" in given.log.lines[-1][1]


def test_a_directory_that_went_with_its_parent_is_no_failure(tmp_path: Path) -> None:
    given = Fixture()
    given.removals.add(fill(tmp_path / "a/b", 1))
    given.removals.add(f"{tmp_path}/a/none")
    while given.run_job():
        pass
    assert given.log.lines == []


def test_a_store_that_is_emptied_hands_its_memory_over() -> None:
    store = MemStore()
    for number in range(20_000):
        store.store(b"s.%d" % number, b"", b"x", 1)
    assert store.purge(store.make_filter(())) == 20_000
    assert (store.msgs, store.catalogue.num_subjects(), store.first_seq) == (0, 0, 20_001)
    remains = store.catalogue.take_remains()
    assert len(remains) == 2  # its subjects and its messages
    assert store.catalogue.take_remains() == []
    for each in remains:
        MemoryRelease(each).run()
    assert store.store(b"s.1", b"", b"y", 1) == 20_001
    assert subject_counts(store, store.make_filter((b"s.*",))) == {b"s.1": 1}


def test_a_filter_does_not_take_a_subject_for_one_that_was_handed_over() -> None:
    store = MemStore()
    wanted = store.make_filter((b"a.*", b"b.x"))
    for number in range(5_000):
        store.store(b"a.%d" % number, b"", b"", 1)
    assert store.catalogue.count_matching(0, wanted) == 5_000
    store.purge(store.make_filter(()))
    for number in range(5_000):
        store.store(b"c.%d" % number, b"", b"", 1)
    assert store.catalogue.next_match(0, wanted) == 0


def test_a_store_of_few_messages_is_freed_at_once() -> None:
    store = MemStore()
    store.store(b"s", b"", b"x", 1)
    store.purge(store.make_filter(()))
    assert store.catalogue.take_remains() == []


def test_thousands_of_directories_wait_in_order_whatever_their_names(tmp_path: Path) -> None:
    given = Fixture()
    names = [f"{number} {'ü' * (number % 100)}" for number in range(3 * FILES_PER_JOB)] + [
        os.fsdecode(b"\xff")
    ]
    for name in names:
        given.removals.add(fill(tmp_path / name, 0))
    left = [len(names)]
    while given.run_job():
        left.append(len(list(tmp_path.iterdir())))
    jobs = range(3 * FILES_PER_JOB, -1, -FILES_PER_JOB)  # the first one began with the first directory
    assert left == [len(names), *jobs]

"""Actions that wait for syncs of the log, and their order."""

from __future__ import annotations

from typing import cast

from tests.sim.consensus.log import MemoryLog

from pyjs.base.errors import StoreFailed
from pyjs.base.timers import Timers
from pyjs.consensus.engine import Conf
from pyjs.consensus.log.durability import Due, Durability, LogSync, Waits
from pyjs.core.sink import Turn

MS = 1_000_000


class Bench:
    """The syncs of a log, with a thread that the test runs."""

    def __init__(self, interval_ns: int = 0) -> None:
        self.log = MemoryLog()
        self.turn = Turn()
        self.timers = Timers()
        self.results: list[Exception | None] = []
        self.durability = Durability(self.log, self.turn, self.timers, interval_ns, self.results.append)
        self.group = 0

    def write(self, token: int, *, needs_sync: bool = True) -> None:
        """Write something, and let a token wait until it is durable."""
        self.group += 1
        self.log.create(self.group, "g", 1, Conf(), 0, 0)
        self.log.flush()
        self.durability.wrote()
        self.durability.add(Due(Waits.STORED, token), needs_sync=needs_sync)
        self.durability.begin()

    def jobs(self) -> list[LogSync]:
        return cast("list[LogSync]", self.turn.take("jobs"))

    def finish(self, failure: Exception | None = None) -> None:
        (job,) = self.jobs()
        job.run()
        job.finish(failure)

    def tokens(self) -> list[int]:
        return [due.token for due in iter(self.durability.take, None)]

    def pass_time(self, ns: int) -> None:
        self.turn.now += ns
        while self.timers.due(self.turn.now) is not None:
            self.timers.pop()()


def test_a_token_waits_for_the_sync() -> None:
    bench = Bench()
    bench.write(1)

    assert bench.tokens() == []
    bench.finish()
    assert bench.tokens() == [1]
    assert bench.results == [None]
    assert bench.durability.is_idle


def test_writes_during_a_sync_are_in_the_next_one() -> None:
    bench = Bench()
    bench.write(1)
    (job,) = bench.jobs()
    bench.write(2)
    bench.write(3)
    job.run()
    job.finish(None)

    assert bench.tokens() == [1]
    bench.durability.begin()
    bench.finish()
    assert bench.tokens() == [2, 3]


def test_a_token_that_waits_for_nothing_waits_for_those_before_it() -> None:
    bench = Bench()
    bench.write(1)
    bench.write(2, needs_sync=False)

    assert bench.tokens() == []
    bench.finish()
    assert bench.tokens() == [1, 2]


def test_within_the_interval_nothing_waits_and_one_sync_follows() -> None:
    bench = Bench(interval_ns=100 * MS)
    bench.write(1, needs_sync=False)
    bench.write(2, needs_sync=False)

    assert bench.tokens() == [1, 2]
    assert bench.jobs() == []
    bench.pass_time(100 * MS)
    bench.finish()
    bench.pass_time(1000 * MS)
    assert bench.jobs() == []


def test_writes_while_the_sync_of_the_interval_runs_have_another_one() -> None:
    bench = Bench(interval_ns=100 * MS)
    bench.write(1)
    (job,) = bench.jobs()
    bench.write(2, needs_sync=False)
    bench.pass_time(100 * MS)
    assert bench.jobs() == []
    job.run()
    job.finish(None)
    bench.pass_time(100 * MS)
    bench.finish()

    assert bench.tokens() == [1, 2]


def test_a_sync_that_fails_makes_nothing_durable() -> None:
    bench = Bench()
    bench.write(1)
    bench.finish(OSError(5, "Input/output error"))

    assert isinstance(bench.results[0], OSError)
    assert bench.tokens() == []


def test_a_log_that_refuses_a_sync_is_a_failure() -> None:
    bench = Bench()

    def refuse() -> None:
        raise StoreFailed("/consensus", "no")

    bench.log.begin_sync = refuse  # type: ignore[method-assign]
    bench.write(1)

    assert isinstance(bench.results[0], StoreFailed)


def test_what_needs_no_sync_after_all_does_not_wait_for_ever() -> None:
    bench = Bench()
    bench.durability.wrote()
    bench.durability.add(Due(Waits.STORED, 1), needs_sync=True)
    bench.durability.begin()

    assert bench.tokens() == [1]


def test_nothing_ends_after_the_end() -> None:
    bench = Bench(interval_ns=100 * MS)
    bench.write(1)
    bench.durability.stop()
    bench.finish()

    assert bench.tokens() == []
    bench.pass_time(1000 * MS)
    assert bench.jobs() == []


def test_a_sync_can_be_hurried_where_it_would_wait_for_the_interval() -> None:
    bench = Bench(interval_ns=1000 * MS)
    bench.write(1, needs_sync=False)
    assert bench.jobs() == []

    bench.durability.hurry()
    (job,) = bench.jobs()
    bench.write(2, needs_sync=False)
    bench.durability.hurry()
    assert bench.jobs() == []
    job.run()
    job.finish(None)
    bench.durability.begin()

    assert len(bench.jobs()) == 1


def test_nothing_is_hurried_where_everything_waits_for_its_sync_or_after_the_end() -> None:
    always, ended = Bench(), Bench(interval_ns=1000 * MS)
    always.write(1, needs_sync=False)
    ended.write(1, needs_sync=False)
    ended.durability.stop()

    for bench in (always, ended):
        bench.durability.hurry()
        assert bench.jobs() == []


def test_writes_that_nothing_delays_are_reported_at_once() -> None:
    bench = Bench(interval_ns=100 * MS)
    assert bench.durability.stored(1, has_vote=False) == 1
    assert bench.durability.stored(0, has_vote=True) == 0  # no token waits
    assert bench.durability.is_idle


def test_writes_after_a_vote_wait_with_it() -> None:
    bench = Bench(interval_ns=100 * MS)
    bench.write(1)
    assert bench.durability.stored(2, has_vote=False) == 0
    assert bench.tokens() == []
    bench.finish()
    assert bench.tokens() == [1, 2]


def test_with_a_sync_before_each_acknowledgement_all_writes_wait() -> None:
    bench = Bench()
    bench.durability.wrote()
    assert bench.durability.stored(1, has_vote=False) == 0
    assert bench.tokens() == []

"""A turn whose work only records that it was done: order, shares, and errors that affect only their own item."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pyjs.base.clock import VirtualClock
from pyjs.base.log import ListLog
from pyjs.base.timers import Timers
from pyjs.core.faults import Faults
from pyjs.core.job import Job
from pyjs.core.lane import Share
from pyjs.core.scheduler import Scheduler, Shares, Turns
from pyjs.core.sink import Request, Turn
from pyjs.subjects.routes import RouteCache

if TYPE_CHECKING:
    from pyjs.core.chore import Step

ONE = Share(1, 1)


@dataclass(eq=False)
class Worker:
    """Stands for a stream, consumer or session: each of its methods records its name; `bad` ones raise."""

    name: str
    done: list[str]
    bad: bool = False
    account: str = "A"

    def commit(self) -> None:
        self._do("commit")

    def turn(self) -> None:
        self._do("agree")

    def pump(self) -> None:
        self._do("pump")

    def read_inbox(self) -> None:
        self._do("read")

    def flush_output(self) -> None:
        self._do("flush")

    def _do(self, what: str) -> None:
        if self.bad:
            raise ZeroDivisionError(self.name)
        self.done.append(f"{what} {self.name}")

    def __str__(self) -> str:
        return self.name


class NotedJob(Job):
    """A job that records its end."""

    def __init__(self, done: list[str], bad: bool = False) -> None:
        self.done = done
        self.bad = bad

    def run(self) -> None:
        """Do nothing."""

    def finish(self, failure: Exception | None) -> None:
        if self.bad:
            raise ZeroDivisionError("job")
        self.done.append("finish")


@dataclass
class TurnFixture:
    shares: Shares | None = None
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock, self.timers, self.log, self.state = VirtualClock(), Timers(), ListLog(), Turn()
        self.faults = Faults(self.log)
        self.scheduler = Scheduler(self.state, self.timers, self.clock, self.faults, self.shares)

    def worker(self, name: str, bad: bool = False) -> Any:
        return Worker(name, self.done, bad)

    def request(self, name: str, session: Any = None, bad: bool = False) -> Request:
        def answer(request: Request) -> None:
            self.done.append(f"answer {name}")
            assert not bad

        return Request(answer, name.encode(), session=session)

    def stepping(self, name: str, steps: int) -> Request:
        """Return a request that takes `steps` steps."""

        def work() -> Iterator[Step]:
            for step in range(steps):
                self.done.append(f"step {name}{step}")
                if step < steps - 1:
                    yield None

        return Request(lambda request: work(), name.encode(), session=cast(Any, Worker(name, self.done)))

    def turn(self) -> list[str]:
        before = len(self.done)
        self.scheduler.turn(self.clock.now_ns())
        return self.done[before:]


def once(act: Callable[[], None]) -> Iterator[Step]:
    """Do work that ends in its first step; nothing is yielded."""
    act()
    yield from ()


def test_the_order_of_effects() -> None:
    fixture = TurnFixture()
    state = fixture.state
    state.sessions.append(fixture.worker("c"))
    state.consumers.append(fixture.worker("d"))
    state.inboxes.append(fixture.worker("i"))
    state.requests.append(fixture.request("r"))
    state.streams.append(fixture.worker("s"))
    state.consensus.append(fixture.worker("g"))
    state.finished.append((NotedJob(fixture.done), None))
    state.go_on(once(lambda: fixture.done.append("chore")))
    fixture.timers.at(1, lambda: fixture.done.append("timer"))

    done = fixture.turn()

    assert done == [
        "timer",
        "finish",
        "commit s",
        "agree g",
        "answer r",
        "pump d",
        "read i",
        "chore",
        "flush c",
    ]
    assert not fixture.scheduler.has_work


def test_work_that_gives_work_is_done_in_the_same_turn() -> None:
    fixture = TurnFixture()
    stream = fixture.worker("s")
    fixture.state.requests.append(Request(lambda request: fixture.state.streams.append(stream), b"r"))

    assert fixture.turn() == ["commit s"]


def test_work_that_never_ends_leaves_time_for_others() -> None:
    fixture = TurnFixture()

    def again(request: Request) -> None:
        fixture.done.append("again")
        fixture.state.requests.append(request)

    fixture.state.requests.append(Request(again, b"r"))
    fixture.state.sessions.append(fixture.worker("c"))

    done = fixture.turn()

    assert done == ["again"] * 16 + ["flush c"]
    assert fixture.scheduler.has_work


def test_every_kind_gives_way_after_its_share() -> None:
    fixture = TurnFixture(Shares(*[ONE] * 9))
    state = fixture.state
    for number in range(2):
        state.streams.append(fixture.worker(f"s{number}"))
        state.requests.append(fixture.request(f"r{number}"))
        state.consumers.append(fixture.worker(f"d{number}"))
        state.sessions.append(fixture.worker(f"c{number}"))
        state.finished.append((NotedJob(fixture.done), None))
        fixture.timers.at(1, lambda: fixture.done.append("timer"))

    first, second = fixture.turn(), fixture.turn()

    assert first == ["timer", "finish", "commit s0", "answer r0", "pump d0", "flush c0"]
    assert second == ["timer", "finish", "commit s1", "answer r1", "pump d1", "flush c1"]
    assert not fixture.scheduler.has_work


def test_steps_of_one_request_leave_time_for_another() -> None:
    fixture = TurnFixture(Shares(chores=ONE))
    fixture.state.requests.extend([fixture.stepping("a", 3), fixture.stepping("b", 3)])

    turns = [fixture.turn() for _ in range(4)]

    assert turns == [["step a0", "step b0", "step a1"], ["step b1"], ["step a2"], ["step b2"]]
    assert not fixture.scheduler.has_work


def test_a_fault_stays_with_its_owner() -> None:
    fixture = TurnFixture()
    state = fixture.state
    bad = fixture.worker("bad", bad=True)
    for each in (bad, fixture.worker("good")):
        state.streams.append(each)
        state.consumers.append(each)
        state.sessions.append(each)
    state.requests.extend([fixture.request("q", bad=True), fixture.request("r")])
    state.finished.extend([(NotedJob(fixture.done, bad=True), None), (NotedJob(fixture.done), None)])
    fixture.timers.at(1, bad.pump, bad)
    fixture.timers.at(2, lambda: fixture.done.append("timer"))

    done = fixture.turn()

    assert done == ["timer", "finish", "commit good", "answer q", "answer r", "pump good", "flush good"]
    assert fixture.faults.counts == {
        "commit": 1,
        "delivery": 1,
        "flush": 1,
        "job": 1,
        "request": 1,
        "timer": 1,
    }
    assert [owner for owner, _ in state.take("faulted")].count(bad) == 4
    assert "unexpected failure in a commit of bad: Traceback" in " ".join(
        text for _, text in fixture.log.lines
    )


def test_a_chore_that_fails_ends_and_the_others_go_on() -> None:
    fixture = TurnFixture()

    def broken() -> Iterator[Step]:
        yield None
        raise ZeroDivisionError

    fixture.state.go_on(broken())
    fixture.state.requests.append(fixture.stepping("a", 3))

    assert fixture.turn() == ["step a0", "step a1", "step a2"]
    assert fixture.faults.counts == {"chore": 1}


def test_in_the_middle_of_a_read_only_messages_are_moved() -> None:
    fixture = TurnFixture()
    state = fixture.state
    state.streams.append(fixture.worker("s"))
    state.requests.append(fixture.request("r"))
    state.consumers.append(fixture.worker("d"))
    state.sessions.append(fixture.worker("c"))
    fixture.timers.at(1, lambda: fixture.done.append("timer"))

    fixture.scheduler.relieve(fixture.clock.now_ns())

    assert fixture.done == ["commit s", "pump d", "flush c"]
    assert fixture.scheduler.has_work


def test_a_lone_connection_that_has_more_to_write_goes_on_in_the_next_turn() -> None:
    # given
    fixture = TurnFixture()
    writer = fixture.worker("c")
    left = [True, False]
    writer.flush_output = lambda: left.pop(0)
    fixture.state.sessions.append(writer)
    # when
    fixture.turn()
    # then
    assert (fixture.state.unflushed, fixture.scheduler.has_work) == (1, True)
    fixture.turn()
    assert (left, fixture.state.unflushed, fixture.scheduler.has_work) == ([], 0, False)


def test_a_lone_connection_that_cannot_write_is_reported() -> None:
    fixture = TurnFixture()
    bad = fixture.worker("c", bad=True)
    fixture.state.sessions.append(bad)

    fixture.turn()

    assert [owner for owner, _ in fixture.state.faulted] == [bad]
    assert fixture.faults.counts == {"flush": 1}


def test_deadlines_that_passed_in_great_number_leave_time_for_others() -> None:
    fixture = TurnFixture(Shares(timers=Share(10, 1 << 40, 8)))
    for _ in range(20):
        fixture.timers.at(1, lambda: fixture.done.append("timer"))
    fixture.state.sessions.append(fixture.worker("c"))

    done = fixture.turn()

    assert done == ["timer"] * 16 + ["flush c"]
    assert fixture.scheduler.has_work
    assert fixture.turn() == ["timer"] * 4
    assert not fixture.scheduler.has_work


def test_deadlines_that_were_left_and_are_cancelled_are_no_work_any_more() -> None:
    fixture = TurnFixture(Shares(timers=Share(10, 1 << 40, 8)))
    timers = [fixture.timers.at(1, lambda: fixture.done.append("timer")) for _ in range(20)]
    fixture.turn()
    for timer in timers:
        timer.cancel()

    assert fixture.turn() == []
    assert not fixture.scheduler.has_work


def test_a_turn_whose_every_kind_of_work_is_too_much_takes_less_than_ten_milliseconds() -> None:
    shares = Shares()

    assert sum(share.ns for share in shares) < 10_000_000
    # A quiet client waits twice for both, and for publishes of other clients: 5 ms in all.
    assert shares.requests.ns + shares.chores.ns <= 1_000_000


class Owner(Turns):
    """A node that records the calls for the rare work around its turns."""

    def __init__(self, fixture: TurnFixture) -> None:
        self.begin_turns(fixture.scheduler, RouteCache())
        self.state = fixture.state
        self.calls: list[str] = []

    def read_wall_clock(self) -> None:
        self.calls.append("clock")

    def end_turn(self) -> None:
        self.calls.append("end")
        self.state.take("expired")
        self.state.reports = False
        self.turn(0)  # a turn in a turn does nothing


def test_a_turn_calls_the_node_only_for_what_it_leaves() -> None:
    fixture = TurnFixture()
    owner = Owner(fixture)

    owner.turn(0)
    owner.turn(9_999_999)
    fixture.state.reports = True
    owner.turn(9_999_999)
    fixture.state.expired.append(fixture.worker("c"))
    owner.relieve(9_999_999)
    owner.turn(10_000_000)

    assert owner.calls == ["clock", "end", "end", "clock"]
    assert fixture.scheduler.turns == 5

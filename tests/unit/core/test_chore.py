"""Chores and gates, run in the way the turn runs them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from pyjs.core.chore import Chore, Gates
from pyjs.core.sink import Turn

if TYPE_CHECKING:
    from pyjs.core.chore import Step


class GatesFixture:
    """Gates, and work that records its steps."""

    def __init__(self) -> None:
        self.state = Turn()
        self.gates = Gates(self.state)
        self.done: list[str] = []

    def start(self, name: str, stream: str, alone: bool, steps: int = 1) -> None:
        self.state.go_on(self._work(name, stream, alone, steps))

    def _work(self, name: str, stream: str, alone: bool, steps: int) -> Iterator[Step]:
        yield from self.gates.enter(stream, alone)
        try:
            for step in range(steps):
                self.done.append(f"{name}{step}")
                yield None
        finally:
            self.gates.leave(stream)

    def turn(self) -> list[str]:
        """Do one step of everything that can continue; return the steps."""
        before = len(self.done)
        for chore in self.state.take("chores"):
            if chore.go_on():
                self.state.chores.append(chore)
        return self.done[before:]


def test_reports_share_a_stream() -> None:
    fixture = GatesFixture()
    fixture.start("a", "S", alone=False, steps=2)
    fixture.start("b", "S", alone=False, steps=2)

    assert fixture.turn() == ["a0", "b0"]


def test_a_change_waits_for_reports_and_later_reports_wait_for_the_change() -> None:
    fixture = GatesFixture()
    fixture.start("report", "S", alone=False, steps=2)
    fixture.start("change", "S", alone=True, steps=2)
    fixture.start("later", "S", alone=False)

    turns = [fixture.turn() for _ in range(7)]

    assert turns == [["report0"], ["report1"], [], ["change0"], ["change1"], [], ["later0"]]
    assert fixture.turn() == []
    assert not fixture.state.chores


def test_who_comes_does_not_overtake_who_was_let_in_and_has_not_gone_on_yet() -> None:
    fixture = GatesFixture()
    fixture.start("change", "S", alone=True)
    fixture.start("first", "S", alone=False)
    fixture.turn()
    fixture.turn()  # the change has ended, and the first chore may begin
    late = Chore(fixture._work("second", "S", False, 1), (None, "late"))

    goes_on = late.go_on()  # as a request is continued, before the chores of the turn
    turns = [fixture.turn() for _ in range(3)]

    assert not goes_on
    assert turns == [["first0"], ["second0"], []]
    assert not fixture.gates.is_busy("S")


def test_streams_do_not_wait_for_each_other() -> None:
    fixture = GatesFixture()
    fixture.start("a", "S", alone=True, steps=2)
    fixture.start("b", "T", alone=True, steps=2)

    assert fixture.turn() == ["a0", "b0"]


def test_what_waits_gives_no_turn_work() -> None:
    fixture = GatesFixture()
    fixture.start("a", "S", alone=True, steps=9)
    fixture.start("b", "S", alone=True)
    fixture.turn()

    assert len(fixture.state.chores) == 1


def test_a_gate_is_gone_when_nobody_is_inside() -> None:
    fixture = GatesFixture()
    fixture.start("a", "S", alone=True)
    fixture.turn()
    busy = fixture.gates.is_busy("S")
    fixture.turn()

    assert (busy, fixture.gates.is_busy("S")) == (True, False)


def test_changes_that_waited_come_one_after_the_other() -> None:
    fixture = GatesFixture()
    for name in "abc":
        fixture.start(name, "S", alone=True)

    for _ in range(9):
        fixture.turn()

    assert fixture.done == ["a0", "b0", "c0"]


def test_the_connections_that_wait_at_a_gate_take_turns() -> None:
    fixture = GatesFixture()
    for name in ("a", "b", "c", "quiet"):
        connection = "quiet" if name == "quiet" else "busy"
        fixture.state.chores.append(Chore(fixture._work(name, "S", True, 1), ("A", connection)))

    for _ in range(12):
        fixture.turn()

    assert fixture.done == ["a0", "b0", "quiet0", "c0"]


def test_a_chore_that_parks_goes_on_when_it_is_put_back() -> None:
    parked: list[Chore] = []

    def steps() -> Iterator[Step]:
        yield parked.append
        yield None

    chore = Chore(steps(), (None, None))

    assert not chore.go_on()
    assert parked == [chore]
    assert chore.go_on()
    assert not chore.go_on()


def test_work_within_a_gate_leaves_it_when_it_fails() -> None:
    fixture = GatesFixture()
    caught: list[str] = []

    def failing() -> Generator[Step, None, None]:
        yield None
        raise ZeroDivisionError

    def work() -> Iterator[Step]:
        try:
            yield from fixture.gates.within("S", True, failing)
        except ZeroDivisionError:
            caught.append("failed")

    fixture.state.go_on(work())
    fixture.start("later", "S", alone=False)
    for _ in range(3):
        fixture.turn()

    assert caught == ["failed"]
    assert fixture.done == ["later0"]


def test_work_within_a_gate_returns_what_it_found() -> None:
    fixture = GatesFixture()
    found: list[int] = []

    def seven() -> Generator[Step, None, int]:
        yield None
        return 7

    def work() -> Iterator[Step]:
        found.append((yield from fixture.gates.within("S", False, seven)))

    fixture.state.go_on(work())
    for _ in range(2):
        fixture.turn()

    assert found == [7]
    assert not fixture.gates.is_busy("S")

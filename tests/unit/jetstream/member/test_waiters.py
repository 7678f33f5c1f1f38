"""Chores that wait until something holds."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from pyjs.base.timers import Timers
from pyjs.core.sink import Turn
from pyjs.jetstream.member.waiters import Waiters

if TYPE_CHECKING:
    from pyjs.core.chore import Step


class World:
    """A turn whose time the test moves."""

    def __init__(self) -> None:
        self.turn, self.timers = Turn(), Timers()
        self.waiters = Waiters(self.turn, self.timers)
        self.found: list[bool] = []
        self.holds = False

    def wait(self, wait_ns: int = 0) -> None:
        def steps() -> Generator[Step, None, None]:
            self.found.append((yield from self.waiters.until(lambda: self.holds, wait_ns)))

        self.turn.go_on(steps())
        self.run(0)

    def run(self, now_ns: int) -> None:
        self.turn.begin(now_ns, 0)
        while self.timers.due(now_ns) is not None:
            self.timers.pop()()
        for chore in self.turn.take("chores"):
            chore.go_on()


def test_a_waiter_goes_on_when_it_is_told_and_what_it_waits_for_holds() -> None:
    world = World()
    world.wait()
    world.waiters.notify()
    world.run(1)
    assert world.found == []
    world.holds = True
    world.waiters.notify()
    world.run(2)
    assert world.found == [True]


def test_nobody_waits_for_what_holds() -> None:
    world = World()
    world.holds = True
    world.wait(10)
    assert world.found == [True]
    assert world.timers.next_deadline_ns() is None


def test_a_waiter_gives_up_after_its_time() -> None:
    world = World()
    world.wait(10)
    world.run(9)
    assert world.found == []
    world.run(10)
    assert world.found == [False]


def test_a_timer_ends_with_its_waiter() -> None:
    world = World()
    world.wait(10)
    world.holds = True
    world.waiters.notify()
    world.run(1)
    assert world.found == [True]
    assert world.timers.next_deadline_ns() is None

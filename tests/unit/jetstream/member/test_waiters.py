"""Chores that wait until a condition holds."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from pyjs.base.timers import Timers
from pyjs.core.sink import Turn
from pyjs.jetstream.member.waiters import Waiters

if TYPE_CHECKING:
    from pyjs.core.chore import Step


class World:
    """A turn whose time the test advances."""

    def __init__(self) -> None:
        self.turn, self.timers = Turn(), Timers()
        self.waiters = Waiters(self.turn, self.timers)
        self.found: list[bool] = []
        self.holds = False
        self.looks = 0  # how many times waiters have checked their condition

    def wait(self, wait_ns: int = 0) -> None:
        def look() -> bool:
            self.looks += 1
            return self.holds

        def steps() -> Generator[Step, None, None]:
            self.found.append((yield from self.waiters.until(look, wait_ns)))

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


def test_a_timer_wakes_its_own_waiter_only() -> None:
    world = World()
    for wait_ns in range(1, 101):
        world.wait(wait_ns)
    begun = world.looks
    for now_ns in range(1, 101):
        world.run(now_ns)
        assert len(world.found) == now_ns
    assert world.looks - begun == 100


def test_a_waiter_that_was_told_at_the_end_of_its_time_goes_on_once() -> None:
    world = World()
    world.wait(10)
    world.waiters.notify()
    world.run(10)
    world.run(11)
    assert world.found == [False]

"""Lanes, on a clock that each item advances by its own duration."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyjs.base.clock import VirtualClock
from pyjs.core.lane import Lane, Share


@dataclass
class Item:
    name: str
    owner: tuple[str, str] = ("A", "1")
    takes_ns: int = 0
    steps: int = 1
    fails: bool = False


@dataclass
class LaneFixture:
    share: Share
    clock: VirtualClock = field(default_factory=VirtualClock)
    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    turns: int = 0

    def __post_init__(self) -> None:
        self.lane: Lane[Item] = Lane(
            self.clock,
            self.share,
            self.do,
            lambda item: item.owner,
            lambda item, _: self.failed.append(item.name),
        )

    def do(self, item: Item) -> bool:
        if item.fails:
            raise ZeroDivisionError
        self.clock.advance(item.takes_ns)
        self.done.append(item.name)
        item.steps -= 1
        return item.steps > 0

    def turn(self, *fresh: Item) -> list[str]:
        """Run a turn with new items; return the names of the items that it did."""
        before = len(self.done)
        self.turns += 1
        self.lane.run(list(fresh), self.turns)
        return self.done[before:]


def items(count: int, owner: tuple[str, str] = ("A", "1"), takes_ns: int = 0) -> list[Item]:
    return [Item(f"{owner[1]}.{number}", owner, takes_ns) for number in range(count)]


def test_what_exceeds_the_number_of_items_waits_for_the_next_turn() -> None:
    fixture = LaneFixture(Share(2, 100))

    assert fixture.turn(*items(5)) == ["1.0", "1.1"]
    assert fixture.lane.waiting.count == 3
    assert fixture.turn() == ["1.2", "1.3"]
    assert fixture.turn() == ["1.4"]
    assert not fixture.lane.waiting.count


def test_what_exceeds_the_time_waits_for_the_next_turn() -> None:
    fixture = LaneFixture(Share(100, 100))

    assert fixture.turn(*items(5, takes_ns=50)) == ["1.0", "1.1"]
    assert fixture.turn() == ["1.2", "1.3"]


def test_a_share_is_of_the_whole_turn() -> None:
    fixture = LaneFixture(Share(100, 100))
    fixture.lane.run(items(2, takes_ns=50), 1)
    fixture.lane.run([*items(1, ("A", "2")), *items(1, ("A", "3"))], 1)

    assert fixture.done == ["1.0", "1.1"]
    assert fixture.lane.waiting.count == 2


def test_a_lone_item_that_comes_again_and_again_in_a_turn_has_one_share() -> None:
    fixture = LaneFixture(Share(100, 100))
    for _ in range(16):
        fixture.lane.run(items(1, takes_ns=60), 1)

    assert len(fixture.done) == 3  # the first item, and two items in the share
    assert fixture.lane.waiting.count == 13


def test_one_item_is_done_in_each_turn_however_long_it_takes() -> None:
    fixture = LaneFixture(Share(100, 100))

    assert fixture.turn(*items(3, takes_ns=1000)) == ["1.0"]
    assert fixture.turn() == ["1.1"]


def test_others_do_not_wait_for_all_that_one_connection_asked_for() -> None:
    fixture = LaneFixture(Share(2, 100))
    fixture.turn(*items(6), *items(1, ("A", "2")), *items(1, ("B", "3")))

    assert fixture.turn() == ["1.2", "3.0"]
    assert fixture.turn() == ["2.0", "1.3"]


def test_an_item_in_steps_goes_on_when_others_had_theirs() -> None:
    fixture = LaneFixture(Share(100, 100))

    fixture.turn(Item("long", steps=3), Item("short", ("A", "2")))

    assert fixture.done == ["long", "short", "long", "long"]


def test_a_lone_item_in_steps_goes_on_in_the_next_turn() -> None:
    fixture = LaneFixture(Share(2, 100))

    assert fixture.turn(Item("long", steps=3)) == ["long"]
    assert fixture.turn() == ["long", "long"]


def test_an_item_that_fails_is_reported_and_the_others_are_done() -> None:
    fixture = LaneFixture(Share(4, 100))

    assert fixture.turn(Item("a"), Item("bad", fails=True), Item("b")) == ["a", "b"]
    assert fixture.turn(Item("worse", fails=True)) == []
    assert fixture.turn(*items(5), Item("worst", fails=True)) == ["1.0", "1.1", "1.2", "1.3"]
    assert fixture.turn() == ["1.4"]
    assert fixture.failed == ["bad", "worse", "worst"]


def test_a_few_new_items_need_not_wait_for_what_is_old() -> None:
    fixture = LaneFixture(Share(3, 100, few=1))
    fixture.turn(*items(8))

    assert fixture.turn(Item("new", ("A", "2"))) == ["new", "1.3", "1.4"]


def test_the_clock_is_looked_at_once_per_stride() -> None:
    fixture = LaneFixture(Share(100, 100, stride=4))

    assert fixture.turn(*items(6, takes_ns=60)) == ["1.0", "1.1", "1.2", "1.3"]


def test_one_that_waits_is_not_starved_by_new_ones() -> None:
    fixture = LaneFixture(Share(100, 100, few=64))
    fixture.turn(Item("old", steps=3, takes_ns=60), Item("x", ("A", "2"), takes_ns=60))

    done = [fixture.turn(Item("a", ("A", "3"), 100), Item("b", ("A", "4"), 100)) for _ in range(6)]

    assert sum(turn.count("old") for turn in done) == 2


def test_the_clock_is_looked_at_after_an_item_that_has_not_ended() -> None:
    fixture = LaneFixture(Share(100, 100, stride=8))

    assert fixture.turn(*(Item(name, ("A", name), 60, steps=2) for name in "abcd")) == ["a", "b"]

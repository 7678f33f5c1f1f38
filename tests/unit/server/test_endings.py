"""Thousands of connections that end at once: some are processed after each turn."""

from pyjs.base.clock import VirtualClock
from pyjs.base.log import ListLog
from pyjs.server.endings import SHARE_NS, STRIDE, Endings


class Wakes:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def made() -> tuple[VirtualClock, ListLog, Wakes, Endings]:
    clock, log, wakes = VirtualClock(), ListLog(), Wakes()
    return clock, log, wakes, Endings(clock, log, wakes)


def test_few_ends_are_done_after_the_next_turn() -> None:
    _, _, wakes, endings = made()
    ended: list[int] = []
    for number in range(5):
        endings.add(lambda number=number: ended.append(number))  # type: ignore[misc]
    assert wakes.count
    assert not ended

    endings.after_turn()

    assert ended == [0, 1, 2, 3, 4]


def test_many_ends_take_a_share_of_each_turn() -> None:
    clock, _, wakes, endings = made()
    ended: list[int] = []

    def end() -> None:
        ended.append(1)
        clock.advance(SHARE_NS // STRIDE)

    for _ in range(10 * STRIDE):
        endings.add(end)
    wakes.count = 0

    turns = 0
    while len(ended) < 10 * STRIDE:
        endings.after_turn()
        turns += 1
        assert len(ended) <= turns * STRIDE
        assert wakes.count == (turns if len(ended) < 10 * STRIDE else turns - 1)


def test_an_end_that_comes_meanwhile_waits_for_the_next_turn() -> None:
    _, _, _, endings = made()
    ended: list[str] = []
    endings.add(lambda: (ended.append("first"), endings.add(lambda: ended.append("second"))))

    endings.after_turn()
    assert ended == ["first"]
    endings.after_turn()
    assert ended == ["first", "second"]


def test_an_end_that_fails_is_logged_and_the_others_are_done() -> None:
    _, log, _, endings = made()
    ended: list[int] = []

    def fail() -> None:
        raise ValueError("of one connection")

    endings.add(fail)
    endings.add(lambda: ended.append(1))
    endings.after_turn()

    assert ended == [1]
    assert any("of one connection" in str(line) for line in log.lines)

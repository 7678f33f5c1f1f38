"""Deadlines: their order, cancellation, and which of them fire."""

from __future__ import annotations

from tests.support.timers import fire

from pyjs.base.timers import Timers

SWEEP_MIN = 64  # as in timers.pyx


def test_due_timers_fire_earliest_first_and_once() -> None:
    timers, fired = Timers(), []
    for deadline in (30, 10, 20, 10):
        timers.at(deadline, lambda deadline=deadline: fired.append(deadline))
    assert timers.next_deadline_ns() == 10
    assert fire(timers, 20) == 3
    assert fired == [10, 10, 20]
    assert fire(timers, 20) == 0
    assert timers.next_deadline_ns() == 30


def test_a_cancelled_timer_neither_fires_nor_is_next() -> None:
    timers, fired = Timers(), []
    timer = timers.at(10, lambda: fired.append(10))
    timers.at(20, lambda: fired.append(20))
    timer.cancel()
    assert timers.next_deadline_ns() == 20
    fire(timers, 100)
    assert fired == [20]
    assert timers.next_deadline_ns() is None


def test_a_timer_set_while_firing_fires_in_the_same_round_if_due() -> None:
    timers, fired = Timers(), []
    timers.at(10, lambda: timers.at(10, lambda: fired.append("second")) and None)
    fire(timers, 10)
    assert fired == ["second"]


def test_cancelled_timers_do_not_pile_up_and_live_ones_stay() -> None:
    timers, fired = Timers(), []
    for at in range(1000):
        timers.at(10_000 - at, lambda at=at: fired.append(at))
    for _ in range(100_000):
        timers.at(20_000, lambda: fired.append(-1)).cancel()

    assert len(timers) <= 2 * max(1000, SWEEP_MIN) + 1
    assert fire(timers, 20_000) == 1000
    assert fired == list(reversed(range(1000)))


def test_the_cancelled_timers_of_a_crowd_are_forgotten_without_a_new_one() -> None:
    timers, fired = Timers(), []
    crowd = [timers.at(20_000, lambda: fired.append("crowd")) for _ in range(3000)]
    timers.at(10_000, lambda: fired.append("live"))

    for timer in crowd:
        timer.cancel()
        timer.cancel()  # the second cancel has no effect

    assert len(timers) <= SWEEP_MIN + 1
    assert fire(timers, 20_000) == 1
    assert fired == ["live"]
    assert timers.next_deadline_ns() is None


def test_a_timer_that_fired_may_be_cancelled() -> None:
    timers, fired = Timers(), []
    done = [timers.at(10, lambda: fired.append(10)) for _ in range(2 * SWEEP_MIN)]
    timers.at(20, lambda: fired.append(20))
    fire(timers, 10)

    for timer in done:
        timer.cancel()

    assert fire(timers, 20) == 1
    assert fired == [10] * 2 * SWEEP_MIN + [20]

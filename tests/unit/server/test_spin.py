"""Polling for input before the event loop sleeps, and the credit that limits it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from pyjs.base.clock import VirtualClock
from pyjs.base.log import ListLog
from pyjs.base.timers import Timers
from pyjs.core.sink import Turn
from pyjs.server import spin
from pyjs.server.driver import Driver
from pyjs.server.spin import (
    CORE_EVERY,
    CREDIT_MAX,
    CREDIT_PAID,
    PREEMPTED_MAX,
    REST_NS,
    SHORT_NS,
    SPIN_NS,
    STAGE,
    STAGES,
    WAITS_MAX,
    Spin,
)


class Time:
    """The monotonic clock, which only moves when the test says so."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(spin, "monotonic_ns", made.monotonic_ns)
    return made


def new_spin(*, has_neighbours: bool = False) -> tuple[Spin, Driver]:
    node: Any = SimpleNamespace(
        timers=Timers(),
        turn_state=Turn(),
        clock=VirtualClock(),
        log=ListLog(),
        cluster=object() if has_neighbours else None,
    )
    turns = Driver(asyncio.get_running_loop(), node)
    return Spin(turns), turns


async def look_in_vain(spinning: Spin, time: Time) -> None:
    """Let the time for polling pass without a turn."""
    time.now_ns += SPIN_NS
    while spinning.looking:
        await asyncio.sleep(0)
    time.now_ns += SHORT_NS


async def test_a_turn_keeps_the_loop_awake_for_a_while(time: Time) -> None:
    spinning, _ = new_spin()

    spinning.after_turn()
    for _ in range(10):
        await asyncio.sleep(0)
    assert spinning.looking
    await look_in_vain(spinning, time)

    assert spinning.credit == CREDIT_MAX - 1


async def test_looking_in_vain_uses_up_the_credit(time: Time) -> None:
    spinning, turns = new_spin()

    for _ in range(CREDIT_MAX):
        turns.waked_ns = time.now_ns
        spinning.after_turn()
        await look_in_vain(spinning, time)
    turns.waked_ns = time.now_ns
    spinning.after_turn()

    assert not spinning.looking


async def turn(spinning: Spin, turns: Driver, time: Time, *, after_ns: int) -> None:
    """Run a turn for input that arrives `after_ns` after the last turn; the loop polls until then."""
    time.now_ns += after_ns
    if after_ns > SPIN_NS:
        while spinning.looking:
            await asyncio.sleep(0)
    turns.waked_ns = time.now_ns
    spinning.after_turn()


async def test_input_during_a_spin_earns_credit(time: Time) -> None:
    spinning, turns = new_spin()
    await turn(spinning, turns, time, after_ns=0)
    spinning.credit = 1

    await turn(spinning, turns, time, after_ns=SPIN_NS - 1)

    assert spinning.credit == 1 + CREDIT_PAID
    assert spinning.looking


async def test_waits_that_are_short_but_longer_than_a_spin_end_the_spinning(time: Time) -> None:
    spinning, turns = new_spin()
    spins = 0

    for _ in range(CREDIT_MAX + 20 * WAITS_MAX):
        await turn(spinning, turns, time, after_ns=2 * SPIN_NS)
        spins += spinning.looking

    assert spins < CREDIT_MAX + 30


async def test_a_short_wait_without_a_spin_leads_to_a_trial_however_long_its_turn_takes(time: Time) -> None:
    spinning, turns = new_spin()
    spinning.credit = 0

    turns.waked_ns = time.now_ns
    spinning.after_turn()
    assert not spinning.looking
    turns.waked_ns = time.now_ns + SHORT_NS - 1
    time.now_ns += 10 * SHORT_NS
    spinning.after_turn()

    assert spinning.looking


async def test_a_client_that_turns_quick_is_served_by_spins_again(time: Time) -> None:
    spinning, turns = new_spin()
    for _ in range(CREDIT_MAX + 20 * WAITS_MAX):
        await turn(spinning, turns, time, after_ns=2 * SPIN_NS)
    for _ in range(WAITS_MAX + 10):
        await turn(spinning, turns, time, after_ns=SPIN_NS // 2)

    assert spinning.looking
    assert spinning.credit > CREDIT_PAID


class Kernel:
    """Counts preemptions of this process; on request, as many as cause a check of the core."""

    def __init__(self) -> None:
        self.is_busy = True
        self._count = 0

    def preemptions(self) -> int:
        self._count += PREEMPTED_MAX * self.is_busy
        return self._count


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(spin, "preemptions", made.preemptions)
    return made


def serve(spinning: Spin, time: Time, count: int, *, with_ns: int, without_ns: int) -> int:
    """Run turns that take `with_ns` while the loop polls and `without_ns` while it sleeps; return the polls."""
    spins = 0
    for _ in range(count):
        time.now_ns += with_ns if spinning.looking else without_ns
        spinning.looking = False  # as after input
        spinning.after_turn()
        spins += spinning.looking
    return spins


async def test_a_preempted_loop_sleeps_at_once_if_turns_are_faster_so(time: Time, kernel: Kernel) -> None:
    spinning, _ = new_spin()
    trial = CORE_EVERY + STAGES * STAGE

    serve(spinning, time, trial, with_ns=40_000, without_ns=20_000)
    assert serve(spinning, time, 100, with_ns=40_000, without_ns=20_000) == 0

    time.now_ns += REST_NS
    assert serve(spinning, time, 10, with_ns=40_000, without_ns=20_000) > 0


async def test_a_preempted_loop_goes_on_spinning_if_that_is_faster(time: Time, kernel: Kernel) -> None:
    spinning, _ = new_spin()

    in_trial = serve(spinning, time, CORE_EVERY + STAGES * STAGE, with_ns=20_000, without_ns=40_000)
    assert in_trial < CORE_EVERY + STAGES * STAGE // 2 + 2
    assert serve(spinning, time, 100, with_ns=20_000, without_ns=40_000) == 100


async def test_a_loop_that_is_not_preempted_makes_no_trial(time: Time, kernel: Kernel) -> None:
    spinning, _ = new_spin()
    kernel.is_busy = False

    assert serve(spinning, time, 200, with_ns=40_000, without_ns=20_000) == 200


async def test_a_preempted_loop_with_neighbours_rests_without_a_trial(time: Time, kernel: Kernel) -> None:
    spinning, _ = new_spin(has_neighbours=True)

    spins = serve(spinning, time, CORE_EVERY + 100, with_ns=20_000, without_ns=40_000)

    assert spins == CORE_EVERY


@pytest.mark.parametrize(("cpus", "paid"), [({0}, False), ({0, 1}, True)])
def test_looking_pays_where_a_client_has_a_core_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cpus: set[int], paid: bool
) -> None:
    monkeypatch.setattr(spin.os, "sched_getaffinity", lambda pid: cpus)

    assert spin.pays() is paid

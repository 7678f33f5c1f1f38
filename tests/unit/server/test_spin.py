"""Looking for input before the loop sleeps, and the credit that ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyjs.server import spin
from pyjs.server.spin import CREDIT_MAX, CREDIT_PAID, SHORT_NS, SPIN_NS, WAITS_MAX, Spin


class Time:
    """The monotonic clock, which stands still until told to move."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(spin, "monotonic_ns", made.monotonic_ns)
    return made


class Turns:
    """The driver of turns, as far as looking goes."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waked_ns = 0


def new_spin() -> tuple[Spin, Any]:
    turns: Any = Turns()
    return Spin(turns), turns


async def look_in_vain(spinning: Spin, time: Time) -> None:
    """Let the time for looking pass without a turn."""
    time.now_ns += SPIN_NS
    while spinning._looking:
        await asyncio.sleep(0)
    time.now_ns += SHORT_NS


async def test_a_turn_keeps_the_loop_awake_for_a_while(time: Time) -> None:
    spinning, _ = new_spin()

    spinning.after_turn()
    for _ in range(10):
        await asyncio.sleep(0)
    assert spinning._looking
    await look_in_vain(spinning, time)

    assert spinning._credit == CREDIT_MAX - 1


async def test_looking_in_vain_uses_up_the_credit(time: Time) -> None:
    spinning, turns = new_spin()

    for _ in range(CREDIT_MAX):
        turns.waked_ns = time.now_ns
        spinning.after_turn()
        await look_in_vain(spinning, time)
    turns.waked_ns = time.now_ns
    spinning.after_turn()

    assert not spinning._looking


async def turn(spinning: Spin, turns: Any, time: Time, *, after_ns: int) -> None:
    """Run a turn for input that arrives `after_ns` after the last turn; a spin looks until then."""
    time.now_ns += after_ns
    if after_ns > SPIN_NS:
        while spinning._looking:
            await asyncio.sleep(0)
    turns.waked_ns = time.now_ns
    spinning.after_turn()


async def test_input_during_a_spin_earns_credit(time: Time) -> None:
    spinning, turns = new_spin()
    await turn(spinning, turns, time, after_ns=0)
    spinning._credit = 1

    await turn(spinning, turns, time, after_ns=SPIN_NS - 1)

    assert spinning._credit == 1 + CREDIT_PAID
    assert spinning._looking


async def test_waits_that_are_short_but_longer_than_a_spin_end_the_spinning(time: Time) -> None:
    spinning, turns = new_spin()
    spins = 0

    for _ in range(CREDIT_MAX + 20 * WAITS_MAX):
        await turn(spinning, turns, time, after_ns=2 * SPIN_NS)
        spins += spinning._looking

    assert spins < CREDIT_MAX + 30


async def test_a_short_wait_without_a_spin_leads_to_a_trial_however_long_its_turn_takes(time: Time) -> None:
    spinning, turns = new_spin()
    spinning._credit = 0

    turns.waked_ns = time.now_ns
    spinning.after_turn()
    assert not spinning._looking
    turns.waked_ns = time.now_ns + SHORT_NS - 1
    time.now_ns += 10 * SHORT_NS
    spinning.after_turn()

    assert spinning._looking


async def test_a_client_that_turns_quick_is_served_by_spins_again(time: Time) -> None:
    spinning, turns = new_spin()
    for _ in range(CREDIT_MAX + 20 * WAITS_MAX):
        await turn(spinning, turns, time, after_ns=2 * SPIN_NS)
    for _ in range(WAITS_MAX + 10):
        await turn(spinning, turns, time, after_ns=SPIN_NS // 2)

    assert spinning._looking
    assert spinning._credit > CREDIT_PAID


@pytest.mark.parametrize(("cpus", "paid"), [({0}, False), ({0, 1}, True)])
def test_looking_pays_where_a_client_has_a_core_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cpus: set[int], paid: bool
) -> None:
    monkeypatch.setattr(spin.os, "sched_getaffinity", lambda pid: cpus)

    assert spin.pays() is paid

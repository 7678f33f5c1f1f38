"""Looking for input before the loop sleeps, and the credit that ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyjs.server import spin
from pyjs.server.spin import CREDIT_MAX, PAID_NS, SPIN_NS, Spin


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
    time.now_ns += PAID_NS


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


async def test_input_soon_after_a_turn_earns_credit_however_long_it_takes_to_handle(time: Time) -> None:
    spinning, turns = new_spin()
    spinning._credit = 0

    turns.waked_ns = time.now_ns
    spinning.after_turn()
    assert not spinning._looking
    turns.waked_ns = time.now_ns + PAID_NS - 1
    time.now_ns += 10 * PAID_NS
    spinning.after_turn()

    assert spinning._looking


@pytest.mark.parametrize(("cpus", "paid"), [({0}, False), ({0, 1}, True)])
def test_looking_pays_where_a_client_has_a_core_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cpus: set[int], paid: bool
) -> None:
    monkeypatch.setattr(spin.os, "sched_getaffinity", lambda pid: cpus)

    assert spin.pays() is paid

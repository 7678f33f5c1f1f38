"""Looking for input before the loop sleeps, and the credit that ends it."""

from __future__ import annotations

import asyncio

import pytest

from pyjs.server import spin
from pyjs.server.spin import CREDIT_MAX, Spin


async def test_a_turn_keeps_the_loop_awake_for_a_while() -> None:
    spinning = Spin(asyncio.get_running_loop(), spin_ns=2_000_000)

    spinning.after_turn()
    assert spinning._looking
    while spinning._looking:
        await asyncio.sleep(0)

    assert spinning._credit == CREDIT_MAX - 1


async def test_looking_in_vain_uses_up_the_credit() -> None:
    spinning = Spin(asyncio.get_running_loop(), spin_ns=1_000)

    for _ in range(CREDIT_MAX):
        spinning._turned_ns = 0  # the turns come far apart
        spinning.after_turn()
        while spinning._looking:
            await asyncio.sleep(0)
    spinning._turned_ns = 0
    spinning.after_turn()

    assert not spinning._looking


async def test_turns_that_follow_closely_earn_credit() -> None:
    spinning = Spin(asyncio.get_running_loop(), spin_ns=50_000)
    spinning._credit = 0

    spinning.after_turn()
    assert not spinning._looking
    spinning.after_turn()

    assert spinning._looking


@pytest.mark.parametrize(("cpus", "paid"), [({0}, False), ({0, 1}, True)])
def test_looking_pays_where_a_client_has_a_core_of_its_own(
    monkeypatch: pytest.MonkeyPatch, cpus: set[int], paid: bool
) -> None:
    monkeypatch.setattr(spin.os, "sched_getaffinity", lambda pid: cpus)

    assert spin.pays() is paid

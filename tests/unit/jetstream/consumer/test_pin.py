"""The pinned client of a priority group."""

from __future__ import annotations

import pytest

from pyjs.jetstream.consumer.delivery.pull_requests import Pin

ID = b"0123456789abcdefghijkl"


def test_nobody_has_the_pin_at_first() -> None:
    pin = Pin()
    assert (pin.id, pin.group, pin.pinned_at) == (b"", "", 0)


def test_a_client_has_it_until_it_is_cleared() -> None:
    pin = Pin()

    pin.assign(ID, "g", 5)
    had = (pin.id, pin.group, pin.pinned_at)
    pin.clear()

    assert had == (ID, "g", 5)
    assert (pin.id, pin.pinned_at) == (b"", 0)


def test_its_id_is_a_nuid() -> None:
    with pytest.raises(AssertionError):
        Pin().assign(b"short", "g", 5)

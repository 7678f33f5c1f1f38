"""The fast path for small counters, compared with the reader of all numbers (counting.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.features.counting import counted
from pyjs.jetstream.stream.features.increments import added

HEADERS = b"NATS/1.0\r\nNats-Incr: %b\r\n\r\n"
SMALL = st.integers(-(10**18) + 1, 10**18 - 1)


@given(SMALL, SMALL | st.none(), st.sampled_from(["%d", "%+d"]))
def test_small_numbers_add_up_as_all_numbers_do(change: int, total: int | None, form: str) -> None:
    increment = (form % change).encode()
    payload = None if total is None else b'{"val":"%d"}' % total
    assert added(increment, b"", payload) == counted(HEADERS % increment, b"", payload, 1 << 20)[1]


@given(st.text("0123456789+- x", max_size=21), st.text('0123456789+-"x{}', max_size=21))
def test_what_is_added_is_never_another_sum(increment: str, value: str) -> None:
    payload = b'{"val":"%b"}' % value.encode()
    found = added(increment.encode(), b"", payload)
    if found is None:
        return
    assert found == counted(HEADERS % increment.encode(), b"", payload, 1 << 20)[1]


@pytest.mark.parametrize("increment", [b"", b"+", b"-", b"1" * 19, b"1.5", b" 1", b"one"])
def test_another_increment_is_left_to_the_long_way(increment: bytes) -> None:
    assert added(increment, b"", None) is None


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b'{"val":""}', b'{"val": "1"}', b'{"val":1}', b'{"val":"%b"}' % (b"1" * 19)]
)
def test_another_payload_is_left_to_the_long_way(payload: bytes) -> None:
    assert added(b"1", b"", payload) is None


def test_a_counter_with_other_origins_is_left_to_the_long_way() -> None:
    headers = b'NATS/1.0\r\nNats-Incr: 1\r\nNats-Counter-Sources: {"A":{"a":"1"}}\r\n\r\n'
    assert added(b"1", headers, b'{"val":"1"}') is None


def test_a_broken_value_is_an_error_of_the_long_way() -> None:
    with pytest.raises(ApiError):
        counted(HEADERS % b"1", b"", b'{"val":1}', 1 << 20)
    assert added(b"1", b"", b'{"val":1}') is None

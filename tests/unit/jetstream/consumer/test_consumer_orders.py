"""The arguments of acks, and consumer settings."""

from __future__ import annotations

import pytest

from pyjs.jetstream.consumer.arguments import read_delay_ns, read_percent


@pytest.mark.parametrize(
    ("argument", "ns"),
    [(b"", -1), (b"  ", -1), (b" 5s", 5_000_000_000), (b' {"delay": 7}', 7), (b"{}", 0), (b"0", 0)],
)
def test_delays(argument: bytes, ns: int) -> None:
    assert read_delay_ns(argument) == ns


@pytest.mark.parametrize("argument", [b"soon", b'{"delay": "5s"}', b"{", b'{"delay": 1.5}'])
def test_what_is_no_delay_is_refused(argument: bytes) -> None:
    with pytest.raises(ValueError):
        read_delay_ns(argument)


@pytest.mark.parametrize(("text", "percent"), [("", 0), ("30", 30), ("100%", 100), ("500", 100), ("0", 0)])
def test_percentages(text: str, percent: int) -> None:
    assert read_percent(text) == percent


def test_a_delay_of_half_a_million_parts_is_none() -> None:
    assert read_delay_ns(b"1s" * 500) == 500_000_000_000
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        read_delay_ns(b"1s" * 500_000)

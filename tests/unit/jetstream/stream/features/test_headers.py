"""Reading and changing blocks of headers."""

from __future__ import annotations

from pyjs.jetstream.stream.features.headers import added, value_of, value_or_none, with_value, without

BLOCK = b"NATS/1.0\r\nA: 1\r\nB:2\r\nA: 3\r\nC:\r\n\r\n"


def test_the_first_of_equal_names_counts() -> None:
    assert value_of(BLOCK, b"A") == b"1"
    assert value_of(BLOCK, b"B") == b"2"


def test_an_empty_value_differs_from_none() -> None:
    assert (value_or_none(BLOCK, b"C"), value_or_none(BLOCK, b"D")) == (b"", None)
    assert value_of(BLOCK, b"D") == b""


def test_a_value_is_replaced_in_its_place() -> None:
    assert with_value(BLOCK, b"A", b"long") == b"NATS/1.0\r\nA: long\r\nB:2\r\nA: 3\r\nC:\r\n\r\n"
    assert with_value(BLOCK, b"B", b"") == b"NATS/1.0\r\nA: 1\r\nB:\r\nA: 3\r\nC:\r\n\r\n"


def test_a_new_value_is_the_last_line() -> None:
    assert with_value(b"NATS/1.0\r\nA: 1\r\n\r\n", b"B", b"2") == b"NATS/1.0\r\nA: 1\r\nB: 2\r\n\r\n"
    assert added(b"", b"B", b"2") == b"NATS/1.0\r\nB: 2\r\n\r\n"


def test_every_line_of_a_name_is_removed() -> None:
    assert without(BLOCK, b"A") == b"NATS/1.0\r\nB:2\r\nC:\r\n\r\n"
    assert without(b"NATS/1.0\r\nA: 1\r\n\r\n", b"A") == b""

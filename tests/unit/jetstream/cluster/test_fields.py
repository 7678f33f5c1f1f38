"""Packed rows: unpacking returns the packed values, and invalid bytes are refused with the field's name."""

from __future__ import annotations

import msgpack
import pytest

from pyjs.jetstream.cluster.fields import TEXT_SIZE_MAX, BadRow, Row, pack, unpack


def row(*values: object) -> Row:
    return Row(list(values), "it")


def test_values_come_back_in_order() -> None:
    taken = unpack(pack([1, -5, "x", "", ["a", "b"], True, {"k": 2}, [[7]], [8], [3, 4]]), "it", 100)
    assert taken.number("n") == 1
    assert taken.signed("s") == -5
    assert taken.text("t") == "x"
    assert taken.text("e", may_be_empty=True) == ""
    assert taken.texts("l") == ("a", "b")
    assert taken.flag("f")
    assert taken.values("m") == {"k": 2}
    assert [each.number("n") for each in taken.rows("r", 1)] == [7]
    assert taken.row("o").number("n") == 8
    assert taken.numbers("p", 2, 1, 9) == (3, 4)
    taken.end()


@pytest.mark.parametrize(
    ("value", "take", "text"),
    [
        (-1, "number", "x of it is -1, not a number from 0"),
        (True, "number", "x of it is True, not a number"),
        ("1", "number", "x of it is a str, not a number"),
        (1 << 63, "signed", "x of it is 9223372036854775808"),
        (b"x", "text", "x of it is a bytes, not a text"),
        ("", "text", "x of it is empty"),
        ("x" * (TEXT_SIZE_MAX + 1), "text", "not a text of up to 4096 bytes"),
        (["a", 1], "texts", "not a text"),
        (["a"] * 1025, "texts", "not a list of up to 1024"),
        (1, "flag", "x of it is 1, not true or false"),
        ([], "values", "x of it is a list, not a map"),
        ({1: 2}, "values", "not a map"),
        (5, "row", "x of it is 5, not a list"),
    ],
)
def test_a_wrong_value_is_refused_by_name(value: object, take: str, text: str) -> None:
    with pytest.raises(BadRow, match=text):
        getattr(row(value), take)("x")


@pytest.mark.parametrize("values", [[], [1, 1], [0], [10], ["1"], [1, 2, 3], [True], 5])
def test_numbers_are_different_and_within_bounds(values: object) -> None:
    with pytest.raises(BadRow, match="x of it"):
        row(values).numbers("x", 2, 1, 9)


def test_a_row_must_have_as_many_values_as_are_taken() -> None:
    with pytest.raises(BadRow, match="it ends before x"):
        row().number("x")
    with pytest.raises(BadRow, match="it has 2 values too many"):
        row(1, 2).end()


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x92\x01", b"\x93" * 5000, b"\xa2\xff\xff", msgpack.packb({1: [2]}), b"\x05"]
)
def test_bytes_that_are_not_a_row_are_refused(data: bytes) -> None:
    with pytest.raises(BadRow):
        unpack(data, "it", 10_000)


def test_too_many_bytes_are_not_even_read() -> None:
    with pytest.raises(BadRow, match="it has 11 bytes, the most are 10"):
        unpack(b"\xc1" * 11, "it", 10)

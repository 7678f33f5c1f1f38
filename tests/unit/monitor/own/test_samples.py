"""The text of rows of numbers."""

from __future__ import annotations

import pytest

from pyjs.monitor.own.exposition import Family, Page
from pyjs.monitor.own.samples import Table

FAMILIES = (Family("a", "gauge", "first"), Family("b", "gauge", "second"))


def table(*rows: tuple[int, int], forms: bytes = b"ui") -> Table:
    made = Table((b"a", b"b"), forms)
    for number, row in enumerate(rows):
        made.add(b'{n="%d"' % number, b"}", row)
    return made


@pytest.mark.parametrize("number", [0, 7, 10, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_unsigned_numbers_have_64_bits(number: int) -> None:
    assert table((number, 0)).text(0, 0, 1) == b'a{n="0"} %d\n' % number


@pytest.mark.parametrize("number", [0, -1, 99, (1 << 63) - 1, -(1 << 63)])
def test_signed_numbers_have_a_sign(number: int) -> None:
    assert table((0, number)).text(1, 0, 1) == b'b{n="0"} %d\n' % number


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, b"0.000"),
        (7_004_999_999, b"7.004"),
        (-1_500_000_000, b"-1.500"),
        ((1 << 63) - 1, b"9223372036.854"),
    ],
)
def test_times_are_seconds_in_milliseconds(ns: int, text: bytes) -> None:
    assert table((0, ns), forms=b"us").text(1, 0, 1) == b'b{n="0"} %b\n' % text


def test_a_time_that_is_missing_has_no_sample() -> None:
    assert table((0, -(1 << 63)), (0, 1_000_000), forms=b"us").text(1, 0, 2) == b'b{n="1"} 0.001\n'


def test_a_part_of_the_rows_is_written() -> None:
    made = table((1, 0), (2, 0), (3, 0))

    assert made.text(0, 1, 2) == b'a{n="1"} 2\n'
    assert made.text(0, 2, 99) == b'a{n="2"} 3\n'
    assert made.text(0, 99, 100) == b""


def test_many_rows_are_written_in_steps() -> None:
    page = Page()
    made = page.table(FAMILIES, b"uu")
    for number in range(5_000):
        made.add(b'{n="%d"' % number, b"}", (number, number))
    steps = page.pieces()
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            lines = b"".join(end.value).splitlines()
            break

    assert count == 4
    assert lines[:3] == [b"# HELP a first", b"# TYPE a gauge", b'a{n="0"} 0']
    assert len(lines) == 10_004


def test_a_table_without_rows_has_no_text() -> None:
    page = Page()
    page.table(FAMILIES, b"uu")

    with pytest.raises(StopIteration) as end:
        next(page.pieces())
    assert end.value.value == []

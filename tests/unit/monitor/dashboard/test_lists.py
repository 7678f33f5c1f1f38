"""Pages of long lists."""

from __future__ import annotations

import pytest

from pyjs.monitor.arguments import Arguments, BadArgument
from pyjs.monitor.dashboard.lists import LIMIT_MAX, REACH, STEP, Wanted, page_of, wanted_by

SORTS = {"name": 1, "size": 2}


def page(rows: list[int], wanted: Wanted, *, even: bool = False) -> tuple[list[int], int, int]:
    """Return the page, the total and the number of steps."""
    steps = page_of(rows, wanted, lambda row: row, lambda row: not even or row % 2 == 0)
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return *done.value, taken
        taken += 1


def test_a_page_is_sorted_and_cut() -> None:
    assert page([3, 1, 2, 5, 4], Wanted("", "n", False, 1, 2)) == ([2, 3], 5, 1)
    assert page([3, 1, 2, 5, 4], Wanted("", "n", True, 0, 2)) == ([5, 4], 5, 1)
    assert page([3, 1, 2, 5, 4], Wanted("", "n", False, 0, 9), even=True) == ([2, 4], 2, 1)
    assert page([], Wanted("", "n", False, 0, 9)) == ([], 0, 0)


@pytest.mark.parametrize("descending", [False, True])
def test_a_long_list_takes_several_steps_and_is_sorted_as_a_whole(descending: bool) -> None:
    rows = [number * 7919 % 100_003 for number in range(3 * STEP + 1)]

    found, total, steps = page(rows, Wanted("", "n", descending, STEP, 3))

    assert found == sorted(rows, reverse=descending)[STEP : STEP + 3]
    assert (total, steps) == (len(rows), 4)


def test_rows_that_take_long_to_compare_are_in_smaller_steps() -> None:
    rows = [1, STEP, 5 * STEP, 2, 3]
    steps = page_of(rows, Wanted("", "n", True, 0, 2), lambda row: row, lambda row: True, lambda row: row)

    assert len(list(steps)) == 3


def test_the_page_is_read_from_the_query() -> None:
    given = Arguments("sort=-size&search=Ab&offset=50&limit=10")

    assert wanted_by(given, SORTS, "name") == Wanted("ab", "size", True, 50, 10)
    assert wanted_by(Arguments(""), SORTS, "-name") == Wanted("", "name", True, 0, 50)
    assert wanted_by(given, SORTS, "name").fields(7) == {"total": 7, "offset": 50, "limit": 10}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sort=no", "sort=no: use one of name, size, with - before it for descending"),
        ("sort=--name", "sort=--name: use one of name, size, with - before it for descending"),
        (f"limit={LIMIT_MAX + 1}", f"limit={LIMIT_MAX + 1}: use 1 to {LIMIT_MAX}"),
        ("limit=-1", f"limit=-1: use 1 to {LIMIT_MAX}"),
        ("offset=-1", "offset=-1: only the first 10,000 rows can be shown; search for the others"),
        (
            f"offset={REACH}",
            f"offset={REACH}: only the first 10,000 rows can be shown; search for the others",
        ),
        ("offset=99999999999999999999", "Error decoding int for 'offset'"),
    ],
)
def test_a_page_out_of_bounds_is_refused(query: str, text: str) -> None:
    with pytest.raises(BadArgument) as refused:
        wanted_by(Arguments(query), SORTS, "name")
    assert str(refused.value).startswith(text)

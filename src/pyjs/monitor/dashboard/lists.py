"""Pages of long lists, which are filtered, sorted and cut in steps."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pyjs.monitor.arguments import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from pyjs.monitor.arguments import Arguments

    Row = TypeVar("Row")

LIMIT = 50  # rows of a page, unless requested otherwise
LIMIT_MAX = 200
REACH = 10_000  # the last row that a page may show; a search narrows a longer list
STEP = 250  # rows compared between two yields: about half a millisecond


class Wanted(NamedTuple):
    """The requested page of a list."""

    search: str  # in lower case; "": everything
    sort: str
    descending: bool
    offset: int
    limit: int

    def fields(self, total: int) -> dict[str, int]:
        """Return the fields of an answer that describe its page; `total` is the number of matching rows."""
        return {"total": total, "offset": self.offset, "limit": self.limit}


def wanted_by(arguments: Arguments, sorts: Mapping[str, object], default: str) -> Wanted:
    """Return the page that a request wants; `default` is the sort order if the request names none.

    `sorts` has the names of the columns; a minus sign before a name means descending.

    Raises:
        BadArgument: an argument is invalid, or the page goes beyond the first REACH rows.
    """
    given = arguments.text("sort") or default
    sort, descending = given.removeprefix("-"), given.startswith("-")
    if sort not in sorts:
        raise BadArgument(f"sort={given}: use one of {', '.join(sorts)}, with - before it for descending")
    offset, limit = arguments.integer("offset"), arguments.integer("limit") or LIMIT
    if not 0 < limit <= LIMIT_MAX:
        raise BadArgument(f"limit={limit}: use 1 to {LIMIT_MAX}")
    if not 0 <= offset <= REACH - limit:
        raise BadArgument(
            f"offset={offset}: only the first {REACH:,} rows can be shown; search for the others"
        )
    return Wanted(arguments.text("search").lower(), sort, descending, offset, limit)


def page_of(
    rows: Sequence[Row],
    wanted: Wanted,
    key: Callable[[Row], Any],
    matches: Callable[[Row], bool],
    weight: Callable[[Row], int] = lambda row: 1,
) -> Generator[None, None, tuple[list[Row], int]]:
    """Return the rows of the wanted page, and the number of all matching rows; yield between steps.

    A step ends when the weights of its rows add up to STEP or more. After each step, only the rows up to the end of
    the page are kept.
    """
    best: list[tuple[Any, Row]] = []
    end, total = wanted.offset + wanted.limit, 0
    left = iter(rows)
    while some := _portion(left, weight):
        found = [(key(row), row) for row in some if matches(row)]
        total += len(found)
        best += found
        best.sort(key=itemgetter(0), reverse=wanted.descending)
        del best[end:]
        yield
    return [row for _, row in best[wanted.offset :]], total


def _portion(rows: Iterator[Row], weight: Callable[[Row], int]) -> list[Row]:
    """Take rows until their weights add up to STEP or more, and return them; return [] if no row is left."""
    some: list[Row] = []
    left = STEP
    for row in rows:
        some.append(row)
        left -= weight(row)
        if left <= 0:
            break
    return some

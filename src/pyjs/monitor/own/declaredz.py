"""/declaredz: declared streams, consumers and buckets that differ from the file, as `pyjs-server plan` shows them.

This module knows nothing of files and comparisons: the server compares when the page is requested
(server/declaring/drift.py).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pyjs.base.gotext import quoted, time_text
from pyjs.monitor.arguments import BadArgument

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.state import Monitored

    Fields = dict[str, Any]
    Steps = Generator[Any, None, Fields]

LIMIT, LIMIT_MAX = 256, 1000  # assets of one answer; the next request continues with `offset`
STEP = 1000  # assets examined between two yields
SAME = "same"


class DeclaredRow(NamedTuple):
    """A declared stream, consumer or bucket, and the action that a reload would take."""

    account: str
    kind: str  # stream, consumer, kv or object_store
    name: str
    action: str  # create, update, same or refuse
    changes: tuple[Fields, ...] = ()  # of its options: field, old, new
    reason: str = ""  # why it cannot be changed
    text: str = ""  # the line of `pyjs-server plan`

    def as_json(self) -> Fields:
        """Return the row as the fields of a JSON object."""
        fields = self._asdict()
        return fields | {"changes": list(self.changes)}


class Unnamed(NamedTuple):
    """The streams and consumers of one account that the file does not name."""

    account: str
    total: int
    names: tuple[str, ...]  # the first ones


class DeclaredReport(NamedTuple):
    """The result of comparing the declared assets with those of the server."""

    compared_at_ns: int = 0  # 0: the file declares nothing
    accounts: Mapping[str, str] = {}  # each account, and why its streams cannot be listed; "": they were
    rows: Sequence[DeclaredRow] = ()
    unnamed: Sequence[Unnamed] = ()

    def counts(self) -> dict[str, int]:
        """Return the number of assets by action."""
        counts = dict.fromkeys(("create", "update", "refuse", SAME), 0)
        for row in self.rows:
            counts[row.action] += 1
        return counts

    def heads(self) -> Fields:
        """Return the fields that every page of the report has."""
        counts = self.counts()
        errors = {name: error for name, error in self.accounts.items() if error}
        compared = {"compared": time_text(self.compared_at_ns)} if self.compared_at_ns else {}
        return compared | {
            "changes": len(self.rows) > counts[SAME],
            "counts": counts,
            "errors": errors,
        }


def nothing_declared() -> Generator[Any, None, DeclaredReport]:
    """Return the report of a server whose file declares nothing."""
    yield from ()
    return DeclaredReport()


def declaredz(monitored: Monitored, arguments: Arguments, now_ns: int) -> Steps:
    """Return the body of /declaredz; yield between steps.

    Raises:
        BadArgument: an argument is invalid, or the file declares nothing for the account.
    """
    account, shows_all = arguments.text("acc"), arguments.flag("all")
    offset, limit = max(arguments.integer("offset"), 0), arguments.integer("limit") or LIMIT
    if not 0 < limit <= LIMIT_MAX:
        raise BadArgument(f"limit={limit}: use 1 to {LIMIT_MAX}")
    report: DeclaredReport = yield from monitored.declared()
    if account and account not in report.accounts:
        raise BadArgument(f"the file declares nothing for the account {quoted(account)}")
    found: list[Fields] = []
    total = 0
    rows = iter(report.rows)
    while some := list(islice(rows, STEP)):
        chosen = [row for row in some if account in ("", row.account) and (shows_all or row.action != SAME)]
        first = max(offset - total, 0)
        found += [row.as_json() for row in chosen[first : max(offset + limit - total, 0)]]
        total += len(chosen)
        yield
    return {
        "server_id": monitored.node.server_id,
        "server_name": monitored.node.server_name,
        "now": time_text(now_ns),
        **report.heads(),
        "total": total,
        "offset": offset,
        "limit": limit,
        "assets": found,
        "not_in_file": [each._asdict() for each in report.unnamed if account in ("", each.account)],
    }

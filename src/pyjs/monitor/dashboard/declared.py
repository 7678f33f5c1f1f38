"""The list of declared assets; by default, it begins with those that differ from the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyjs.monitor.dashboard.lists import page_of, wanted_by

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.site import Fields, Site
    from pyjs.monitor.own.declaredz import DeclaredReport, DeclaredRow

URGENCY = ("refuse", "update", "create", "same")
SORTS: dict[str, Callable[[DeclaredRow], Any]] = {
    "name": lambda row: (row.name, row.kind, row.account),
    "kind": lambda row: (row.kind, row.name),
    "account": lambda row: (row.account, row.name),
    "action": lambda row: (URGENCY.index(row.action), row.name),
}


def declared(site: Site, arguments: Arguments) -> Generator[Any, None, Fields]:
    """Return a page of the list of declared assets; yield between steps."""
    wanted = wanted_by(arguments, SORTS, "action")
    report: DeclaredReport = yield from site.monitored.declared()
    rows, total = yield from page_of(
        report.rows,
        wanted,
        SORTS[wanted.sort],
        lambda row: wanted.search in f"{row.kind} {row.name} {row.account}".lower(),
    )
    shown = [
        {"account": row.account, "kind": row.kind, "name": row.name, "action": row.action, "text": row.text}
        for row in rows
    ]
    unnamed = sum(each.total for each in report.unnamed)
    return {
        **wanted.fields(total),
        **report.heads(),
        "at": site.clock.now_ns(),
        "of": len(report.rows),
        "not_in_file": unnamed,
        "declared": shown,
    }

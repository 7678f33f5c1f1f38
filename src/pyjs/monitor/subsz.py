"""/subsz: counters of the subscription lists of all accounts and, if requested, all subscriptions.

A long list is composed in steps; subscriptions added between two steps are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.gotext import time_text
from pyjs.monitor.arguments import Arguments, BadArgument
from pyjs.monitor.connz import subscription_detail
from pyjs.monitor.json_text import JsonDict, number, pretty_items
from pyjs.subjects.tokens import is_valid_literal, subject_matches

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.account import Account
    from pyjs.monitor.state import Monitored

LIMIT = 1024
STEP = 1000  # subscriptions examined between two yields, in about a millisecond
DEPTH = 2  # levels of JSON around the list: the answer, subscriptions_list


def subsz(
    monitored: Monitored, arguments: Arguments, now_ns: int
) -> Generator[None, None, tuple[JsonDict, list[bytes]]]:
    """Return the counters, and the texts of the subscriptions if the argument `subs` is set; yield between steps.

    Raises:
        BadArgument: an argument is invalid; the error message is that of nats-server.
    """
    subs = arguments.flag("subs")
    offset = max(arguments.integer("offset"), 0)
    limit = arguments.integer("limit")
    limit = limit if limit > 0 else LIMIT
    test = arguments.text("test")
    if test and not is_valid_literal(test.encode()):
        raise BadArgument(f"invalid test subject, must be valid publish subject: {test}")
    wanted = arguments.text("acc")
    accounts = [a for a in monitored.node.accounts.values() if wanted in ("", a.name)]
    answer: JsonDict = {"server_id": monitored.node.server_id, "now": time_text(now_ns)}
    answer |= sublist_stats(monitored, accounts)
    total = 0
    page: list[bytes] = []
    if subs:
        of_others = monitored.options.worker is None
        total, page = yield from _page(accounts, test.encode(), offset, limit, of_others)
    answer |= {"total": total, "offset": offset, "limit": limit}
    return answer, page


def sublist_stats(monitored: Monitored, accounts: list[Account]) -> JsonDict:
    """Return the counters of the subscription lists of `accounts`, combined."""
    finds = sum(a.subs.finds for a in accounts)
    hits = max(0, finds - sum(a.subs.misses for a in accounts))
    cached = sum(a.subs.num_cached() for a in accounts)
    # by account: (most receivers of one cached subject, receivers of all cached subjects together)
    fanouts = [a.subs.cached_fanout() for a in accounts]
    return {
        "num_subscriptions": sum(map(monitored.num_subscriptions, accounts)),
        "num_cache": cached,
        "num_inserts": sum(a.subs.inserts for a in accounts),
        "num_removes": sum(a.subs.removes for a in accounts),
        "num_matches": finds,
        "cache_hit_rate": number(hits / finds if finds else 0.0),
        "max_fanout": max((widest for widest, _ in fanouts), default=0),
        "avg_fanout": number(sum(total for _, total in fanouts) / cached if cached else 0.0),
    }


def _page(
    accounts: list[Account], test: bytes, offset: int, limit: int, of_others: bool
) -> Generator[None, None, tuple[int, list[bytes]]]:
    """Return the number of subscriptions that match `test` (empty: all), and the texts of the requested page.

    With `of_others`, subscriptions of other servers are included too.
    """
    total = 0
    page: list[bytes] = []
    details: list[JsonDict] = []  # subscriptions that are not converted to text yet
    for account in accounts:
        for index, sub in enumerate(account.subs.subscriptions()):
            if index % STEP == STEP - 1:
                _close(details, page)
                yield
            if (test and not subject_matches(test, sub.subject)) or (sub.is_remote and not of_others):
                continue
            if offset <= total < offset + limit:
                details.append(subscription_detail(sub, getattr(sub.sink, "cid", 0), account.name))
            total += 1
    _close(details, page)
    return total, page


def _close(details: list[JsonDict], page: list[bytes]) -> None:
    """Append the text of `details` to `page`, and empty `details`."""
    if details:
        page.append(pretty_items(details, DEPTH))
        details.clear()

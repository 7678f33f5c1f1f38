"""Answers of the first worker about all streams of an account: names, lists, and the usage of the account."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.api.account import info as account_info
from pyjs.jetstream.api.endpoint import Replacements
from pyjs.jetstream.api.streams import LIST_PAGE, NAMES_PAGE, matches, page_of
from pyjs.jetstream.config import stream_requests
from pyjs.jetstream.member.questions import streams_report
from pyjs.jetstream.spread.placing import DIRECTOR

if TYPE_CHECKING:
    from typing import Any

    from pyjs.jetstream.api.endpoint import ApiCall, JsonDict, MaybeSteps
    from pyjs.jetstream.manage.engine import JetStream
    from pyjs.jetstream.spread.spread_node import SpreadNode

SUMMED = ("memory", "storage", "consumers")


class Reports:
    """The first worker's handlers of requests about the streams of all workers."""

    def __init__(self, spread: SpreadNode) -> None:
        self._spread = spread
        handlers = {"INFO": self._info, "STREAM.NAMES": self._names, "STREAM.LIST": self._list}
        self.endpoints = Replacements(handlers, {})

    def _matching(self, js: JetStream, subject: str) -> dict[str, int]:
        """Return a map from the names of the streams that match `subject` to the numbers of their workers.

        The names are sorted. An empty `subject` matches all streams.
        """
        found = {each.name: (each.config, DIRECTOR) for each in js.streams.values()}
        found |= {name: (each.config, DIRECTOR) for name, each in js.offline.items()}
        elsewhere = self._spread.directory.streams(js.account.name)
        found |= {name: (each.config, each.worker) for name, each in elsewhere.items()}
        return {name: found[name][1] for name in sorted(found) if matches(found[name][0], subject)}

    def _names(self, call: ApiCall) -> MaybeSteps:
        """Return the answer to STREAM.NAMES: one page of the names of the streams of all workers."""
        given = call.read_optional(stream_requests.NAMES_REQUEST)
        yield from self._spread.complete_steps()
        found = list(self._matching(call.js, given.get("subject", "")))
        page, offset = page_of(found, given.get("offset", 0), NAMES_PAGE)
        return {"total": len(found), "offset": offset, "limit": NAMES_PAGE, "streams": page or None}

    def _list(self, call: ApiCall) -> MaybeSteps:
        """Return the answer to STREAM.LIST: one page of the infos of the streams of all workers.

        Streams whose info is not available are listed under `missing`.
        """
        given = call.read_optional(stream_requests.LIST_REQUEST)
        yield from self._spread.complete_steps()
        js, spread = call.js, self._spread
        found = self._matching(js, given.get("subject", ""))
        page, offset = page_of(list(found), given.get("offset", 0), LIST_PAGE)
        asked: dict[int, list[str]] = {}
        for name in page:
            if found[name] in spread.online:
                asked.setdefault(found[name], []).append(name)
        infos = yield from streams_report(js, tuple(name for name in page if found[name] == DIRECTOR))
        for report in (yield from spread.questions.gather(js.account.name, asked)):
            infos |= report
        out: JsonDict = {"total": len(found), "offset": offset, "limit": LIST_PAGE}
        out["streams"] = [infos[name] for name in page if name in infos]
        missing = [name for name in page if name not in infos]
        offline = {name: js.offline[name].reason for name in missing if name in js.offline}
        return out | ({"missing": missing} if missing else {}) | ({"offline": offline} if offline else {})

    def _info(self, call: ApiCall) -> MaybeSteps:
        """Return the answer to INFO: the limits of an account, and its usage summed over all workers."""
        yield from self._spread.complete_steps()
        account, spread = call.js.account.name, self._spread
        asked: dict[int, list[str]] = {worker: [] for worker in sorted(spread.online)}
        reports: list[dict[str, Any]] = yield from spread.questions.gather(account, asked)
        out = account_info(call)
        for report in reports:
            for name in SUMMED:
                out[name] += report.get(name, 0)
            for name in ("total", "errors"):
                out["api"][name] += report.get(name, 0)
        out["streams"] += len(spread.directory.streams(account))
        return out

"""The paths of the dashboard: its page, the files of the page, the data of its views, and the replay of letters.

Only a replay changes anything, and the operator must enable replays. The page requests nothing from other servers;
its Content-Security-Policy makes the browser enforce this. In contrast to the other monitoring pages, the data may
only be read by pages of the same origin.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.monitor.dashboard.cluster import cluster
from pyjs.monitor.dashboard.connections import connection_view, connections
from pyjs.monitor.dashboard.consumers import consumer_view, consumers
from pyjs.monitor.dashboard.dead_letters import dead_letters
from pyjs.monitor.dashboard.declared import declared
from pyjs.monitor.dashboard.messages import Refused, Unreadable, message_view, messages
from pyjs.monitor.dashboard.overview import overview, server_fields
from pyjs.monitor.dashboard.posted import ActionRefused
from pyjs.monitor.dashboard.replay import ACTION, Replays
from pyjs.monitor.dashboard.site import Site
from pyjs.monitor.dashboard.streams import config_view, stream_view, streams
from pyjs.monitor.dashboard.survey import Survey
from pyjs.monitor.json_text import compact_json
from pyjs.monitor.response import TEXT_HEADERS, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.base.clock import Clock
    from pyjs.base.log import Log
    from pyjs.monitor.arguments import Arguments
    from pyjs.monitor.dashboard.posted import Posted
    from pyjs.monitor.dashboard.site import Steps
    from pyjs.monitor.state import Monitored

ROOT = "/dashboard"
PAGE = "index.html"
REPLAY = f"actions/{ACTION}"
ALLOW = ("Allow", "POST")
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
GUARDED = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
)
PAGE_HEADERS = (
    *GUARDED,
    ("Content-Security-Policy", POLICY),
    ("X-Frame-Options", "DENY"),
    ("Cache-Control", "no-cache"),
)
DATA_HEADERS = (*GUARDED, ("Content-Type", "application/json"), ("Cache-Control", "no-store"))
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
VIEWS: dict[str, Callable[[Site, Arguments], Steps]] = {
    "overview": overview,
    "streams": streams,
    "stream": stream_view,
    "config": config_view,
    "consumers": consumers,
    "consumer": consumer_view,
    "connections": connections,
    "connection": connection_view,
    "cluster": cluster,
    "declared": declared,
    "dead_letters": dead_letters,
    "messages": messages,
    "message": message_view,
}


def is_of_dashboard(path: str) -> bool:
    """Return whether `path` is the path of the dashboard, or below it."""
    return path == ROOT or path.startswith(f"{ROOT}/")


class Dashboard:
    """The handler of requests for the dashboard."""

    def __init__(self, monitored: Monitored, clock: Clock, log: Log) -> None:
        self._monitored = monitored
        self._site = Site(monitored, clock, Survey(monitored, clock))
        self._replays = Replays(self._site, log)

    def answer(
        self, path: str, arguments: Arguments, posted: Posted | None
    ) -> Generator[Any, None, Response | None]:
        """Return the response to a request, or None if there is no such file or view; yield between steps.

        `posted` is the request if its method is POST, otherwise None; views and files are the same for POST and GET.

        Raises:
            BadArgument: an argument is invalid.
        """
        name = path.removeprefix(ROOT).removeprefix("/")
        if name == REPLAY:
            return (yield from self._replay(arguments, posted))
        view = VIEWS.get(name.removeprefix("data/")) if name.startswith("data/") else None
        if view is None:
            return self._file(name or PAGE)
        try:
            fields = yield from view(self._site, arguments)
        except Refused as refusal:
            return _text(403, str(refusal))
        except Unreadable as error:
            return _text(503, str(error))
        shown = fields if "server" in fields else {"server": server_fields(self._site), **fields}
        return Response(200, compact_json(shown), DATA_HEADERS)

    def _replay(self, arguments: Arguments, posted: Posted | None) -> Generator[Any, None, Response]:
        try:
            fields = yield from self._replays.answer(arguments, posted)
        except ActionRefused as refusal:
            answer = _text(refusal.status, str(refusal))
            return answer if refusal.status != 405 else replace(answer, headers=(*answer.headers, ALLOW))
        return Response(200, compact_json(fields), DATA_HEADERS)

    def _file(self, name: str) -> Response | None:
        body = self._monitored.asset(name)
        if body is None:
            return None
        kind = TYPES[name.rpartition(".")[2]]
        return Response(200, body, (*PAGE_HEADERS, ("Content-Type", kind)))


def _text(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode(), (*TEXT_HEADERS, *GUARDED, ("Cache-Control", "no-store")))

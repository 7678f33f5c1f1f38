"""The paths of the monitoring port, and their handlers.

Statuses, texts and the order of checks follow nats-server 2.15.1. This module knows nothing of HTTP: it gets a
request target and returns a Response.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyjs.base.gotext import quoted, time_text
from pyjs.monitor.accountz import accountz, accstatz
from pyjs.monitor.arguments import TRUE, Arguments, BadArgument
from pyjs.monitor.connz import connz, connz_options
from pyjs.monitor.dashboard.views import Dashboard, is_of_dashboard
from pyjs.monitor.healthz import healthz
from pyjs.monitor.json_text import JsonDict, compact_json, pretty_json, pretty_pieces
from pyjs.monitor.jsz import NotLeader, jsz, jsz_options
from pyjs.monitor.own.declaredz import declaredz
from pyjs.monitor.own.exposition import CONTENT_TYPE
from pyjs.monitor.own.metrics import metrics
from pyjs.monitor.own.whyz import wanted_by, whyz
from pyjs.monitor.raftz import NO_NODES, has_groups, raftz
from pyjs.monitor.response import HTML_HEADERS, TEXT_HEADERS, Response, text_response
from pyjs.monitor.root import root_page
from pyjs.monitor.routez import routez
from pyjs.monitor.settings import settings
from pyjs.monitor.subsz import subsz
from pyjs.monitor.varz import varz

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from pyjs.base.clock import Clock
    from pyjs.base.log import Log
    from pyjs.monitor.dashboard.posted import Posted
    from pyjs.monitor.state import Monitored

NOT_FOUND = Response(404, b"404 page not found\n", (*TEXT_HEADERS, ("X-Content-Type-Options", "nosniff")))
UNQUOTED = "%/:@!$&()*+,;=~-._?"  # characters of a path and a query that are not escaped in a Location header
UNCOUNTED = (
    "/ipqueuesz",
    "/raftz",
    "/whyz",
    "/declaredz",
    "/metrics",
    "/debug/vars",
    "/stacksz",
)  # paths that http_req_stats does not count


class Router:
    """The handler of requests to the monitoring port of one server."""

    def __init__(self, monitored: Monitored, clock: Clock, log: Log) -> None:
        self._monitored = monitored
        self._clock = clock
        self._log = log
        self._dashboard = Dashboard(monitored, clock, log)
        base = monitored.options.monitoring.base_path.strip("/")
        self._base = f"/{base}" if base else ""
        self._views: dict[str, Callable[[Arguments], Response | Generator[None, None, Response]]] = {
            "/": self._root,
            "/varz": self._varz,
            "/connz": self._connz,
            "/subsz": self._subsz,
            "/jsz": self._jsz,
            "/healthz": self._healthz,
            "/accountz": lambda arguments: _json(accountz(monitored, arguments, clock.now_ns())),
            "/accstatz": lambda arguments: _json(accstatz(monitored, arguments, clock.now_ns())),
            "/routez": self._routez,
            "/gatewayz": self._gatewayz,
            "/leafz": self._leafz,
            "/ipqueuesz": lambda arguments: _json({}),
            "/raftz": self._raftz,
            "/whyz": self._whyz,
            "/declaredz": self._declaredz,
            "/metrics": self._metrics,
            "/debug/vars": lambda arguments: text_response(404, "not supported yet"),
            "/stacksz": lambda arguments: text_response(404, "not supported yet"),
        }
        self._views["/subscriptionsz"] = self._views["/subsz"]

    def answer(self, target: str, posted: Posted | None = None) -> Generator[Any, None, Response]:
        """Return the response to a request for `target`; yield between steps.

        If a step yields a future, the caller must wait for it. `posted` is the request if its method is POST,
        otherwise None; only the actions of the dashboard distinguish POST from GET.
        """
        path, query = split_target(target, self._base)
        if isinstance(path, Response):
            return path
        if is_of_dashboard(path):
            return (yield from self._of_dashboard(path, query, posted))
        view = self._views.get(path)
        if view is None:
            return NOT_FOUND
        if path not in UNCOUNTED:
            self._monitored.count_request("/subsz" if path == "/subscriptionsz" else path)
        try:
            found = view(Arguments(query))
            return found if isinstance(found, Response) else (yield from found)
        except BadArgument as error:
            return text_response(400, str(error))

    def _of_dashboard(self, path: str, query: str, posted: Posted | None) -> Generator[Any, None, Response]:
        if path.endswith("/"):
            return redirect(
                self._base + path.rstrip("/"), query
            )  # the links of the page are relative to its path
        try:
            return (yield from self._dashboard.answer(path, Arguments(query), posted)) or NOT_FOUND
        except BadArgument as error:
            return text_response(400, str(error))

    def _root(self, arguments: Arguments) -> Response:
        return Response(200, root_page(self._base, has_groups(self._monitored)), HTML_HEADERS)

    def _varz(self, arguments: Arguments) -> Response:
        answer = varz(self._monitored, self._clock.now_ns())
        # as in nats-server, values other than booleans are accepted and mean false
        if arguments.text("config") in TRUE:
            answer["config"] = settings(self._monitored.options)
        return _json(answer)

    def _connz(self, arguments: Arguments) -> Generator[None, None, Response]:
        return _json((yield from connz(self._monitored, connz_options(arguments), self._clock.now_ns())))

    def _subsz(self, arguments: Arguments) -> Generator[None, None, Response]:
        answer, page = yield from subsz(self._monitored, arguments, self._clock.now_ns())
        if not page:
            return _json(answer)
        body, *rest = pretty_pieces(answer, "subscriptions_list", page)
        return Response(200, body, rest=tuple(rest))

    def _jsz(self, arguments: Arguments) -> Generator[None, None, Response]:
        try:
            return _json((yield from jsz(self._monitored, jsz_options(arguments), self._clock.now_ns())))
        except NotLeader as error:
            return text_response(400, str(error))

    def _metrics(self, arguments: Arguments) -> Generator[None, None, Response]:
        body, *rest = yield from metrics(self._monitored, arguments, self._clock.now_ns())
        return Response(200, body, (("Content-Type", CONTENT_TYPE),), tuple(rest))

    def _whyz(self, arguments: Arguments) -> Generator[None, None, Response]:
        return _json((yield from whyz(self._monitored, wanted_by(arguments), self._clock.now_ns())))

    def _declaredz(self, arguments: Arguments) -> Generator[None, None, Response]:
        return _json((yield from declaredz(self._monitored, arguments, self._clock.now_ns())))

    def _raftz(self, arguments: Arguments) -> Generator[None, None, Response]:
        if not has_groups(self._monitored):
            return text_response(404, NO_NODES)
        return _json((yield from raftz(self._monitored, arguments.text("acc"), arguments.text("group"))))

    def _healthz(self, arguments: Arguments) -> Generator[None, None, Response]:
        status, body = yield from healthz(self._monitored, arguments)
        if "error" in body:
            self._log.warn(f"Healthcheck failed: {quoted(str(body['error']))}")
        elif status != 200:
            self._log.warn("Healthcheck failed: 1 errors")
        return Response(status, compact_json(body))

    def _alone(self, fields: JsonDict) -> Response:
        """Return a response with `fields` about gateways or leaf nodes, which this server does not have."""
        head: JsonDict = {"server_id": self._monitored.node.server_id}
        return _json(head | {"now": time_text(self._clock.now_ns())} | fields)

    def _routez(self, arguments: Arguments) -> Generator[None, None, Response]:
        return _json((yield from routez(self._monitored, arguments, self._clock.now_ns())))

    def _gatewayz(self, arguments: Arguments) -> Response:
        arguments.flag("accs")
        return self._alone({"outbound_gateways": {}, "inbound_gateways": {}})

    def _leafz(self, arguments: Arguments) -> Response:
        arguments.flag("subs")
        return self._alone({"leafnodes": 0, "leafs": []})


def _json(value: JsonDict) -> Response:
    return Response(200, pretty_json(value))


def split_target(target: str, base: str) -> tuple[str | Response, str]:
    """Return (path below `base`, query) of a request target.

    If the path must be redirected, or is not below `base`, return (Response, query).
    """
    path, _, query = target.partition("?")
    if path.startswith("/") and path != cleaned(path):
        return redirect(path, query), query
    if base and path != base and not path.startswith(base + "/"):
        return NOT_FOUND, query
    return path[len(base) :] or "/" if base else path, query


def redirect(path: str, query: str) -> Response:
    """Return a redirect to the cleaned `path`, which never leads to another host."""
    target = cleaned(path) + (f"?{query}" if query else "")
    where = quote(target.encode("latin-1", "replace"), safe=UNQUOTED)
    body = f'<a href="{escape(where)}">Temporary Redirect</a>.\n\n'.encode()
    return Response(307, body, (*HTML_HEADERS, ("Location", where)))


def cleaned(path: str) -> str:
    """Return `path` with its empty, `.` and `..` segments resolved; a final slash remains."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts) + ("/" if parts and path.endswith("/") else "")

"""The monitoring pages of a server with workers, combined from the pages of all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from pyjs.base.gotext import time_text, uptime_text
from pyjs.monitor.arguments import INT64_MAX, TRUE, Arguments, BadArgument
from pyjs.monitor.connz import LIMIT
from pyjs.monitor.dashboard.views import is_of_dashboard
from pyjs.monitor.json_text import compact_json, number, pretty_json
from pyjs.monitor.own.exposition import CONTENT_TYPE
from pyjs.monitor.own.metrics import prefix_in
from pyjs.monitor.own.whyz import wanted_by
from pyjs.monitor.response import HTML_HEADERS, JSON_HEADERS, Response, text_response
from pyjs.monitor.root import root_page
from pyjs.monitor.router import NOT_FOUND, UNCOUNTED, split_target
from pyjs.monitor.settings import settings
from pyjs.server.workers import metrics, sums
from pyjs.server.workers.process import State

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

    from pyjs.monitor.dashboard.posted import Posted
    from pyjs.monitor.state import ProcessStats
    from pyjs.server.workers.process import Page
    from pyjs.server.workers.supervisor import Supervisor

    Steps = Generator[asyncio.Future[Page | None] | None, None, Response]
    Pages = Generator[asyncio.Future[Page | None] | None, None, list[Page | None]]

ADDED = ("/varz", "/connz", "/subsz", "/accountz", "/accstatz")
OF_THE_FIRST = (
    "/jsz",
    "/declaredz",
    "/gatewayz",
    "/leafz",
    "/ipqueuesz",
    "/raftz",
    "/debug/vars",
    "/stacksz",
)
NOT_HERE = 404  # of a health page: this worker does not have the stream
NOT_ALL = "not all workers are ready"


class WorkersRouter:
    """The monitoring pages of a server with workers."""

    def __init__(self, supervisor: Supervisor, process: ProcessStats) -> None:
        self._supervisor = supervisor
        self._process = process
        base = supervisor.options.monitoring.base_path.strip("/")
        self._base = f"/{base}" if base else ""
        self._counts: dict[str, int] = {}

    def answer(self, target: str, posted: Posted | None = None) -> Steps:
        """Compose the response to a request for `target`, in steps that wait for the workers.

        A POST is answered like GET.
        """
        path, query = split_target(target, self._base)
        if isinstance(path, Response):
            return path
        path = "/subsz" if path == "/subscriptionsz" else path
        view = self._view(path)
        if is_of_dashboard(path):
            return text_response(404, f"{path} is not served with workers")
        if view is None:
            return NOT_FOUND
        if path not in UNCOUNTED:
            self._counts[path] = self._counts.get(path, 0) + 1
        return (yield from view(path, query))

    def _view(self, path: str) -> Callable[[str, str], Steps] | None:
        if path == "/":
            return self._root
        if path == "/healthz":
            return self._healthz
        if path == "/routez":
            return self._routez
        if path in ADDED:
            return self._added
        if path == "/metrics":
            return self._metrics
        if path == "/whyz":
            return self._whyz
        if path == "/jsz" and self._supervisor.options.jetstream.spread_workers:
            return self._jsz
        return self._first if path in OF_THE_FIRST else None

    # -- pages -----------------------------------------------------------------------------------------------------
    def _root(self, path: str, query: str) -> Steps:
        yield from ()
        return Response(200, root_page(self._base, has_workers=True), HTML_HEADERS)

    def _routez(self, path: str, query: str) -> Steps:
        """Answer /routez without routes, since routes between workers are not shown."""
        yield from ()
        now = time_text(self._supervisor.clock.now_ns())
        head = {"server_id": self._supervisor.server_id, "server_name": self._supervisor.server_name}
        return _json(head | {"now": now, "num_routes": 0, "routes": []})

    def _healthz(self, path: str, query: str) -> Steps:
        """Answer with the first problem that a worker reports, or with the page of a healthy worker.

        If streams are spread over the workers, and the request names an account, only workers that have the requested
        object are considered. If there are none, the worker that comes closest answers.
        """
        supervisor = self._supervisor
        pages = yield from self._ask(f"{path}?{query}")
        found = list(zip(supervisor.workers, pages, strict=True))
        if supervisor.options.jetstream.spread_workers and Arguments(query).text("account"):
            known = [(worker, page) for worker, page in found if page is None or page.status != NOT_HERE]
            found = known or [max(found, key=lambda each: _closeness(each[1]))]
        for worker, page in found:
            if page is None:
                error = f"{worker} is not ready for connections"
                return Response(503, compact_json({"status": "unavailable", "error": error}))
            if page.status != 200:
                return _passed_on(page)
        assert found[0][1] is not None
        return _passed_on(found[0][1])

    def _jsz(self, path: str, query: str) -> Steps:
        """Combine the pages of workers that share the streams."""
        pages = [page for page in (yield from self._ask(f"{path}?{query}")) if page is not None]
        if not pages:
            return text_response(503, NOT_ALL)
        for page in pages:
            if page.status != 200 or page.headers != JSON_HEADERS:
                return _passed_on(page)
        return _json(self._named(sums.jsz([orjson.loads(page.body) for page in pages])))

    def _first(self, path: str, query: str) -> Steps:
        """Answer with the page of the first worker."""
        worker = self._supervisor.workers[0]
        asked = worker.ask_page(f"{path}?{query}")
        yield asked
        page = asked.result()
        if page is None:
            return text_response(503, f"{worker} is not ready")
        if page.status != 200 or page.headers != JSON_HEADERS:
            return _passed_on(page)
        return _json(self._named(orjson.loads(page.body)))

    def _added(self, path: str, query: str) -> Steps:
        """Combine the pages of all workers that answer."""
        arguments = Arguments(query)
        try:
            offset = max(arguments.integer("offset"), 0)
            limit = arguments.integer("limit")
        except BadArgument as error:
            return text_response(400, str(error))
        limit = limit if limit > 0 else LIMIT
        if path in (
            "/connz",
            "/subsz",
        ):  # each worker shows up to the total limit; of entries with the same name, the first is used
            query = f"offset=0&limit={offset + limit}&{query}"
        pages = [page for page in (yield from self._ask(f"{path}?{query}")) if page is not None]
        if not pages:
            return text_response(503, NOT_ALL)
        for page in pages:
            if page.status != 200:
                return _passed_on(page)
        found = [orjson.loads(page.body) for page in pages]
        if path == "/varz":
            return _json(self._varz(found, arguments))
        if path == "/connz":
            limit = 1 if arguments.text("cid") else limit
            answer = sums.connz(found, arguments.text("sort") or "cid", offset, limit)
        elif path == "/subsz":
            answer = sums.subsz(found, offset, limit)
        else:
            answer = sums.accountz(found) if path == "/accountz" else sums.accstatz(found)
        return _json(self._named(answer))

    def _metrics(self, path: str, query: str) -> Steps:
        """Combine the pages of all workers that answer."""
        try:
            prefix = prefix_in(Arguments(query))
        except BadArgument as error:
            return text_response(400, str(error))
        pages: dict[str, Any] = {}
        views = {"varz": self._added, "subsz": self._added, "routez": self._routez, "healthz": self._healthz}
        health = 200
        for name, view in views.items():
            answer = yield from view(f"/{name}", "")
            if answer.status != 200 and name != "healthz":
                return answer
            pages[name], health = orjson.loads(answer.body), answer.status
        texts = []
        asked = yield from self._ask(f"{path}?{query}")
        for worker, page in zip(self._supervisor.workers, asked, strict=True):
            if page is not None and page.status != 200:
                return _passed_on(page)
            if page is not None:
                texts.append((worker.worker.number, page.body))
        server = metrics.server_page(self._supervisor.server_name, prefix, pages, health)
        body, *rest = yield from metrics.combined(server, prefix, texts)
        return Response(200, body, (("Content-Type", CONTENT_TYPE),), tuple(rest))

    def _whyz(self, path: str, query: str) -> Steps:
        """Combine the reports of all workers that answer.

        For a request about one stream, answer with the report of the worker that has the stream.
        """
        try:
            wanted = wanted_by(Arguments(query))
        except BadArgument as error:
            return text_response(400, str(error))
        query = f"offset=0&limit={min(wanted.offset + wanted.limit, INT64_MAX)}&{query}"
        pages = [page for page in (yield from self._ask(f"{path}?{query}")) if page is not None]
        if not pages:
            return text_response(503, NOT_ALL)
        found = [orjson.loads(page.body) for page in pages if page.status == 200]
        if not found:  # of all refusals, show that of the worker that has the stream
            return _passed_on(max(pages, key=lambda page: b"has no consumer" in page.body))
        if wanted.stream:
            return _json(self._named(found[0]))
        return _json(self._named(sums.whyz(found, wanted.offset, wanted.limit)))

    # -- parts -----------------------------------------------------------------------------------------------------
    def _ask(self, target: str) -> Pages:
        """Request the page from each worker; return the pages, with None for each worker that does not answer."""
        asked = [worker.ask_page(target) for worker in self._supervisor.workers]
        yield from asked
        return [each.result() for each in asked]

    def _named(self, page: dict[str, Any]) -> dict[str, Any]:
        """Return a page with the id of the server instead of that of a worker."""
        return page | ({"server_id": self._supervisor.server_id} if page.get("server_id") else {})

    def _varz(self, pages: list[dict[str, Any]], arguments: Arguments) -> dict[str, Any]:
        supervisor, options = self._supervisor, self._supervisor.options
        now_ns = supervisor.clock.now_ns()
        answer = self._named(sums.varz(pages))
        answer["server_name"] = supervisor.server_name
        answer["start"] = time_text(supervisor.started_ns)
        answer["uptime"] = uptime_text(now_ns - supervisor.started_ns)
        answer["mem"] += self._process.memory_size()
        answer["cpu"] = number(round(answer["cpu"] + self._process.cpu_percent(now_ns), 1))
        answer["http_host"] = options.monitoring.host or options.host
        answer["http_port"], answer["https_port"] = (
            options.monitoring.http_port,
            options.monitoring.https_port,
        )
        answer["http_base_path"] = options.monitoring.base_path
        answer["http_req_stats"] = {path: self._counts[path] for path in sorted(self._counts)}
        answer["pyjs_workers"] = [self._worker(number, pages) for number in range(len(supervisor.workers))]
        if arguments.text("config") in TRUE:
            answer["config"] = settings(options)
        return answer

    def _worker(self, at: int, pages: list[dict[str, Any]]) -> dict[str, Any]:
        worker = self._supervisor.workers[at]
        shown: dict[str, Any] = {
            "number": worker.worker.number,
            "state": worker.state.name.lower(),
            "pid": worker.pid,
            "restarts": worker.restarts,
        }
        page = next((page for page in pages if page["server_id"] == worker.server_id), None)
        if worker.state is State.READY and page is not None:
            shown |= {name: page[name] for name in ("server_id", "server_name", "connections", "cpu", "mem")}
        return shown


def _closeness(page: Page | None) -> int:
    """Return how close a worker comes to having the requested object, from 0 to 2.

    The worker's health page names the object that is missing. The result is 2 if this is the consumer, 1 if it is the
    stream, and otherwise 0.
    """
    body = b"" if page is None else page.body
    return 2 * (b"JetStream consumer " in body) + (b"JetStream stream " in body)


def _json(value: dict[str, Any]) -> Response:
    return Response(200, pretty_json(value))


def _passed_on(page: Page) -> Response:
    return Response(page.status, page.body, page.headers)

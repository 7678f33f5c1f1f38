"""The request that starts or stops the trace of one connection: `$SYS.REQ.SERVER.<id>.PYJS.TRACE`.

The body is `{"cid": 7, "seconds": 60, "lines": 1000, "payload_size": 256}`, or `{"cid": 7, "stop": true}`; only `cid`
is required. The lines go to the log of the server (server/trace.py).

nats-server has no such request. Source: tests/unit/system_account/test_trace.py, tests/system/test_trace.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError
from pyjs.core.link import TraceLimits
from pyjs.jetstream.config.json_strict import BOOL, INT, UINT64, JsonFault, Struct, decode

if TYPE_CHECKING:
    from pyjs.monitor.json_text import JsonDict
    from pyjs.node import Node

TRACE = Struct(
    "ConnectionTraceRequest",
    {"cid": UINT64, "seconds": INT, "lines": INT, "payload_size": INT, "stop": BOOL},
)
# (default, maximum); the minimum is 1. 10,000 lines take about 0.1 s to write.
SECONDS, LINES, PAYLOAD_SIZE = (60, 3600), (1000, 10_000), (256, 65_536)
TRACED_MAX = 16  # connections traced at a time


class TraceRefused(PyjsError):
    """Raised to refuse a request for a trace; `code` is like an HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def trace(node: Node, body: bytes) -> JsonDict:
    """Start or stop the trace of a connection, as requested; return the data of the answer.

    Raises:
        TraceRefused: the request is invalid, or the connection cannot be traced.
    """
    try:
        given = decode(body or b"{}", TRACE)
    except JsonFault as error:
        raise TraceRefused(400, f"invalid JSON: {error}") from None
    if not given.get("cid"):
        raise TraceRefused(400, 'the request needs "cid", the id of a connection in CONNZ: {"cid": 7}')
    cid = given["cid"]
    session = node.sessions.get(cid)
    if session is None:
        raise TraceRefused(404, _missing(node, cid))
    if given.get("stop"):
        return {"cid": cid, "tracing": False, "was_tracing": session.link.stop_trace()}
    limits = TraceLimits(
        _bounded(given, "seconds", *SECONDS),
        _bounded(given, "lines", *LINES),
        _bounded(
            given, "payload_size", node.options.log.max_traced_msg_len or PAYLOAD_SIZE[0], PAYLOAD_SIZE[1]
        ),
    )
    if node.log.trace_on:
        raise TraceRefused(
            409, "every connection is traced already: the server runs with -V or `trace: true`"
        )
    others = sum(each.link.is_traced for each in node.sessions.values() if each is not session)
    if others >= TRACED_MAX:
        raise TraceRefused(429, f"{TRACED_MAX} connections are traced already: stop one of them first")
    if not session.link.start_trace(limits):
        raise TraceRefused(501, f"connection {cid} is inside the process of the server and cannot be traced")
    return {"cid": cid, "tracing": True, **limits._asdict()}


def _bounded(given: dict[str, int], name: str, default: int, most: int) -> int:
    value = given.get(name, min(default, most))
    if not 1 <= value <= most:
        raise TraceRefused(400, f"{name} is {value}; it must be 1 to {most:,}")
    return value


def _missing(node: Node, cid: int) -> str:
    if node.was_opened(cid):
        return f'connection {cid} is closed: CONNZ with "state": 1 shows when and why'
    text = f"{node.server_name} has no connection {cid}: CONNZ lists the ids"
    if node.options.worker is not None:
        return f"{text}; each worker has its own connections, so ask the others"
    if node.cluster is not None:
        return f"{text}; each server of a cluster has its own connections, so ask the others"
    return text

"""Latency samples of services: the durations of requests, published in the account of the service.

A request is measured at random, or because it has a tracing header. Its sample is sent with the first response. If no
response arrives, the sample states the reason. Not compiled, since few requests are measured.

Source: nats.docs "Service Latency"; behaviour of nats-server 2.15.1
(tests/conformance/test_account_exchange.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.gotext import time_text
from pyjs.base.nuid import nuid
from pyjs.core.exchange.info import Describer, compact
from pyjs.core.sink import Request

if TYPE_CHECKING:
    from pyjs.config.exchange.declared import Latency
    from pyjs.core.account import Account
    from pyjs.core.host import Host
    from pyjs.core.session import ClientSession

SAMPLE_TYPE = "io.nats.server.metric.v1.service_latency"
STATUS = {
    400: "Bad Request",  # the request has no reply subject
    408: "Request Timeout",  # the client has stopped waiting
    503: "Service Unavailable",
    504: "Service Timeout",
}
HEADERS_MAX = 64  # header fields that are read; the rest are ignored


@dataclass(slots=True)
class Tracked:
    """A measured request, whose latency sample is sent with the first response."""

    requestor: ClientSession | None
    headers: dict[str, list[str]]  # the tracing headers that caused the measurement
    share: bool
    started_at_ns: int
    done: bool = False
    reply: bytes = b""


class Meter:
    """The source of latency samples for the requests to one service of `account`."""

    def __init__(self, host: Host, account: Account, declared: Latency, server: str) -> None:
        self._host = host
        self._account = account
        self._declared = declared
        self._short = Describer(server, share=False, to_system=False)
        self._full = Describer(server, share=True, to_system=False)

    def begin(
        self, session: ClientSession | None, headers: bytes, share: bool, has_reply: bool
    ) -> Tracked | None:
        """Decide whether to measure a new request; return the measured request, or None if it is not measured.

        If a request that is measured has no reply subject, send its sample with status 400 at once, and return None.
        """
        asked = self._wanted(headers)
        if asked is None:
            return None
        tracked = Tracked(session, asked, share, self._host.turn_state.now)
        if has_reply:
            return tracked
        self._send(tracked, 400)
        return None

    def _wanted(self, headers: bytes) -> dict[str, list[str]] | None:
        sampling = self._declared.sampling
        if sampling >= 100 or (sampling > 0 and self._host.rng.below(100) <= sampling):
            return {}
        return asking_headers(headers) if headers else None

    def answered(self, tracked: Tracked, responder: ClientSession | None) -> None:
        """Send the sample of a request; called at the first response to that request."""
        requestor = self._described(tracked)
        answering = {} if responder is None else self._full.fields(responder)
        took_ns = self._host.turn_state.now - tracked.started_at_ns
        asking_rtt, answering_rtt = _rtt(requestor), _rtt(answering)
        self._publish(
            tracked,
            {"status": 200, "requestor": requestor, "responder": answering},
            {"service": max(0, took_ns - answering_rtt), "system": 0, "total": asking_rtt + took_ns},
        )

    def ended(self, tracked: Tracked, status: int) -> None:
        """Send the sample of a request that ended without a response; send none if `status` is 0."""
        if status and not tracked.done:
            self._send(tracked, status)

    def _send(self, tracked: Tracked, status: int) -> None:
        fields = {"status": status, "description": STATUS[status], "requestor": self._described(tracked)}
        self._publish(tracked, fields, {"service": 0, "system": 0, "total": 0})

    def _described(self, tracked: Tracked) -> dict[str, object]:
        describer = self._full if tracked.share else self._short
        return {} if tracked.requestor is None else describer.fields(tracked.requestor)

    def _publish(self, tracked: Tracked, what: dict[str, object], times: dict[str, int]) -> None:
        tracked.done = True
        turn = self._host.turn_state
        start_ns = tracked.started_at_ns - _rtt(what["requestor"])
        event: dict[str, object] = {
            "type": SAMPLE_TYPE,
            "id": nuid(self._host.rng),
            "timestamp": time_text(turn.now),
            **{name: value for name, value in what.items() if value},
        }
        if tracked.headers:
            event["header"] = tracked.headers
        payload = compact(event | {"start": time_text(start_ns)} | times)
        # Sent later in the turn, since this code runs in the middle of a delivery.
        subject = self._declared.subject.encode()
        turn.requests.append(Request(partial(self._deliver, subject, payload), subject))

    def _deliver(self, subject: bytes, payload: bytes, request: Request) -> None:
        self._account.send(subject, payload)


def _rtt(fields: object) -> int:
    rtt = fields.get("rtt", 0) if isinstance(fields, dict) else 0
    return rtt if isinstance(rtt, int) else 0


# -- headers that ask for a sample ---------------------------------------------------------------------------


def parse_headers(block: bytes) -> dict[str, list[str]]:
    """Return the values of the first HEADERS_MAX fields of a header block, by canonical name."""
    fields: dict[str, list[str]] = {}
    for line in block.split(b"\r\n")[1 : HEADERS_MAX + 1]:
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        if colon:
            fields.setdefault("-".join(part.capitalize() for part in name.split("-")), []).append(
                value.strip()
            )
    return fields


def asking_headers(block: bytes) -> dict[str, list[str]] | None:
    """Return the tracing headers that request a sample, or None if the headers do not request one."""
    fields = parse_headers(block)
    if fields.get("Uber-Trace-Id"):
        return _of_uber(fields)
    sampled = fields.get("X-B3-Sampled", [""])[0]
    if sampled == "0":
        return None
    if sampled == "1" or "X-B3-Traceid" in fields:
        return _only(fields, "X-B3-Sampled", "X-B3-Traceid", "X-B3-Parentspanid", "X-B3-Spanid")
    if fields.get("B3"):
        parts = fields["B3"][0].split("-")
        denied = parts == ["0"] or (len(parts) > 2 and parts[2] == "0")
        return None if denied else _only(fields, "B3")
    if fields.get("Traceparent"):
        return _of_traceparent(fields)
    return None


def _only(fields: dict[str, list[str]], *names: str) -> dict[str, list[str]]:
    return {name: fields[name] for name in names if name in fields}


def _of_uber(fields: dict[str, list[str]]) -> dict[str, list[str]] | None:
    parts = fields["Uber-Trace-Id"][0].split(":")
    if len(parts) != 4 or not 1 <= len(parts[3]) <= 2 or not _odd_hex(parts[3]):
        return None
    return _only(fields, "Uber-Trace-Id", *(name for name in fields if name.startswith("Uberctx-")))


def _of_traceparent(fields: dict[str, list[str]]) -> dict[str, list[str]] | None:
    parts = fields["Traceparent"][0].split("-")
    # nats-server reads the flags as a signed byte.
    if len(parts) != 4 or len(parts[3]) != 2 or not _odd_hex(parts[3]) or int(parts[3], 16) > 127:
        return None
    return _only(fields, "Traceparent", "Tracestate")


def _odd_hex(text: str) -> bool:
    return all(char in "0123456789abcdefABCDEF" for char in text) and int(text, 16) % 2 == 1

"""The request that traces one connection: its bounds, and the connections that it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.system_account.test_requests import HOSTILE, Served

from pyjs.base.log import ListLog
from pyjs.core.link import Peer, TraceLimits
from pyjs.core.session import ClientSession
from pyjs.system_account.trace import TRACED_MAX
from pyjs.testing.node import MemoryLink


class TraceLink(MemoryLink):
    """A link that can be traced."""

    limits: TraceLimits | None = None

    @property
    def is_traced(self) -> bool:
        return self.limits is not None

    def start_trace(self, limits: TraceLimits) -> bool:
        self.limits = limits
        return True

    def stop_trace(self) -> bool:
        was, self.limits = self.limits, None
        return was is not None


class Traceable(Served):
    """A node, and requests for traces of its clients."""

    def trace(self, body: dict[str, object] | bytes) -> Any:
        """Return the data or the error of the answer."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.ask(f"SERVER.{self.node.server_id}.PYJS.TRACE", text)
        return answer.get("data") or answer.get("error")

    def traceable(self) -> tuple[ClientSession, TraceLink]:
        """Return a session and its link, which can be traced."""
        link = TraceLink()
        return self.node.open_session(Peer("127.0.0.1", 50001), link), link


@pytest.fixture
def served() -> Traceable:
    return Traceable()


def test_a_trace_has_limits_whatever_the_request_says(served: Traceable) -> None:
    session, link = served.traceable()
    cid = session.cid

    answer = served.trace({"cid": cid})

    assert answer == {"cid": cid, "tracing": True, "seconds": 60, "lines": 1000, "payload_size": 256}
    assert link.limits == TraceLimits(60, 1000, 256)


def test_the_shown_part_of_payloads_is_that_of_the_configuration(served: Traceable) -> None:
    session, link = served.traceable()
    served.node.options.log.max_traced_msg_len = 12

    served.trace({"cid": session.cid, "seconds": 5, "lines": 7})

    assert link.limits == TraceLimits(5, 7, 12)


def test_a_trace_is_stopped(served: Traceable) -> None:
    session, link = served.traceable()
    cid = session.cid
    served.trace({"cid": cid})

    assert served.trace({"cid": cid, "stop": True}) == {"cid": cid, "tracing": False, "was_tracing": True}
    assert served.trace({"cid": cid, "stop": True}) == {"cid": cid, "tracing": False, "was_tracing": False}
    assert not link.is_traced


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"", 400, 'the request needs "cid", the id of a connection in CONNZ: {"cid": 7}'),
        (b'{"cid":0}', 400, 'the request needs "cid", the id of a connection in CONNZ: {"cid": 7}'),
        (b"{cid", 400, "invalid JSON: "),
        (b'{"cid":1,"secs":5}', 400, 'invalid JSON: json: unknown field "secs"'),
        (b'{"cid":999}', 404, " has no connection 999: CONNZ lists the ids"),
        (
            b'{"cid":18446744073709551615}',
            404,
            " has no connection 18446744073709551615: CONNZ lists the ids",
        ),
        (b'{"cid":%d,"seconds":0}', 400, "seconds is 0; it must be 1 to 3,600"),
        (b'{"cid":%d,"seconds":3601}', 400, "seconds is 3601; it must be 1 to 3,600"),
        (b'{"cid":%d,"lines":10001}', 400, "lines is 10001; it must be 1 to 10,000"),
        (b'{"cid":%d,"payload_size":-1}', 400, "payload_size is -1; it must be 1 to 65,536"),
        (
            b'{"cid":%d,"lines":9223372036854775807}',
            400,
            "lines is 9223372036854775807; it must be 1 to 10,000",
        ),
    ],
)
def test_a_wrong_request_is_refused(served: Traceable, body: bytes, code: int, text: str) -> None:
    session, link = served.traceable()

    error = served.trace(body.replace(b"%d", b"%d" % session.cid))

    assert error["code"] == code
    assert text in error["description"]
    assert not link.is_traced


def test_a_closed_connection_is_told_from_an_unknown_one(served: Traceable) -> None:
    session, _ = served.traceable()
    cid = session.cid
    session.close("Client Closed")

    error = served.trace({"cid": cid})

    assert error["code"] == 404
    assert error["description"] == f'connection {cid} is closed: CONNZ with "state": 1 shows when and why'


def test_a_connection_without_a_socket_is_not_traced(served: Traceable) -> None:
    cid = served.asked.session.cid

    error = served.trace({"cid": cid})

    assert error["code"] == 501
    assert (
        error["description"] == f"connection {cid} is inside the process of the server and cannot be traced"
    )


def test_where_all_are_traced_one_more_trace_is_refused(served: Traceable) -> None:
    session, link = served.traceable()
    served.node.log = log = ListLog()
    log.trace_on = True

    error = served.trace({"cid": session.cid})

    assert error["code"] == 409
    assert (
        error["description"] == "every connection is traced already: the server runs with -V or `trace: true`"
    )
    assert not link.is_traced


def test_few_connections_are_traced_at_a_time(served: Traceable) -> None:
    ids = [served.traceable()[0].cid for _ in range(TRACED_MAX + 1)]
    for cid in ids[:-1]:
        assert served.trace({"cid": cid})["tracing"]

    assert served.trace({"cid": ids[-1]})["code"] == 429
    assert served.trace({"cid": ids[0]})["tracing"]  # the same one again takes no more

    served.trace({"cid": ids[0], "stop": True})
    assert served.trace({"cid": ids[-1]})["tracing"]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_body_is_answered(served: Traceable, body: bytes) -> None:
    assert served.trace(body)["code"] in (400, 404)
    assert served.node.faults.counts == {}

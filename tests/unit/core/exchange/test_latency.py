"""Latency samples: the requests that are measured, and the contents of their samples."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pyjs.config.load import load_options
from pyjs.core.exchange.latency import HEADERS_MAX, STATUS, asking_headers, parse_headers
from pyjs.testing import CONNECT, RawClient, VirtualNode


def block(*lines: str) -> bytes:
    return "\r\n".join(("NATS/1.0", *lines, "", "")).encode()


# -- headers that ask for a sample -------------------------------------------------------------------------------
B3 = {"X-B3-Traceid": ["1"], "X-B3-Sampled": ["1"]}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
ASKING: list[tuple[tuple[str, ...], dict[str, list[str]] | None]] = [
    ((), None),
    (("A: b",), None),
    (("X-B3-Sampled: 1",), {"X-B3-Sampled": ["1"]}),
    (("x-b3-sampled: 1", "x-b3-traceid: 1", "A: b"), {"X-B3-Sampled": ["1"], "X-B3-Traceid": ["1"]}),
    (("X-B3-TraceId: 1",), {"X-B3-Traceid": ["1"]}),
    (("X-B3-Sampled: 0", "X-B3-TraceId: 1"), None),
    (("B3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1",), None),  # compared below
    (("B3: 0",), None),
    (("B3: a-b-0",), None),
    (("B3: 1",), {"B3": ["1"]}),
    ((f"traceparent: {TRACE}01",), {"Traceparent": [f"{TRACE}01"]}),
    (
        (f"Traceparent: {TRACE}01", "Tracestate: a=b"),
        {"Traceparent": [f"{TRACE}01"], "Tracestate": ["a=b"]},
    ),
    ((f"Traceparent: {TRACE}00",), None),
    ((f"Traceparent: {TRACE}81",), None),  # nats-server reads this as a negative byte
    ((f"Traceparent: {TRACE}7f",), {"Traceparent": [f"{TRACE}7f"]}),
    ((f"Traceparent: {TRACE}1",), None),
    (("Traceparent: 00-a-b",), None),
    ((f"Traceparent: {TRACE}0x",), None),
    (("Uber-Trace-Id: 1:2:3:1",), {"Uber-Trace-Id": ["1:2:3:1"]}),
    (
        ("Uber-Trace-Id: 1:2:3:1", "Uberctx-A: x", "Uberctx-B: y"),
        {"Uber-Trace-Id": ["1:2:3:1"], "Uberctx-A": ["x"], "Uberctx-B": ["y"]},
    ),
    (("Uber-Trace-Id: 1:2:3:2",), None),
    (("Uber-Trace-Id: 1:2:3",), None),
    (("Uber-Trace-Id: 1:2:3:", "X-B3-Sampled: 1"), None),
    (("Uber-Trace-Id: 1:2:3:111",), None),
    (("Uber-Trace-Id: 1:2:3:g",), None),
]


@pytest.mark.parametrize(("lines", "fields"), ASKING)
def test_headers_of_tracing_ask_for_a_sample(
    lines: tuple[str, ...], fields: dict[str, list[str]] | None
) -> None:
    if lines and lines[0].startswith("B3: 80"):
        fields = {"B3": [lines[0].removeprefix("B3: ")]}
    assert asking_headers(block(*lines)) == fields


def test_only_the_first_fields_are_looked_at() -> None:
    late = [f"A{at}: x" for at in range(HEADERS_MAX)] + ["X-B3-Sampled: 1"]
    assert asking_headers(block(*late)) is None
    assert asking_headers(block(*late[1:])) == {"X-B3-Sampled": ["1"]}


def test_fields_have_canonical_names_and_all_their_values() -> None:
    given = b"NATS/1.0\r\nx-b3-traceid:  1 \r\nX-B3-TRACEID: 2\r\nno field\r\n: empty\r\nA: \xff\r\n\r\n"
    assert parse_headers(given) == {"X-B3-Traceid": ["1", "2"], "": ["empty"], "A": ["\ufffd"]}


# -- samples -----------------------------------------------------------------------------------------------------
CONFIG = """
accounts {
    S {
        users: [{user: s, password: pw}]
        exports: [{service: help, response_threshold: "10s", latency: {sampling: %s, subject: took}}]
    }
    U { users: [{user: u, password: pw}], imports: [{service: {account: S, subject: help}, share: %s}] }
}
"""


class Scene:
    """A service in account S whose latency is measured, and a client in account U."""

    def __init__(self, sampling: str = "100%", share: str = "false") -> None:
        text = CONFIG % (sampling, share)
        self.fixture = VirtualNode(load_options("server.conf", lambda path: text, {}, {}))
        self.service, self.client = self.user("s"), self.user("u")
        self.service.send(b"SUB help 1\r\nSUB took 2\r\n")
        self.client.send(b"SUB inbox 1\r\n")

    def user(self, name: str) -> RawClient:
        return self.fixture.client(CONNECT[:-1] + b',"user":"%b","pass":"pw"}' % name.encode())

    def ask(self, headers: bytes = b"", reply: bytes = b"inbox") -> bytes:
        """Send a request; return the token that the service received, or b"" if there was none."""
        size = len(headers)
        verb = b"HPUB help %b %d %d" % (reply, size, size + 2) if headers else b"PUB help %b 2" % reply
        self.client.send(verb + b"\r\n%bhi\r\n" % headers)
        self.got = self.service.take()
        found = re.findall(rb"_R_\.[\w.]+", self.got)
        return bytes(found[0]) if found else b""

    def answer(self, token: bytes) -> None:
        self.service.send(b"PUB %b 2\r\nok\r\n" % token)

    def samples(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in re.findall(rb"\r\n(\{.*\})\r\n", self.got + self.service.take())]


def test_a_sample_has_the_time_from_the_request_to_its_first_response() -> None:
    scene = Scene()
    token = scene.ask()
    scene.fixture.advance(milliseconds=30)
    scene.answer(token)
    (sample,) = scene.samples()
    assert (sample["status"], sample["system"]) == (200, 0)
    took_ns = 30_000_000
    assert (
        took_ns - 10 <= sample["service"] <= took_ns <= sample["total"] <= took_ns + 10
    )  # a round trip takes 1 ns
    assert sample["type"] == "io.nats.server.metric.v1.service_latency"
    assert sample["requestor"] == {"acc": "U", "rtt": 1}
    assert (sample["responder"]["acc"], sample["responder"]["user"]) == ("S", "s")


def test_an_import_that_shares_names_the_requestor() -> None:
    scene = Scene(share="true")
    scene.answer(scene.ask())
    (sample,) = scene.samples()
    assert (sample["requestor"]["user"], sample["requestor"]["host"]) == ("u", "127.0.0.1")
    assert "pw" not in json.dumps(sample)


def test_a_request_that_nobody_answers_is_a_timeout_after_the_threshold() -> None:
    scene = Scene()
    scene.ask()
    scene.fixture.advance(seconds=9)
    assert scene.samples() == []
    scene.fixture.advance(seconds=2)
    scene.got = b""
    (sample,) = scene.samples()
    assert (sample["status"], sample["description"]) == (504, STATUS[504])


def test_a_request_without_a_service_is_unavailable() -> None:
    scene = Scene()
    scene.service.send(b"UNSUB 1\r\n")
    assert scene.ask() == b""
    (sample,) = scene.samples()
    assert (sample["status"], sample["total"]) == (503, 0)


def test_a_request_without_a_reply_is_a_bad_one() -> None:
    scene = Scene()
    scene.ask(reply=b"")
    (sample,) = scene.samples()
    assert (sample["status"], sample["description"]) == (400, "Bad Request")


def test_a_client_that_does_not_wait_any_more_is_told_once() -> None:
    scene = Scene()
    token = scene.ask()
    scene.client.send(b"UNSUB 1\r\n")
    (sample,) = scene.samples()
    assert sample["status"] == 408
    scene.answer(token)
    scene.got = b""
    assert scene.samples() == []


def test_a_service_of_headers_measures_the_requests_that_ask() -> None:
    scene = Scene("headers")
    scene.answer(scene.ask())
    assert scene.samples() == []
    scene.answer(scene.ask(block("X-B3-Sampled: 1", "Secret: s")))
    (sample,) = scene.samples()
    assert sample["header"] == {"X-B3-Sampled": ["1"]}


def test_a_share_of_the_requests_is_measured() -> None:
    scene = Scene("30%")
    measured = 0
    for _ in range(400):
        scene.answer(scene.ask())
        measured += len(scene.samples())
    assert 80 < measured < 170

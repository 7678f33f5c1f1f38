"""Traces of messages that cross imports and exports equal those of nats-server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.exchange import AccountClient

pytestmark = needs_peer
CONFIG = """
accounts {
    SYS { users: [{user: sys, password: sys}] }
    A {
        users: [{user: a, password: a}]
        exports: [
            {service: "told.>", allow_trace: true}
            {service: "quiet.>"}
            {stream: "s.>"}
        ]
        mappings: {"told.mapped": "told.to"}
    }
    B {
        users: [{user: b, password: b}]
        imports: [
            {service: {account: A, subject: "told.>"}}
            {service: {account: A, subject: "told.*"}, to: "other.*"}
            {service: {account: A, subject: "quiet.x"}, to: "l.quiet"}
            {stream: {account: A, subject: "s.told.>"}, allow_trace: true}
            {stream: {account: A, subject: "s.quiet.>"}}
            {stream: {account: A, subject: "s.to.*"}, to: "l.$1", allow_trace: true}
            {stream: {account: A, subject: "s.lit"}, prefix: p}
        ]
        exports: [{service: "told.far", allow_trace: true}]
    }
    C {
        users: [{user: c, password: c}]
        imports: [{service: {account: B, subject: "told.far"}, to: "far"}]
    }
}
system_account: SYS
"""
# By name: the publishing user, and the subject.
CASES = {
    "a service": ("b", "told.x"),
    "a service under another subject": ("b", "other.y"),
    "a service with a mapping": ("b", "told.mapped"),
    "a service that nobody serves": ("b", "told.nobody.here"),
    "a service without traces": ("b", "l.quiet"),
    "two services": ("c", "far"),
    "a stream": ("a", "s.told.x"),
    "a stream without traces": ("a", "s.quiet.x"),
    "a stream under another subject": ("a", "s.to.x"),
    "a literal stream": ("a", "s.lit"),
}


def published(subject: str, only: bool) -> bytes:
    block = (
        b"NATS/1.0\r\nNats-Trace-Dest: tr.1\r\n" + (b"Nats-Trace-Only: true\r\n" if only else b"") + b"\r\n"
    )
    return b"HPUB %b _INBOX.r.1 %d %d\r\n%bhi" % (subject.encode(), len(block), len(block) + 2, block)


def traced(server: ServerProcess, name: str, only: bool) -> Any:
    """Return the events of the trace, and the subjects of the messages that other accounts receive."""
    user, subject = CASES[name]
    clients = {each: AccountClient(server.port, each, inbox=b"_INBOX.%b" % each.encode()) for each in "abc"}
    clients["a"].do(
        b"SUB told.x 11", b"SUB told.y 12", b"SUB told.to 13", b"SUB told.far 14", b"SUB quiet.> 15"
    )
    clients["b"].do(b"SUB s.> 21", b"SUB l.x 22 q", b"SUB p.> 23")
    reader = AccountClient(server.port, user, inbox=b"_INBOX.reader")
    reader.do(b"SUB tr.> 31")
    clients[user].do(published(subject, only))
    trace = json.loads(next(reader.frames())[3])
    first = trace["events"][0]["cid"]
    for event in trace["events"]:
        del event["ts"]
        if "cid" in event:
            event["cid"] -= first
    for each in clients.values():
        each.fence()
    received = {each: client.seen().count("\r\nhi\r\n") for each, client in clients.items()}
    return trace["request"]["header"], trace["events"], received


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def look(server: ServerProcess) -> Any:
        return {(name, only): traced(server, name, only) for name in CASES for only in (False, True)}

    return of_both(tmp_path_factory.mktemp("traces"), CONFIG, look)


@pytest.mark.parametrize("only", [False, True], ids=["delivered", "only"])
@pytest.mark.parametrize("name", list(CASES))
def test_a_trace_goes_on_over_imports(name: str, only: bool, both: Any) -> None:
    peer, ours = (each[name, only] for each in both)
    assert ours == peer

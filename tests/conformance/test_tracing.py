"""Traces of messages equal those of nats-server: events, texts, and that a trace-only message has no effects.

Each case is one message with headers; both servers play it, and all frames of the publisher and of another client of
the account are compared. Times, ids and the description of the server differ and are left out.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
from typing import Any

import cramjam
import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

pytestmark = needs_peer
CONFIG = """
accounts {
    A {
        jetstream: enabled
        users: [
            {user: a, password: a}
            {user: l, password: l, permissions: {
                publish: {deny: ["secret", "tr.no"]}, subscribe: {deny: "denied.no"}
            }}
        ]
        msg_trace: {dest: acc.trace, sampling: "100%"}
    }
    B { users: [{user: b, password: b}] }
    SYS { users: [{user: s, password: s}] }
}
system_account: SYS
jetstream { store_dir: "<<store>>" }
"""
DEST, ONLY = ("Nats-Trace-Dest", "tr.1"), ("Nats-Trace-Only", "true")
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
REPLY = b"_INBOX.raw.reply"
Headers = list[tuple[str, str]]
# By name: the user, the subject, the headers, and whether the message has a reply subject.
CASES: dict[str, tuple[str, str, Headers, bool]] = {
    "delivered": ("a", "x.q", [DEST, ("k", "v")], True),
    "only": ("a", "x.q", [DEST, ONLY], True),
    "only to several subscriptions": ("a", "x.q.z", [DEST, ONLY], True),
    "nobody": ("a", "nobody", [DEST, ONLY], True),
    "only in a stream": ("a", "js.a", [DEST, ONLY], True),
    "stored": ("a", "js.b", [DEST, ("a", "b")], True),
    "over the limit": ("a", "js.full", [DEST], True),
    "over the limit, only": ("a", "js.full", [DEST, ONLY], True),
    "wrong last sequence": ("a", "js.c", [DEST, ("Nats-Expected-Last-Sequence", "77")], True),
    "wrong last sequence, only": ("a", "js.c", [DEST, ONLY, ("Nats-Expected-Last-Sequence", "77")], True),
    "wrong last sequence of the subject": (
        "a", "js.c", [DEST, ("Nats-Expected-Last-Subject-Sequence", "77")], True
    ),
    "wrong last message id": ("a", "js.c", [DEST, ("Nats-Expected-Last-Msg-Id", "zz")], True),
    "wrong stream": ("a", "js.c", [DEST, ("Nats-Expected-Stream", "Z")], True),
    "wrong stream without a reply": ("a", "js.c", [DEST, ("Nats-Expected-Stream", "Z")], False),
    "duplicate": ("a", "js.d", [DEST, ("Nats-Msg-Id", "once")], True),
    "rollup not allowed": ("a", "js.d", [DEST, ("Nats-Rollup", "all")], True),
    "TTL not allowed": ("a", "js.d", [DEST, ("Nats-TTL", "5s")], True),
    "counter not allowed": ("a", "js.d", [DEST, ("Nats-Incr", "5")], True),
    "no interest": ("a", "in.c", [DEST], True),
    "no interest, only": ("a", "in.c", [DEST, ONLY], True),
    "sealed": ("a", "sealed.c", [DEST], True),
    "sealed, only": ("a", "sealed.c", [DEST, ONLY], True),
    "only without a destination": ("a", "x.q", [ONLY], True),
    "destination with a wildcard": ("a", "x.q", [("Nats-Trace-Dest", "tr.*")], True),
    "destination with a wildcard, only": ("a", "x.q", [("Nats-Trace-Dest", "tr.*"), ONLY], True),
    "denied destination": ("l", "x.q", [("Nats-Trace-Dest", "tr.no")], False),
    "denied destination, only": ("l", "x.q", [("Nats-Trace-Dest", "tr.no"), ONLY], False),
    "reserved destination": ("a", "x.q", [("Nats-Trace-Dest", "$NRG.x")], False),
    "reserved gateway destination": ("a", "x.q", [("Nats-Trace-Dest", "_GR_.x")], False),
    "denied publish": ("l", "secret", [DEST], False),
    "denied publish, only": ("l", "secret", [DEST, ONLY], False),
    "origin account": ("a", "x.q", [DEST, ("Nats-Trace-Origin-Account", "B")], False),
    "origin account, only": ("a", "x.q", [DEST, ONLY, ("Nats-Trace-Origin-Account", "B")], False),
    "disabled": ("a", "x.q", [("Nats-Trace-Dest", "trace disabled"), ONLY], False),
    "traceparent": ("a", "x.q", [("TraceParent", PARENT + "01")], False),
    "traceparent that is not sampled": ("a", "x.q", [("traceparent", PARENT + "00")], False),
    "traceparent with other flags": ("a", "x.q", [("traceparent", PARENT + "03")], False),
    "traceparent with a high flag": ("a", "x.q", [("traceparent", PARENT + "ff")], False),
    "traceparent that is short": ("a", "x.q", [("traceparent", "00-01")], False),
    "traceparent and only": ("a", "x.q", [("traceparent", PARENT + "01"), ONLY], False),
    "traceparent in a stream": ("a", "js.t", [("traceparent", PARENT + "01")], True),
    "traceparent of an account without a destination": ("b", "x.q", [("traceparent", PARENT + "01")], False),
    "both": ("a", "x.q", [DEST, ONLY, ("traceparent", PARENT + "01")], False),
    "gzip": ("a", "x.q", [DEST, ONLY, ("Accept-Encoding", "gzip")], False),
    "snappy": ("a", "x.q", [DEST, ONLY, ("Accept-Encoding", "Snappy")], False),
    "an unknown encoding": ("a", "x.q", [DEST, ONLY, ("Accept-Encoding", "br")], False),
    "gzip in a stream": ("a", "js.g", [DEST, ("Accept-Encoding", "gzip")], True),
    "another case": ("a", "x.q", [("nats-trace-dest", "tr.1"), ONLY], False),
    "hop, equal and empty headers": (
        "a", "x.q", [DEST, ONLY, ("Nats-Trace-Hop", "1.2"), DEST, ("empty", "")], False
    ),
    "only, in other words": ("a", "x.q", [DEST, ("Nats-Trace-Only", "ON")], False),
    "only, in a wrong word": ("a", "x.q", [DEST, ("Nats-Trace-Only", "yes")], False),
    "API": ("a", "$JS.API.STREAM.NAMES", [DEST], True),
    "API, only": ("a", "$JS.API.STREAM.NAMES", [DEST, ONLY], True),
    "direct get": ("a", "$JS.API.DIRECT.GET.S.js.full", [DEST], True),
    "system request": ("a", "$SYS.REQ.ACCOUNT.PING.CONNZ", [DEST], False),
    "system request, only": ("a", "$SYS.REQ.USER.INFO", [DEST, ONLY], True),
    "denied by the subscriber": ("a", "denied.no", [DEST], True),
    "the destination itself": ("a", "tr.1", [DEST], False),
}  # fmt: skip


def hpub(subject: str, headers: Headers, reply: bytes = b"", payload: bytes = b"hi") -> bytes:
    block = b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers) + b"\r\n"
    sizes = b"%d %d" % (len(block), len(block) + len(payload))
    return b"HPUB %b %b %b\r\n%b%b\r\n" % (subject.encode(), reply, sizes, block, payload)


def client(server: ServerProcess, user: str, **fields: object) -> RawClient:
    said = {
        "user": user,
        "pass": user,
        "verbose": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
    }
    text = json.dumps(said | {"name": f"client {user}"} | fields).encode()
    return RawClient(server.port, connect=b"CONNECT %b\r\n" % text, inbox=b"_INBOX.raw")


def decoded(headers: bytes, body: bytes) -> bytes:
    if b"Content-Encoding: gzip" in headers:
        return gzip.decompress(body)
    if b"Content-Encoding: snappy" in headers:
        return bytes(cramjam.snappy.decompress(body))
    return body


def seen(subject: bytes, headers: bytes, body: bytes, first_cid: int) -> Any:
    """Return one frame without times and the server's description; client ids count from `first_cid`."""
    if not subject.startswith((b"tr.", b"acc.")) or not body.startswith((b"{", b"\x1f", b"\xff")):
        return subject, re.sub(rb'"ts":"[^"]*"', b"", headers), re.sub(rb"[0-9]+", b"N", body)[:40]
    trace = json.loads(decoded(headers, body))
    del trace["server"]
    for event in trace["events"]:
        del event["ts"]
        if "cid" in event:
            event["cid"] -= first_cid
    return subject, headers, trace, [list(event) for event in trace["events"]]


def frames_until(reader: RawClient, subject: bytes, first_cid: int) -> list[Any]:
    """Return the frames before one with `subject`, sorted: nats-server sends some of them concurrently."""
    found: list[Any] = []
    for got, _, headers, body in reader.frames():
        if got == subject:
            return sorted(found, key=repr)
        found.append(seen(got, headers, body, first_cid))
    raise AssertionError("unreachable: frames() ends with an error")


def play(server: ServerProcess) -> dict[str, Any]:
    with socket.create_connection(("127.0.0.1", server.port)) as before:
        first_cid = json.loads(before.recv(1 << 16).removeprefix(b"INFO ").partition(b"\r\n")[0])["client_id"]
    users = {user: client(server, user) for user in "alb"}
    reader = client(server, "a")
    reader.send(
        b"SUB x.> 21\r\nSUB x.q grp 22\r\nSUB x.q grp 23\r\nSUB tr.> 24\r\nSUB acc.trace 25\r\nSUB end 26\r\n"
    )
    reader.fence()
    users["l"].send(b"SUB denied.* 31\r\n")
    for each in users.values():
        each.fence()
    full = {"discard": "new", "max_msgs_per_subject": 1, "discard_new_per_subject": True}
    maker = RawClient(
        server.port, connect=b'CONNECT {"user":"a","pass":"a","headers":true}\r\n', inbox=b"_INBOX.maker"
    )
    maker.api("STREAM.CREATE.S", name="S", subjects=["js.>"], storage="memory", allow_direct=True, **full)
    transform = {"src": "in.>", "dest": "out.>"}
    maker.api(
        "STREAM.CREATE.I", name="I", subjects=["in.>"], retention="interest", subject_transform=transform
    )
    maker.api("STREAM.CREATE.Z", name="Z", subjects=["sealed.>"])
    maker.api("STREAM.UPDATE.Z", name="Z", subjects=["sealed.>"], sealed=True)
    maker.send(hpub("js.once", [("Nats-Msg-Id", "once")]))
    maker.send(hpub("js.full", []))
    maker.fence()
    found: dict[str, Any] = {}
    for name, (user, subject, headers, with_reply) in CASES.items():
        publisher = users[user]
        publisher.send(hpub(subject, headers, REPLY if with_reply else b"") + b"PING\r\n")
        told = publisher.read_until(b"PONG\r\n")
        errors = re.findall(rb"-ERR [^\r]*", told)
        for _ in range(20):  # wait until nats-server has handled the message
            maker.api("STREAM.INFO.S")
        maker.send(b"PUB end 0\r\n\r\n")
        frames = frames_until(reader, b"end", first_cid)
        state = maker.api("STREAM.INFO.S")["state"]["messages"]
        found[name] = (errors, state, frames)
    found["stored headers"] = maker.api("STREAM.MSG.GET.S", last_by_subj="js.b")["message"]["hdrs"]
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return of_both(tmp_path_factory.mktemp("tracing"), CONFIG, play)


@pytest.mark.parametrize("case", [*CASES, "stored headers"])
def test_a_traced_message_does_what_it_does_on_nats_server(both: list[dict[str, Any]], case: str) -> None:
    peer, ours = (found[case] for found in both)

    assert ours == peer

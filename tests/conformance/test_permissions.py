"""Permissions refuse and permit the same as in nats-server.

Each case is a user and the lines that it sends; all frames that it gets are compared. Deliveries of several
subscriptions are sorted, since nats-server has no order for them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

pytestmark = needs_peer
CONFIG = """
accounts { A {
    jetstream: enabled
    users: [
        {user: full, password: p, permissions: {publish: ">", subscribe: ">"}}
        {user: deny, password: p, permissions: {subscribe: {deny: [
            "foo.bar dev", "plain.no", "x.* v*", "deep.*", "y.* *"
        ]}}}
        {user: allow, password: p, permissions: {subscribe: {allow: ["foo.* dev", "bar", "w.> v.*"]}}}
        {user: pub, password: p, permissions: {publish: ["foo.*", "a.>"], subscribe: ["_INBOX.>"]}}
        {user: nosys, password: p, permissions: {publish: {deny: "$SYS.>"}}}
        {user: none, password: p, permissions: {publish: [], subscribe: []}}
        {user: js, password: p, permissions: {publish: {deny: [
            "$JS.API.STREAM.DELETE.>", "$JS.ACK.>", "$JS.API.DIRECT.GET.>"
        ]}}}
        {user: default, password: p}
        {user: once, password: p, permissions: {publish: ["ok"], allow_responses: true}}
        {user: twice, password: p, permissions: {allow_responses: {max: 2, expires: "1m"}}}
        {user: endless, password: p, permissions: {publish: ["ok"], allow_responses: {max: -1, expires: "-1s"}}}
        {user: defaults, password: p, permissions: {publish: {deny: "_INBOX.>"}, allow_responses: {max: 0}}}
        {user: late, password: p, permissions: {allow_responses: {max: 9, expires: "1ms"}}}
    ]
    default_permissions: {publish: "dp", subscribe: ["ds", "_INBOX.>"]}
} }
jetstream { store_dir: "<<store>>" }
"""
SENT = {
    "deny": [
        "SUB foo.bar dev 1", "SUB foo.* dev 1", "SUB foo.bar 1", "SUB foo.bar prod 1", "SUB plain.no any 1",
        "SUB > q 1", "SUB x.a v1 1", "SUB x.> v* 1", "SUB deep.> 1", "SUB deep.* 1", "SUB deep 1", "SUB deep.a.b 1",
        "SUB y.> q 1",
        "SUB y.a q 1", "SUB y.a 1",
        "SUB deep. 1", "SUB deep..a 1", "SUB plain..no 1",
    ],
    "allow": [
        "SUB foo.a 1", "SUB foo.a dev 1", "SUB foo.a prod 1", "SUB bar any 1", "SUB w.a v.1 1", "SUB w.a v.1.2 1",
        "SUB w.> 1", "SUB > 1", "SUB foo.a.b dev 1",
        "SUB foo. dev 1", "SUB .bar 1", "SUB w..a v.1 1",
    ],
    "pub": [
        "PUB foo.* 0|", "PUB foo.> 0|", "PUB a.* 0|", "PUB foo.a.b 0|", "PUB > 0|", "PUB a 0|", "PUB foo. 0|",
        "PUB .a 0|", "PUB a..b 0|", "PUB $SYS.REQ.USER.INFO 0|", "SUB $SYS.> 1",
        "SUB _INBOX.a 1", "SUB inbox 1",
    ],
    "nosys": ["PUB $SYS.REQ.USER.INFO 0|", "SUB $SYS.> 1", "PUB $SYSTEM 0|"],
    "none": ["PUB a 0|", "SUB a 1", "PUB $JS.API.INFO 0|"],
    "default": ["PUB a 0|", "PUB dp 0|", "SUB ds 1", "SUB x 2", "PUB $JS.API.INFO _INBOX.raw.1 0|"],
    "js": [
        "PUB $JS.API.STREAM.DELETE.S 0|", "PUB $JS.ACK.S.c.1.1.1.1.0 0|", "PUB $JS.API.DIRECT.GET.S.a 0|",
        "PUB x $JS.ACK.S.c.1.1.1.1.0 0|", "PUB x _R_.a 0|", "PUB x _GR_.a 0|", "PUB _GR_.a 0|", "PUB $NRG.a 0|",
        "PUB _R_.a 0|", "PUB x $JS.ACK 0|", "PUB x $JS.ACK. 0|", "PUB x _R_ 0|",
    ],
}  # fmt: skip
RESPONDERS = ("once", "twice", "endless", "defaults", "late")
FRAMES = re.compile(rb"INFO [^\n]*\n|PING\r\n")


def client(server: ServerProcess, user: str, inbox: bytes = b"_INBOX.raw") -> RawClient:
    said = {"user": user, "pass": "p", "verbose": False, "headers": True, "protocol": 1}
    return RawClient(server.port, connect=b"CONNECT %b\r\n" % json.dumps(said).encode(), inbox=inbox)


def answer(sender: RawClient, lines: list[str]) -> bytes:
    sender.send("".join(line.replace("|", "\r\n") + "\r\n" for line in lines).encode() + b"PING\r\n")
    return FRAMES.sub(b"", sender.read_until(b"PONG\r\n"))


def refused(server: ServerProcess) -> Any:
    found = {}
    for user, lines in SENT.items():
        for line in lines:
            sender = client(server, user)
            sender.fence()
            found[user, line] = answer(sender, [line])
            sender.close()
    return found


def deliveries(server: ServerProcess) -> Any:
    """Return the messages that reach the subscriptions of a user with a deny list."""
    reader, writer = client(server, "deny"), client(server, "full", b"_INBOX.writer")
    reader.send(
        b"SUB foo.* dev 11\r\nSUB foo.* prod 12\r\nSUB foo.* 13\r\nSUB foo.> 14\r\nSUB plain.* any 15\r\n"
    )
    reader.send(b"SUB plain.> 16\r\nSUB > group 17\r\nSUB end.now 18\r\n")
    reader.fence()
    subjects = (
        "foo.bar",
        "foo.baz",
        "foo.bar.c",
        "plain.no",
        "plain.yes",
        "deep.a",
        "deep.a.b",
        "x.1",
        "end.now",
    )
    writer.send(b"".join(b"PUB %b 0\r\n\r\n" % subject.encode() for subject in subjects))
    writer.fence()
    reader.send(b"PING\r\n")
    return sorted(reader.read_until(b"PONG\r\n").split(b"MSG "))


def responses(server: ServerProcess) -> Any:
    """Return the results of each responder's publishes: three answers, and messages on two other subjects."""
    found: dict[str, Any] = {}
    for user in RESPONDERS:
        responder, asking = client(server, user), client(server, "full", b"_INBOX.asking")
        responder.send(b"SUB service 5\r\n")
        responder.fence()
        for at in range(2):  # the second request renews the permission
            asking.send(b"PUB service _INBOX.asking.%d 0\r\n\r\n" % at)
            reply = next(responder.frames())[1]
            if user == "late":
                asking.request(b"$JS.API.INFO")  # by the time of this answer, the millisecond is over
                asking.request(b"$JS.API.INFO")
                while not responder_is_late(responder, reply):
                    pass
            line = f"PUB {reply.decode()} 1|x"
            found[f"{user} {at}"] = answer(responder, [line, line, line, "PUB elsewhere 0|", "PUB ok 0|"])
    return found


def responder_is_late(responder: RawClient, reply: bytes) -> bool:
    return b"-ERR" in answer(responder, [f"PUB {reply.decode()} 1|x"])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    scenes = {"refused": refused, "deliveries": deliveries, "responses": responses}
    return of_both(
        tmp_path_factory.mktemp("permissions"),
        CONFIG,
        lambda server: {name: scene(server) for name, scene in scenes.items()},
    )


@pytest.mark.parametrize(("user", "line"), [(user, line) for user, lines in SENT.items() for line in lines])
def test_an_operation_is_refused_as_on_nats_server(both: list[dict[str, Any]], user: str, line: str) -> None:
    peer, ours = (found["refused"][user, line] for found in both)

    assert ours == peer


def test_a_deny_list_filters_messages_by_subject_and_queue(both: list[dict[str, Any]]) -> None:
    peer, ours = (found["deliveries"] for found in both)

    assert ours == peer
    assert not any(b"foo.bar 11 " in frame for frame in ours)


@pytest.mark.parametrize("request_of", [f"{user} {at}" for user in RESPONDERS for at in range(2)])
def test_answers_are_allowed_as_on_nats_server(both: list[dict[str, Any]], request_of: str) -> None:
    peer, ours = (found["responses"][request_of] for found in both)

    assert ours == peer

"""Published security advisories of nats-server that also concern this server, each test named after its fault.

Each scene runs on both servers: our server must behave like the fixed nats-server. SECURITY.md lists advisories that
do not apply.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess, peer_command
from tests.support.raw import RawClient

PEER = peer_command()
pytestmark = needs_peer
CONFIG = """
accounts {
    A { jetstream: enabled, users: [
        {user: a, password: a}
        {user: l, password: a, permissions: {
            publish: {deny: "secret.>"}, subscribe: {deny: ["foo.bar", "plain", "plain other"]}
        }}
    ] }
    B { jetstream: enabled, users: [{user: b, password: a}] }
}
jetstream { store_dir: "<<store>>" }
"""


def connect(user: str, **more: object) -> bytes:
    said = {
        "user": user,
        "pass": "a",
        "verbose": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
    }
    return b"CONNECT %b\r\n" % json.dumps(said | more).encode()


def client(server: ServerProcess, user: str, inbox: bytes = b"_INBOX.raw") -> RawClient:
    return RawClient(server.port, connect=connect(user), inbox=inbox)


def told(sender: RawClient, data: bytes) -> list[bytes]:
    """Send `data` and return the received frames, except for INFO and PING."""
    sender.send(data + b"PING\r\n")
    lines = sender.read_until(b"PONG\r\n").split(b"\r\n")
    return [line for line in lines if line and not line.startswith((b"INFO", b"PING"))]


def refusal(server: ServerProcess, first: bytes) -> bytes:
    """Return the last line that a new connection gets after it has sent `first`, until the server closes it."""
    try:
        RawClient(server.port, connect=first)
    except (ConnectionError, TimeoutError) as error:
        return type(error).__name__.encode()
    return b"let in"


def test_a_trace_went_to_a_subject_that_its_sender_must_not_publish_to(
    tmp_path: Path,
) -> None:  # CVE-2026-33249
    def look(server: ServerProcess) -> Any:
        reader, sender = client(server, "a", b"_INBOX.reader"), client(server, "l")
        reader.send(b"SUB secret.> 5\r\nSUB end 6\r\n")
        reader.fence()
        sender.fence()
        block = b"NATS/1.0\r\nNats-Trace-Dest: secret.x\r\n\r\n"
        frames = told(sender, b"HPUB open %d %d\r\n%b\r\nPUB end 0\r\n\r\n" % (len(block), len(block), block))
        return frames, next(reader.frames())[0]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert ours == ([b"-ERR 'Permissions Violation for Publish to \"secret.x\"'"], b"end")


def test_a_queue_name_led_past_a_plain_deny_entry(tmp_path: Path) -> None:  # GHSA-jx8g-9g95-6322
    def look(server: ServerProcess) -> Any:
        return [told(client(server, "l"), b"SUB plain%b 5\r\n" % queue) for queue in (b"", b" q", b" other")]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert all(b"Permissions Violation" in str(frames).encode() for frames in ours)


def test_a_queue_subscription_got_messages_that_are_denied(tmp_path: Path) -> None:  # CVE-2022-29946
    def look(server: ServerProcess) -> Any:
        reader, sender = client(server, "l"), client(server, "a", b"_INBOX.sender")
        reader.send(b"SUB foo.* q 5\r\nSUB foo.> 6\r\nSUB > q 7\r\n")
        reader.fence()
        sender.send(b"PUB foo.bar 0\r\n\r\n")
        sender.fence()
        return told(reader, b"")

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == []


def test_a_client_chose_its_account_by_itself(tmp_path: Path) -> None:  # CVE-2022-24450
    def look(server: ServerProcess) -> Any:
        chosen = [
            connect("a", account="B"),
            connect("a", account="B", new_account=True),
            connect("a", account="C"),
        ]
        return [refusal(server, each) for each in chosen]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert b"let in" not in ours + peer


def test_the_api_of_one_account_changed_streams_of_another(tmp_path: Path) -> None:  # CVE-2025-30215
    requests: tuple[str, ...] = (
        "STREAM.INFO.S",
        "STREAM.PURGE.S",
        "STREAM.DELETE.S",
        "STREAM.LEADER.STEPDOWN.S",
    )
    requests += (
        "STREAM.PEER.REMOVE.S",
        "CONSUMER.LEADER.STEPDOWN.S.c",
        "STREAM.SNAPSHOT.S",
        "CONSUMER.DELETE.S.c",
    )

    def look(server: ServerProcess) -> Any:
        owner, other = client(server, "b"), client(server, "a")
        owner.api("STREAM.CREATE.S", name="S", subjects=["s"])
        owner.request(b"s", b"kept")
        codes = [other.try_api(name).get("error", {}).get("err_code") for name in requests[:3]]
        refused = ["error" in other.try_api(name) for name in requests[3:]]
        other.send(b"PUB $JS.ACK.S.c.1.1.1.1.0 4\r\n+ACK\r\nPUB s 0\r\n\r\n")
        other.fence()
        return codes, refused, owner.api("STREAM.INFO.S")["state"]["messages"]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours[0] == peer[0] == [10059] * 3
    assert all(ours[1])
    assert ours[2] == peer[2] == 1


@pytest.mark.parametrize("name", ["../../up", "..", "a/b", "a\\b", "/etc/x"])
def test_a_name_led_out_of_the_store_directory(tmp_path: Path, name: str) -> None:  # CVE-2022-26652, -28357
    def look(server: ServerProcess) -> Any:
        error = client(server, "a").try_api(f"STREAM.CREATE.{name}", name=name, subjects=["s"]).get("error")
        return error["code"] if error else "nobody"  # the dot makes it another subject, which nobody answers

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert ours


@pytest.mark.parametrize("size", [b"9223372036854775807", b"18446744073709551615", b"-1", b"4294967297"])
def test_a_huge_size_ended_the_server(tmp_path: Path, size: bytes) -> None:  # CVE-2019-13126
    def look(server: ServerProcess) -> Any:
        hostile = client(server, "a")
        hostile.send(b"PUB a %b\r\nHPUB a 1 %b\r\n" % (size, size))
        return client(server, "a").request(b"nobody")

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_users_of_the_system_account_alone_let_everybody_in(tmp_path: Path) -> None:  # CVE-2023-47090
    config = "accounts { $SYS { users: [{user: sys, password: a}] } }"

    def look(server: ServerProcess) -> Any:
        anonymous = RawClient(
            server.port, connect=b'CONNECT {"headers":true,"no_responders":true,"verbose":false}\r\n'
        )
        answers = [
            anonymous.request(b"$SYS.REQ.SERVER.PING.IDZ"),
            anonymous.request(b"$SYS.REQ.SERVER.PING.VARZ"),
        ]
        return answers

    def entered(server: ServerProcess) -> Any:
        try:
            return look(server)
        except ConnectionError:
            return "refused"

    peer, ours = of_both(tmp_path, config, entered)
    # the client is in the default account, which our server refuses: see docs/compatibility.md
    assert peer == [b"", b""]
    assert ours == "refused"

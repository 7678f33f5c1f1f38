"""Clients that spy, forge and flood: both servers protect the same things from them.

PYJS_HOSTILE_CONNECTIONS is the number of connections that the last scene opens; its target is 10,000, CI has fewer.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.harness.websocket import WAIT_S
from tests.conformance.test_advisories import client, connect, told

pytestmark = needs_peer
CONNECTIONS = int(os.environ.get("PYJS_HOSTILE_CONNECTIONS", "300"))
CONFIG = """
accounts {
    A { jetstream: enabled, users: [
        {user: a, password: a}
        {user: l, password: a, permissions: {
            publish: {deny: "$JS.ACK.>"}, subscribe: {allow: ["_INBOX.raw.>", "_INBOX_l.>"]}
        }}
    ] }
    B { jetstream: enabled, users: [{user: b, password: a}] }
}
jetstream { store_dir: "<<store>>" }
"""


def test_the_inboxes_of_others_are_not_heard(tmp_path: Path) -> None:
    """Neither a user with restricted subscriptions nor one of another account gets the answer to a request."""

    def look(server: ServerProcess) -> Any:
        victim, limited, other = (
            client(server, "a", b"_INBOX.victim"),
            client(server, "l"),
            client(server, "b"),
        )
        refused = [
            told(limited, b"SUB %b 7\r\n" % each)
            for each in (b"_INBOX.>", b">", b"*.victim.>", b"_INBOX.*.x")
        ]
        other.send(b"SUB _INBOX.> 7\r\nSUB > 8\r\n")
        other.fence()
        victim.send(b"SUB ask 5\r\nPUB ask _INBOX.victim.x 2\r\nhi\r\nPUB _INBOX.victim.x 6\r\nsecret\r\n")
        victim.fence()
        return refused, [line for each in (limited, other) for line in told(each, b"") if b"MSG" in line]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert ours[1] == []
    assert all(b"Permissions Violation" in lines[0] for lines in ours[0])


def test_acks_are_not_forged_by_another_account_or_a_user_that_must_not_publish_them(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        owner, limited, other = client(server, "a", b"_INBOX.owner"), client(server, "l"), client(server, "b")
        owner.api("STREAM.CREATE.S", name="S", subjects=["s"])
        owner.api(
            "CONSUMER.CREATE.S.c", stream_name="S", config={"durable_name": "c", "ack_policy": "explicit"}
        )
        owner.request(b"s", b"1")
        owner.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c _INBOX.owner.pull 0\r\n\r\n")
        ack = next(owner.frames())[1]
        answers = []
        for forger in (limited, other):
            frames = told(forger, b"PUB %b 4\r\n+ACK\r\nPUB %b 5\r\n+TERM\r\n" % (ack, ack))
            answers.append(sum(line.startswith(b"-ERR") for line in frames))
        floor = owner.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"]
        owner.request(ack, b"+ACK")
        return answers, floor, owner.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == ([2, 0], 0, 1)


@pytest.mark.parametrize(
    "reply",
    [b"$JS.ACK.S.c.1.1.1.1.0", b"$SYS.REQ.SERVER.PING", b"_R_.x", b"$JS.API.STREAM.DELETE.S", b"a.*", b">"],
)
def test_a_reply_subject_of_the_sender_does_not_act_for_the_receiver(tmp_path: Path, reply: bytes) -> None:
    """A message to a stream names a subject of the API as its reply; the PubAck that goes there does nothing."""

    def look(server: ServerProcess) -> Any:
        owner, sender = client(server, "a", b"_INBOX.owner"), client(server, "l")
        owner.api("STREAM.CREATE.S", name="S", subjects=["s"])
        owner.request(b"s", b"1")
        frames = told(sender, b"PUB s %b 1\r\nx\r\n" % reply)
        return frames, owner.api("STREAM.INFO.S")["state"]["messages"], bool(owner.api("INFO"))

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert ours[1] >= 1


SUBJECTS = (
    b"a\x00b",
    b"a..b",
    b".a",
    b"a.",
    b"a.*",
    b">",
    b"a.>.b",
    b"*",
    b"\xff\xfe",
    b"a\tb",
    b"a\rb",
    b"a\x0bb",
    b"x" * 900,
)


def test_odd_subjects_are_refused_or_carried_alike(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        found = []
        for subject in SUBJECTS:
            for verb in (b"PUB %b 1\r\nx\r\n" % subject, b"SUB %b 6\r\nPUB a.c 1\r\nx\r\n" % subject):
                line = client(server, "a", b"_INBOX.odd")
                try:
                    line.send(b"SUB a.c 5\r\n")
                    found.append(sorted(told(line, verb)))  # the order of subscribers does not matter
                except ConnectionError:
                    found.append([b"closed"])
                line.close()
        return found

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_bombs_of_json_end_only_their_own_connection(tmp_path: Path) -> None:
    bombs = (b"[" * 2000, b'{"a":' * 700, b'{"user":"' + b"\\u0000" * 600 + b'"}', b"1e" + b"9" * 3000)

    def look(server: ServerProcess) -> Any:
        for bomb in bombs:
            with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as line:
                line.recv(4096)
                line.sendall(b"CONNECT " + bomb + b"\r\nPING\r\n")
                said = b""
                with suppress(ConnectionError):
                    while piece := line.recv(4096):
                        said += piece
                assert b"PONG" not in said
        owner = client(server, "a")
        deep = owner.try_api("STREAM.CREATE.S", name="S", subjects=["s"], metadata={"a": "[" * 3000})
        owner.send(b"PUB $JS.API.STREAM.CREATE.T _INBOX.raw.z 4000\r\n%b\r\n" % (b"[" * 4000))
        return "error" in deep, bool(client(server, "a", b"_INBOX.b").api("INFO"))

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_half_messages_of_many_clients_take_no_more_than_they_sent(tmp_path: Path) -> None:
    """Each client announces a message of max_payload bytes and sends only its beginning."""

    def size_kb(server: ServerProcess) -> int:
        assert server._process is not None
        return int(
            Path(f"/proc/{server._process.pid}/status").read_text().partition("RssAnon:")[2].split()[0]
        )

    def look(server: ServerProcess) -> Any:
        before = size_kb(server)
        lines = [socket.create_connection(("127.0.0.1", server.port), WAIT_S) for _ in range(CONNECTIONS)]
        for line in lines:
            line.sendall(connect("a") + b"PUB a 1000000\r\n" + b"x" * 1000)
        late = client(server, "a", b"_INBOX.late")
        late.fence()
        grown = size_kb(server) - before
        for line in lines:
            line.close()
        return grown / CONNECTIONS

    _, ours = of_both(tmp_path, CONFIG, look)
    assert ours < 100  # KiB per connection; a whole message would take 1,000


def test_many_connections_at_once_are_served_and_forgotten(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        lines = [socket.create_connection(("127.0.0.1", server.port), WAIT_S) for _ in range(CONNECTIONS)]
        for line in lines:
            line.sendall(connect("a") + b"SUB news 1\r\nPING\r\n")
        served = 0
        for line in lines:
            said = b""
            while b"PONG\r\n" not in said and (piece := line.recv(65536)):
                said += piece
            served += b"PONG\r\n" in said
        sender = client(server, "a", b"_INBOX.sender")
        sender.send(b"PUB news 2\r\nhi\r\n")
        sender.fence()
        heard = 0
        for line in lines:
            said = b""
            while b"hi\r\n" not in said and (piece := line.recv(65536)):
                said += piece
            heard += b"MSG news 1 2\r\nhi\r\n" in said
            line.close()
        return served, heard, bool(client(server, "a", b"_INBOX.end").api("INFO"))

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == (CONNECTIONS, CONNECTIONS, True)


def test_no_file_of_the_store_is_for_others(tmp_path: Path) -> None:
    """Only the server's user can access the store, whatever the umask is; log: tests/unit/server/test_logging.py."""

    def look(server: ServerProcess) -> dict[str, int]:
        owner = client(server, "a")
        owner.api("STREAM.CREATE.S", name="S", subjects=["s"])
        owner.request(b"s", b"1")
        store = next(path for path in server._directory.rglob("jetstream") if path.is_dir())
        modes = {"file": 0, "directory": 0}
        for path in store.rglob("*"):
            modes["directory" if path.is_dir() else "file"] |= stat.S_IMODE(path.stat().st_mode)
        return modes

    before = os.umask(0)
    try:
        peer, ours = of_both(tmp_path, CONFIG, look)
    finally:
        os.umask(before)
    assert ours == peer == {"file": 0o600, "directory": 0o700}

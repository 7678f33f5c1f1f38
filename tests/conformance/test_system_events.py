"""The events that the system account gets are those of nats-server: subjects, fields, values and order."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

pytestmark = needs_peer
CONFIG = """
server_name: probe
authorization { users: [{user: g, password: g}], timeout: 0.3 }
accounts { SYS { users: [{user: sys, password: s}] }, A { users: [{user: a, password: a}]} }
system_account: SYS
"""
STATSZ = b".STATSZ"
TIMES = {"id", "timestamp", "time", "start", "stop"}  # these differ between runs
# Some are compared in test_system_account.py; and nats-server reports a round trip before the first PONG.
LEFT_OUT = {"ver", "feature_flags", "seq", "jetstream", "host", "rtt"}
Scene = Callable[[int], None]


def connect(user: str, password: str, name: str = "some client") -> bytes:
    fields = {"user": user, "pass": password, "name": name, "lang": "test", "version": "1.2", "protocol": 1}
    return b"CONNECT " + json.dumps(fields | {"verbose": False}).encode() + b"\r\n"


class Listener:
    """A client of the system account that receives all events except the statistics."""

    def __init__(self, server: ServerProcess) -> None:
        self.client = RawClient(server.port, connect=connect("sys", "s"))
        self.client.send(b"SUB $SYS.SERVER.> 7\r\nSUB $SYS.ACCOUNT.> 8\r\n")
        self.client.fence()

    def until(self, *last: bytes) -> list[Any]:
        """Return the events until a subject has ended with each of `last`; if those are several, sorted by subject.

        nats-server publishes an authorization error and the disconnect in any order.
        """
        found, missing = [], {*last}
        for subject, _, _, payload in self.client.frames():
            if (subject.endswith(STATSZ) and STATSZ not in last) or b".SYS." in subject:
                continue
            event = json.loads(payload)
            server_id = event["server"]["id"].encode()
            found.append((subject.replace(server_id, b"<id>").decode(), kept(event)))
            missing -= {end for end in missing if subject.endswith(end)}
            if not missing:
                break
        return sorted(found, key=lambda event: str(event[0])) if len(last) > 1 else found


def kept(value: Any) -> Any:
    """Return the values that do not differ between two runs; of times, only that they are present."""
    if isinstance(value, dict):
        return {name: name in TIMES or kept(each) for name, each in value.items() if name not in LEFT_OUT}
    return value


def come_and_go(user: str) -> Scene:
    def play(port: int) -> None:
        client = RawClient(port, connect=connect(user, user))
        client.send(b"PUB x 3\r\nabc\r\nPING\r\n")
        client.read_until(b"PONG\r\n")
        client.close()

    return play


def raw(data: bytes, until_closed: bool) -> Scene:
    def play(port: int) -> None:
        with closing(socket.create_connection(("127.0.0.1", port), 10)) as line:
            line.recv(65_536)
            line.sendall(data)
            while until_closed and line.recv(65_536):
                pass

    return play


def unknown_operation(port: int) -> None:
    client = RawClient(port, connect=connect("a", "a"))
    client.send(b"FOO\r\n")
    with pytest.raises(ConnectionError):
        client.read_until(b"never")


SCENES: dict[str, Scene] = {
    "a client of an account": come_and_go("a"),
    "a client of the global account": come_and_go("g"),
    "a wrong password": raw(connect("a", "wrong") + b"PING\r\n", until_closed=True),
    "silence": raw(b"", until_closed=True),
    "gone at once": raw(b"", until_closed=False),
    "an unknown operation": unknown_operation,
}


@pytest.mark.parametrize("name", SCENES)
def test_who_comes_and_goes_is_told(tmp_path: Path, name: str) -> None:
    def look(server: ServerProcess) -> Any:
        listener = Listener(server)
        SCENES[name](server.port)
        refused = name == "a wrong password"
        return listener.until(*([b".AUTH.ERR"] * refused), b".DISCONNECT")

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_statistics_come_by_themselves(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        subject, event = Listener(server).until(STATSZ)[-1]
        return subject, list(event), list(event["statsz"])

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


@pytest.mark.parametrize(("signal", "what"), [("TERM", b".SHUTDOWN"), ("USR2", b".LAMEDUCK")])
def test_the_end_of_a_server_is_announced(tmp_path: Path, signal: str, what: bytes) -> None:
    def look(server: ServerProcess) -> Any:
        client = RawClient(server.port, connect=connect("sys", "s"))
        client.send(b"SUB $SYS.SERVER.*.SHUTDOWN 7\r\nSUB $SYS.SERVER.*.LAMEDUCK 8\r\n")
        client.fence()
        server.signal(signal)
        subject, reply, headers, payload = next(client.frames())
        return subject.endswith(what), reply, headers, kept(json.loads(payload))

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


def test_subscribers_are_counted(tmp_path: Path) -> None:
    bodies = ("a.b", "a.b q", "a.b other", "a.*", "a.> q", "none", "", ">", " a.b  ", "a.b q more")

    def look(server: ServerProcess) -> Any:
        client = RawClient(server.port, connect=connect("sys", "s"))
        client.send(b"SUB a.b 11\r\nSUB a.* 12\r\nSUB a.b q 13\r\nSUB a.b q 14\r\nSUB a.> q 15\r\n")
        return [client.request(b"$SYS.DEBUG.SUBSCRIBERS", body.encode()) for body in bodies]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer


@pytest.mark.parametrize("encoding", [b"gzip", b"snappy", b"s2, gzip", b"br"])
def test_an_answer_is_compressed_on_request(tmp_path: Path, encoding: bytes) -> None:
    def look(server: ServerProcess) -> Any:
        client = RawClient(server.port, connect=connect("sys", "s").replace(b"{", b'{"headers":true,'))
        block = b"NATS/1.0\r\nAccept-Encoding: %b\r\n\r\n" % encoding
        client.send(b"HPUB $SYS.REQ.SERVER.PING.VARZ %b.1 %d %d\r\n%b\r\n" % (
            client.inbox, len(block), len(block), block
        ))  # fmt: skip
        _, _, headers, payload = next(client.frames())
        return headers, payload[:3] if encoding != b"br" else payload[:9]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer

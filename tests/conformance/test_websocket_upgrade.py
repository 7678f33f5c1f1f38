"""Upgrades to WebSocket: the same requests are accepted, and refused with the same status and log line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.websocket import PLAIN, WAIT_S, Both, WebSocketServer, both_servers
from tests.support.websocket import DEFLATE, HttpSocket, WebSocketClient, frame, head_of

pytestmark = needs_peer
OPEN = 'websocket { listen: "127.0.0.1:<<ws>>", no_tls: true'


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("upgrade")) as servers:
        yield servers


def answer(server: WebSocketServer, head: bytes) -> tuple[int, str, str]:
    """Return status, version header and body of the answer; for an upgrade, the key instead of the body."""
    with closing(HttpSocket(server.ws_port)) as line:
        status, headers = line.request(head)
        if status == 101:
            return status, headers.get("sec-websocket-version", ""), headers["sec-websocket-accept"]
        size = int(headers.get("content-length", 0))
        while len(line.data) < size and line.more():
            pass
        return status, headers.get("sec-websocket-version", ""), line.data[: size or None].decode()


ACCEPTED = {
    "as the standard says": head_of(),
    "any path": head_of("/some/path?with=query"),
    "lower case": head_of(Upgrade="WEBSOCKET", Connection="upgrade"),
    "several tokens of Connection": head_of(Connection="keep-alive, Upgrade"),
    "a protocol": head_of(Sec_WebSocket_Protocol="nats"),
    "an origin": head_of(Origin="https://example.com"),
    "an origin that is no URL": head_of(Origin="null"),
    "an extension that is not known": head_of(Sec_WebSocket_Extensions="x-unknown"),
    "cookies": head_of(Cookie="a=b; c"),
}


@pytest.mark.parametrize("head", ACCEPTED.values(), ids=ACCEPTED)
def test_a_request_is_accepted(both: Both, head: bytes) -> None:
    assert both.see(lambda server: answer(server, head))[0] == 101


REFUSED = {
    "no upgrade": (head_of(Upgrade=None), "invalid value for header 'Upgrade'"),
    "another upgrade": (head_of(Upgrade="h2c"), "invalid value for header 'Upgrade'"),
    "no connection header": (head_of(Connection=None), "invalid value for header 'Connection'"),
    "another connection header": (head_of(Connection="close"), "invalid value for header 'Connection'"),
    "no key": (head_of(Sec_WebSocket_Key=None), "key missing"),
    "a short key": (head_of(Sec_WebSocket_Key="YWJj"), "invalid websocket key"),
    "a key that is no base64": (head_of(Sec_WebSocket_Key="???"), "invalid websocket key"),
    "no version": (head_of(Sec_WebSocket_Version=None), "invalid version"),
    "another version": (head_of(Sec_WebSocket_Version="8"), "invalid version"),
    "another method": (head_of(method="PUT"), "request method must be GET"),
    "a page": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "invalid value for header 'Upgrade'"),
    "MQTT": (head_of("/mqtt"), "mqtt websocket endpoint not enabled"),
    "MQTT below a path": (head_of("/a/mqtt"), "mqtt websocket endpoint not enabled"),
}


@pytest.mark.parametrize(("head", "cause"), REFUSED.values(), ids=REFUSED)
def test_a_request_is_refused(both: Both, head: bytes, cause: str) -> None:
    def look(server: WebSocketServer) -> object:
        found = answer(server, head)
        assert server.logged(f"websocket handshake error: {cause}", WAIT_S)
        return found

    both.see(look)


def test_a_refusal_is_logged_with_the_address(both: Both) -> None:
    def look(server: WebSocketServer) -> list[str]:
        answer(server, head_of(Upgrade="x"))
        assert server.logged("handshake error: invalid value", WAIT_S)
        return server.log_lines("handshake error: invalid value for header 'Upgrade'")[:1]

    both.see(look)


@pytest.mark.parametrize("head", [b"BOGUS\r\n\r\n", b"GET /\r\n\r\n", head_of()[:-2] + b"no colon\r\n\r\n"])
def test_what_is_no_http_is_refused(both: Both, head: bytes) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(HttpSocket(server.ws_port)) as line:
            return line.request(head)[0], line.rest()

    both.see(look)


def test_a_request_without_host_is_refused(both: Both) -> None:
    assert both.see(lambda server: answer(server, head_of(Host=None))[0]) == 400


def test_frames_before_the_answer_are_refused(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(HttpSocket(server.ws_port)) as line:
            found = line.request(head_of() + frame(b"PING\r\n"))
            assert server.logged("client sent data before handshake is complete", WAIT_S)
            return found, line.rest()

    both.see(look)


def test_a_leafnode_is_answered_and_closed(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(HttpSocket(server.ws_port)) as line:
            status, _ = line.request(head_of("/leafnode"))
            assert server.logged("[ERR] Not configured to accept leaf node connections", WAIT_S)
            return status, line.rest()

    both.see(look)


def test_headers_of_the_block_are_in_the_answer(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port)) as client:
            return {
                name: client.headers.get(name) for name in ("x-served-by", "x-other", "upgrade", "connection")
            }

    both.see(look, OPEN + ', headers: { X-Served-By: "us", X-Other: "more text" } }')


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost", "localhost"),
        ("http://localhost:80", "localhost"),
        ("http://LOCALHOST", "localhost"),
        ("https://localhost", "localhost"),
        ("http://localhost:8080", "localhost"),
        ("http://localhost:8080", "localhost:8080"),
        ("http://other", "localhost"),
        ("null", "localhost"),
        (None, "localhost"),
    ],
)
def test_the_same_origin_is_required(both: Both, origin: str | None, host: str) -> None:
    def look(server: WebSocketServer) -> int:
        return answer(server, head_of(Origin=origin, Host=host))[0]

    both.see(look, OPEN + ", same_origin: true }")


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.com",
        "https://example.com:443",
        "https://EXAMPLE.com",
        "http://example.com",
        "http://www.example.com:8080",
        "http://www.example.com",
        "https://example.org",
        "nonsense",
        None,
    ],
)
def test_origins_of_the_list_are_required(both: Both, origin: str | None) -> None:
    def look(server: WebSocketServer) -> int:
        return answer(server, head_of(Origin=origin))[0]

    config = ', allowed_origins: ["https://example.com", "http://www.example.com:8080"] }'
    both.see(look, OPEN + config)


def test_the_reasons_of_origins_are_logged(both: Both) -> None:
    def look(server: WebSocketServer) -> list[str]:
        answer(server, head_of(Origin="http://other"))
        answer(server, head_of(Origin="http://localhost"))
        assert server.logged("not in the allowed list", WAIT_S)
        return server.log_lines("origin not allowed")

    both.see(look, OPEN + ', same_origin: true, allowed_origins: ["https://example.com"] }')


def test_the_older_origin_header_counts(both: Both) -> None:
    def look(server: WebSocketServer) -> int:
        return answer(server, head_of(Sec_WebSocket_Origin="http://other"))[0]

    assert both.see(look, OPEN + ", same_origin: true }") == 403


@pytest.mark.parametrize("config", [PLAIN, OPEN + ", compression: true }"])
def test_compression_is_agreed_upon_if_it_is_on(both: Both, config: str) -> None:
    def look(server: WebSocketServer) -> str | None:
        with closing(WebSocketClient(server.ws_port, Sec_WebSocket_Extensions=DEFLATE)) as client:
            return client.headers.get("sec-websocket-extensions")

    both.see(look, config)


def test_an_incomplete_request_is_closed_in_time(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(HttpSocket(server.ws_port)) as line:
            return line.request(head_of()[:-2]), line.rest()

    both.see(look, OPEN + ', handshake_timeout: "300ms" }')


def test_a_request_that_is_too_long_is_refused(both: Both) -> None:
    with closing(HttpSocket(both.servers(PLAIN)[1].ws_port)) as line:
        assert line.request(b"GET / HTTP/1.1\r\nHost: " + b"x" * 70_000)[0] == 431

"""The effects of the keys of the block `websocket`, on a real process with such a port."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable
from contextlib import closing

from tests.support.websocket import DEFLATE, HttpSocket, WebSocketClient, head_of
from tests.unit.config.effects import KEY, Effect
from tests.unit.config.process_effects import LOCAL, PAIR, WAIT_S, Running, free_port

LISTENING = r"Listening for websocket clients"
Look = Callable[[Running], object]
FREE = free_port()


def port_of(running: Running) -> int:
    return int(running.address(LISTENING).rpartition(":")[2])


def host(running: Running) -> object:
    return running.address(LISTENING).rpartition(":")[0]


def status(**headers: str) -> Look:
    """Observe the status of an upgrade."""

    def observe(running: Running) -> object:
        with closing(HttpSocket(port_of(running), WAIT_S)) as line:
            return line.request(head_of("/", "GET", **headers))[0]

    return observe


def header(name: str, **headers: str) -> Look:
    """Observe a header of the answer to an upgrade."""

    def observe(running: Running) -> object:
        with closing(WebSocketClient(port_of(running), WAIT_S, None, "/", **headers)) as client:
            return client.headers.get(name)

    return observe


def login(cookie: str = "", **options: str) -> Look:
    """Observe the answer to CONNECT and PING."""

    def observe(running: Running) -> object:
        with closing(WebSocketClient(port_of(running), WAIT_S, None, "/", Cookie=cookie or None)) as client:
            client.read_until(b"\r\n")
            client.send(b"CONNECT %b\r\nPING\r\n" % json.dumps({"verbose": False, **options}).encode())
            try:
                return client.read_until(b"\r\n")[:4]
            except ConnectionError:
                return "refused"

    return observe


def ending(running: Running) -> object:
    """Observe the first line that arrives within a second without CONNECT."""
    with closing(WebSocketClient(port_of(running), 1.0)) as client:
        client.read_until(b"\r\n")
        try:
            return client.read_until(b"\r\n")
        except (TimeoutError, ConnectionError):
            return None


def closed_soon(running: Running) -> object:
    """Observe whether half a request is closed within a second."""
    with closing(HttpSocket(port_of(running), 1.0)) as line:
        started = time.monotonic()
        try:
            line.request(b"GET / HTTP/1.1\r\n")
        except TimeoutError:
            return False
        return time.monotonic() - started < 1.0


def advertised(running: Running) -> object:
    port = running.address("Starting http monitor").rpartition(":")[2]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz", timeout=WAIT_S) as reply:
        return json.load(reply)["websocket"].get("advertise")


def subject_of_server(running: Running) -> object:
    context = ssl.create_default_context(cafile=str(running.directory / "ca.pem"))
    with closing(HttpSocket(port_of(running), WAIT_S, context)) as line:
        assert isinstance(line.sock, ssl.SSLSocket)
        return line.sock.version()


def address_of_header(running: Running) -> object:
    """Observe the address of a client that connects through a proxy."""
    with closing(running.client()) as client:
        client.fence()
    with socket.create_connection(("127.0.0.1", int(running.address().rpartition(":")[2])), WAIT_S) as line:
        line.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.2 1 2\r\nCONNECT {}\r\nPING\r\n")
        text = b""
        while b"PONG" not in text and (piece := line.recv(65536)):
            text += piece
        return b"PONG" in text


def plain(key: str, observe: Look, without: str = "", beside: str = "", common: str = "") -> Effect:
    """Return the experiment with a key of the block, together with other keys."""
    return Effect(
        f'{LOCAL}\n{common}\nwebsocket {{ listen: "127.0.0.1:-1", no_tls: true, {beside}\n{KEY}\n}}',
        key,
        observe,
        without,
    )


def logins(key: str, observe: Look) -> Effect:
    return plain(f"authorization {{ {key} }}", observe, "authorization { user: x, password: y, timeout: 30 }")


USERS = "authorization { users: [{ user: a, password: b }] }"
TOKEN = "authorization { token: b }"
HTTP = 'http: "127.0.0.1:-1"'
WEBSOCKET_EFFECTS: dict[str, list[Effect]] = {
    "websocket": [
        Effect(
            f"{LOCAL}\n{KEY}",
            'websocket { listen: "127.0.0.1:-1", no_tls: true }',
            lambda running: bool(running.address(LISTENING)),
        )
    ],
    "websocket/listen": [
        Effect(f"{LOCAL}\nwebsocket {{ no_tls: true, {KEY} }}", 'listen: "127.0.0.1:-1"', host)
    ],
    "websocket/host": [
        Effect(f"{LOCAL}\nwebsocket {{ port: -1, no_tls: true, {KEY} }}", "host: 127.0.0.2", host)
    ],
    "websocket/port": [
        Effect(
            f"{LOCAL}\nwebsocket {{ host: 127.0.0.1, no_tls: true, {KEY} }}",
            f"port: {FREE}",
            port_of,
            "port: -1",
        )
    ],
    "websocket/advertise": [plain("advertise: example.com", advertised, common=HTTP)],
    "websocket/no_tls": [
        Effect(
            f'{LOCAL}\nwebsocket {{ listen: "127.0.0.1:-1", {KEY} }}',
            "no_tls: true",
            lambda running: "DO NOT USE IN PRODUCTION" in running.log(),
            f"tls {{ {PAIR} }}",
        )
    ],
    "websocket/tls": [
        plain(f"tls {{ {PAIR} }}", lambda running: running.address(LISTENING).partition(":")[0])
    ],
    "websocket/same_origin": [plain("same_origin: true", status(Origin="http://other"))],
    "websocket/allowed_origins": [plain('allowed_origins: ["http://a"]', status(Origin="http://other"))],
    "websocket/compression": [
        plain("compression: true", header("sec-websocket-extensions", Sec_WebSocket_Extensions=DEFLATE))
    ],
    "websocket/handshake_timeout": [plain('handshake_timeout: "200ms"', closed_soon)],
    "websocket/headers": [plain("headers: { X-Us: us }", header("x-us"))],
    "websocket/authorization": [plain("authorization { user: a, password: b }", login())],
    "websocket/no_auth_user": [plain("no_auth_user: a", login(), common=USERS)],
    "websocket/user_cookie": [plain("user_cookie: u", login("u=a", **{"pass": "b"}), common=USERS)],
    "websocket/pass_cookie": [plain("pass_cookie: p", login("p=b", user="a"), common=USERS)],
    "websocket/token_cookie": [plain("token_cookie: t", login("t=b"), common=TOKEN)],
    "websocket/ping_interval": [plain('ping_interval: "100ms"', ending)],
    "websocket.authorization/user": [
        logins("user: a, password: y", login(user="a", **{"pass": "y"})),
    ],
    "websocket.authorization/password": [logins("user: x, password: z", login(user="x", **{"pass": "z"}))],
    "websocket.authorization/token": [logins("token: z", login(auth_token="z"))],
    "websocket.authorization/timeout": [logins("user: x, password: y, timeout: 0.2", ending)],
}
PROXY_EFFECTS: dict[str, list[Effect]] = {
    "proxy_protocol": [Effect(f"{LOCAL}\n{KEY}", "proxy_protocol: true", address_of_header)]
}

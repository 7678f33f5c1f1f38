"""Frames of WebSocket clients: our server accepts, answers and refuses the same ones as nats-server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.websocket import PLAIN, WAIT_S, Both, WebSocketServer, both_servers
from tests.support.raw import RawClient
from tests.support.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FIN,
    PING,
    PONG,
    RSV1,
    RSV2,
    TEXT,
    WebSocketClient,
    frame,
)

pytestmark = needs_peer
INFO = re.compile(rb"INFO \{.*\} \r\n")
HI = b"SUB a 1\r\nPUB a 2\r\nhi\r\n"
Script = Callable[[WebSocketClient], None]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("websocket")) as servers:
        yield servers


def ending(script: Script, connected: bool = True) -> Callable[[WebSocketServer], list[str]]:
    def look(server: WebSocketServer) -> list[str]:
        with closing(WebSocketClient(server.ws_port)) as client:
            if connected:
                client.connect()
            script(client)
            return client.ending()

    return look


# Each of these scripts ends the connection.
ENDINGS: dict[str, Script] = {
    "close without status": lambda c: c.send(b"", FIN | CLOSE),
    "close 1000": lambda c: c.send(b"\x03\xe8", FIN | CLOSE),
    "close 1000 with text": lambda c: c.send(b"\x03\xe8done", FIN | CLOSE),
    "close 1001": lambda c: c.send(b"\x03\xe9going away", FIN | CLOSE),
    "close 3000": lambda c: c.send(b"\x0b\xb8mine", FIN | CLOSE),
    "close 4999": lambda c: c.send(b"\x13\x87mine", FIN | CLOSE),
    "close with text that is not UTF-8": lambda c: c.send(b"\x03\xe8\xff\xfe", FIN | CLOSE),
    "close with the longest text": lambda c: c.send(b"\x03\xe8" + b"x" * 123, FIN | CLOSE),
    "a publish and a close in one packet": lambda c: c.raw(
        frame(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") + frame(b"\x03\xe8", FIN | CLOSE)
    ),
    "a message larger than max_payload": lambda c: c.send(b"PUB a 2000000\r\n"),
    "a line that is too long": lambda c: c.send(b"SUB " + b"a" * 5000 + b" 1\r\n"),
}


@pytest.mark.parametrize("script", ENDINGS.values(), ids=ENDINGS)
def test_a_connection_ends_in_the_same_way(both: Both, script: Script) -> None:
    assert both.see(ending(script))


# Each of these is refused with this text. In most runs nats-server does not send its close frame, see
# docs/compatibility.md.
FAULTS: dict[str, tuple[str, Script]] = {
    "a frame without mask": ("mask bit missing", lambda c: c.send(b"PING\r\n", masked=False)),
    "RSV2 is set": ("RSV2 and RSV3 must be clear", lambda c: c.send(b"PING\r\n", FIN | RSV2 | BINARY)),
    "RSV1 without compression": (
        "compressed frame received without negotiated permessage-deflate",
        lambda c: c.send(b"PING\r\n", FIN | RSV1 | BINARY),
    ),
    "an unknown opcode": ("unknown opcode 3", lambda c: c.send(b"", FIN | 3)),
    "an unknown control opcode": ("unknown opcode 11", lambda c: c.send(b"", FIN | 11)),
    "a ping that is too long": (
        "control frame length bigger than maximum allowed of 125 bytes",
        lambda c: c.raw(frame(b"x" * 126, FIN | PING)),
    ),
    "a ping in fragments": ("control frame does not have final bit set", lambda c: c.send(b"x", PING)),
    "a compressed ping": (
        "compressed frame received without negotiated permessage-deflate",
        lambda c: c.send(b"x", FIN | RSV1 | PING),
    ),
    "a continuation of nothing": (
        "invalid continuation frame",
        lambda c: c.send(b"PING\r\n", FIN | CONTINUATION),
    ),
    "a message in a message": (
        "new message started before final frame for previous message was received",
        lambda c: c.raw(frame(b"PI", BINARY) + frame(b"PING\r\n")),
    ),
    "a length of 64 bits with its first bit": (
        "invalid 64-bit payload length",
        lambda c: c.raw(b"\x82\xff\x80" + b"\0" * 7 + b"abcd"),
    ),
    "close with one byte": (
        "close frame payload cannot be 1 byte",
        lambda c: c.send(b"\x03", FIN | CLOSE),
    ),
    "close 999": ("invalid close status code 999", lambda c: c.send(b"\x03\xe7", FIN | CLOSE)),
    "close 1005": ("invalid close status code 1005", lambda c: c.send(b"\x03\xed", FIN | CLOSE)),
    "close 1006": ("invalid close status code 1006", lambda c: c.send(b"\x03\xee", FIN | CLOSE)),
    "close 1015": ("invalid close status code 1015", lambda c: c.send(b"\x03\xf7", FIN | CLOSE)),
    "close 2000": ("invalid close status code 2000", lambda c: c.send(b"\x07\xd0", FIN | CLOSE)),
    "close 5000": ("invalid close status code 5000", lambda c: c.send(b"\x13\x88", FIN | CLOSE)),
    "a ping before a fault": (
        "unknown opcode 5",
        lambda c: c.raw(frame(b"", FIN | PING) + frame(b"", FIN | 5)),
    ),
}


@pytest.mark.parametrize(("text", "script"), FAULTS.values(), ids=FAULTS)
def test_a_fault_has_the_same_text_and_reason(both: Both, text: str, script: Script) -> None:
    def look(server: WebSocketServer) -> object:
        lines = ending(script)(server)
        assert [line for line in lines if line.startswith("close")] in ([f"close 1002 {text}"], [])
        assert server.logged(f"read error: {text}", WAIT_S)
        return server.page("/connz?state=closed&sort=stop")["connections"][0]["reason"]

    assert both.see(look) == "Read Error"
    assert ending(script)(both.servers(PLAIN)[1])[-1] == f"close 1002 {text}"


@pytest.mark.parametrize("line", [b"FOO\r\n", b"GET / HTTP/1.1\r\n\r\n"])
def test_an_unknown_operation_is_refused_as_elsewhere(both: Both, line: bytes) -> None:
    lines = ending(lambda c: c.send(line))(both.servers(PLAIN)[1])
    assert lines == ["-ERR 'Unknown Protocol Operation'", "close 1002 Protocol Violation"]


# Each of these leaves the connection open: its answers come, then a PONG.
EXCHANGES: dict[str, bytes] = {
    "a message to itself": frame(HI),
    "a text frame": frame(HI, FIN | TEXT),
    "one byte in each frame": b"".join(frame(bytes((byte,))) for byte in HI),
    "fragments": frame(HI[:11], BINARY)
    + frame(HI[11:17], CONTINUATION)
    + frame(b"", CONTINUATION)
    + frame(HI[17:], FIN | CONTINUATION),
    "a ping between fragments": frame(HI[:11], BINARY)
    + frame(b"echo", FIN | PING)
    + frame(HI[11:], FIN | CONTINUATION),
    "an empty frame": frame(b""),
    "an empty ping": frame(b"", FIN | PING),
    "the longest ping": frame(b"x" * 125, FIN | PING),
    "a pong that nobody asked for": frame(b"hello", FIN | PONG),
    "several frames in one packet": frame(b"SUB a 1\r\n")
    + frame(b"PUB a 1\r\nx\r\n")
    + frame(b"PUB a 1\r\ny\r\n"),
    "a frame of 126 bytes": frame(b"SUB a 1\r\nPUB a 99\r\n" + b"x" * 99 + b"\r\n"),
    "a frame of 70000 bytes": frame(b"SUB a 1\r\nPUB a 70000\r\n" + b"x" * 70000 + b"\r\n"),
    "a length in more bytes than it needs": b"\x82\xfe\x00\x09\0\0\0\0SUB a 1\r\n",
    "no responders": frame(b"SUB inbox 1\r\nPUB nobody inbox 0\r\n\r\n"),
}


@pytest.mark.parametrize("data", EXCHANGES.values(), ids=EXCHANGES)
def test_frames_are_taken_in_the_same_way(both: Both, data: bytes) -> None:
    def look(server: WebSocketServer) -> tuple[list[str], bytes]:
        with closing(WebSocketClient(server.ws_port)) as client:
            client.connect()
            client.raw(data)
            client.send(b"PING\r\n")
            controls: list[str] = []
            while b"PONG\r\n" not in client.messages[-6:]:
                found = client.next_frame()
                assert found is not None
                if found.first & 15 == PONG:
                    controls.append(found.shown())
                else:
                    client.messages += found.payload
            return controls, INFO.sub(b"", client.messages)

    both.see(look)


def test_frames_may_be_split_anywhere(both: Both) -> None:
    data = frame(b"SUB a 1\r\n") + frame(b"x", FIN | PING) + frame(b"PUB a 200\r\n" + b"y" * 200 + b"\r\n")

    def look(server: WebSocketServer) -> bytes:
        with closing(WebSocketClient(server.ws_port)) as client:
            client.connect()
            for byte in data:
                client.raw(bytes((byte,)))
            return INFO.sub(b"", client.read_until(b"y\r\n"))

    both.see(look)


def test_an_unmasked_connection_is_agreed_upon(both: Both) -> None:
    def look(server: WebSocketServer) -> tuple[str | None, bytes]:
        with closing(WebSocketClient(server.ws_port, Nats_No_Masking="true")) as client:
            client.read_until(b"\r\n")
            client.send(b"SUB a 1\r\nPUB a 2\r\nhi\r\n", masked=False)
            return client.headers.get("nats-no-masking"), client.read_until(b"hi\r\n")

    both.see(look)


def test_a_browser_gets_small_frames(both: Both) -> None:
    def look(server: WebSocketServer) -> int:
        with closing(WebSocketClient(server.ws_port, User_Agent="Mozilla/5.0")) as client:
            client.connect().send(b"SUB a 1\r\nPUB a 50000\r\n" + b"x" * 50000 + b"\r\n")
            sizes: list[int] = []
            while sum(sizes) < 50000:
                found = client.next_frame()
                assert found is not None
                sizes.append(len(found.payload))
            return max(sizes)

    assert both.see(look) == 4096


def test_messages_pass_between_websocket_and_other_clients(both: Both) -> None:
    def look(server: WebSocketServer) -> tuple[bytes, bytes]:
        with closing(WebSocketClient(server.ws_port)) as page, closing(RawClient(server.port)) as other:
            page.connect().send(b"SUB to.page 1\r\nPING\r\n")
            page.read_until(b"PONG\r\n")
            other.send(b"SUB to.other 5\r\n")
            other.fence()
            other.send(b"PUB to.page 4\r\nping\r\n")
            got = page.read_until(b"ping\r\n")
            page.send(b"PUB to.other 4\r\npong\r\n")
            return INFO.sub(b"", got), other.read_until(b"pong\r\n")

    both.see(look)


def info(server: WebSocketServer, port: int) -> dict[str, Any]:
    with closing(WebSocketClient(port)) as client:
        line = client.read_until(b"\r\n")
    found: dict[str, Any] = json.loads(line.removeprefix(b"INFO "))
    return found


def test_info_names_the_websocket_port(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        found = info(server, server.ws_port)
        assert found["port"] == server.ws_port
        return [name for name in found if name not in ("pyjs_version", "git_commit")], found["host"]

    both.see(look)


def test_a_client_shows_in_the_pages(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port, X_Forwarded_For="203.0.113.7")) as client:
            client.connect()
            found = server.page("/connz")["connections"]
            assert len(found) == 1
            assert {"ip": "127.0.0.1", "type": "websocket", "kind": "Client"}.items() <= found[0].items()
            block = server.page("/varz")["websocket"]
            assert block.pop("port") == server.ws_port
            return sorted(found[0]), block

    both.see(look)


def test_a_closed_client_shows_its_reason(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port)) as client:
            client.connect().send(b"", FIN | 7)
            client.ending()
        found = server.page("/connz?state=closed&sort=stop")["connections"][0]
        return found["type"], found["reason"]

    both.see(look)


def test_log_lines_are_the_same(both: Both) -> None:
    config = 'debug: true\nwebsocket { listen: "127.0.0.1:<<ws>>", no_tls: true }'

    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port, X_Forwarded_For="203.0.113.7")) as client:
            client.connect().send(b"", masked=False)
            client.ending()
        with closing(WebSocketClient(server.ws_port, X_Forwarded_For="2001:db8::1")) as client:
            client.connect().send(b"\x03\xe8", FIN | CLOSE)
            client.ending()
        assert server.logged("connection closed: Client Closed", WAIT_S)
        lines = server.log_lines("clients on", "Websocket", "wid:")
        return [line.replace(str(server.ws_port), "PORT") for line in lines]

    assert len(both.see(look, config)) >= 6


def test_the_most_connections_count_websocket_clients(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port)) as first:
            first.connect()
            with closing(WebSocketClient(server.ws_port)) as second:
                return second.ending()

    both.see(look, 'max_connections: 1\nwebsocket { listen: "127.0.0.1:<<ws>>", no_tls: true }')


def test_pings_of_the_block_come_and_a_dead_client_is_closed(both: Both) -> None:
    config = 'ping_max: 1\nwebsocket { listen: "127.0.0.1:<<ws>>", no_tls: true, ping_interval: "200ms" }'

    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port)) as client:
            client.connect()
            lines = client.ending()
            return lines[:1], lines[-2:]

    both.see(look, config)


def test_lame_duck_mode_closes_the_port_and_then_the_clients(both: Both) -> None:
    config = (
        'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n'
        'websocket { listen: "127.0.0.1:<<ws>>", no_tls: true }'
    )

    def look(server: WebSocketServer) -> object:
        with closing(WebSocketClient(server.ws_port)) as client:
            client.connect()
            server.signal("USR2")
            found = client.read_until(b"\r\n")
            while b'"ldm":true' not in found:
                found = client.read_until(b"\r\n")
            with pytest.raises(ConnectionRefusedError):
                WebSocketClient(server.ws_port)
            return client.ending()

    both.see(look, config)

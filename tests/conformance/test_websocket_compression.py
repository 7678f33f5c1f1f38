"""Compressed messages of WebSocket clients, in both directions: in fragments, damaged, and too large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.websocket import WAIT_S, Both, WebSocketServer, both_servers
from tests.support.websocket import BINARY, CONTINUATION, FIN, PING, RSV1, WebSocketClient, frame, packed

pytestmark = needs_peer
CONFIG = 'websocket { listen: "127.0.0.1:<<ws>>", no_tls: true, compression: true }'
EXTENSION = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
TEXT = b"SUB a 1\r\nPUB a 5\r\nhello\r\n"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_servers(tmp_path_factory.mktemp("compression")) as servers:
        yield servers


def client_of(server: WebSocketServer, agent: str | None = None) -> WebSocketClient:
    client = WebSocketClient(server.ws_port, Sec_WebSocket_Extensions=EXTENSION, User_Agent=agent)
    assert "permessage-deflate" in client.headers["sec-websocket-extensions"]
    return client.connect()


def split(data: bytes, *places: int) -> list[bytes]:
    ends = [*places, len(data)]
    return [data[start:end] for start, end in zip([0, *places], ends, strict=True)]


MESSAGES = {
    "in one frame": frame(packed(TEXT), FIN | RSV1 | BINARY),
    "not compressed": frame(TEXT),
    "in fragments": b"".join(
        frame(part, first)
        for part, first in zip(
            split(packed(TEXT), 3, 9), (RSV1 | BINARY, CONTINUATION, FIN | CONTINUATION), strict=True
        )
    ),
    "with a ping between": frame(packed(TEXT)[:5], RSV1 | BINARY)
    + frame(b"", FIN | PING)
    + frame(packed(TEXT)[5:], FIN | CONTINUATION),
    "one after the other": frame(packed(TEXT[:9]), FIN | RSV1 | BINARY)
    + frame(packed(TEXT[9:]), FIN | RSV1 | BINARY),
    "a publish in two": frame(packed(TEXT[:20]), FIN | RSV1 | BINARY) + frame(TEXT[20:]),
}


@pytest.mark.parametrize("data", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_inflated(both: Both, data: bytes) -> None:
    def look(server: WebSocketServer) -> bytes:
        with closing(client_of(server)) as client:
            client.raw(data)
            return client.read_until(b"hello\r\n")[-11:]

    both.see(look, CONFIG)


@pytest.mark.parametrize("size", [1, 30, 100, 5000, 100_000, 1_000_000])
def test_output_is_compressed_from_a_size_on(both: Both, size: int) -> None:
    def look(server: WebSocketServer) -> bool:
        with closing(client_of(server)) as client:
            client.send(b"SUB a 1\r\nPING\r\n")
            client.read_until(b"PONG\r\n")
            client.send(b"PUB a %d\r\n%b\r\n" % (size, b"x" * size))
            found = client.next_frame()
            assert found is not None
            client._add(found)
            client.read_until(b"x\r\n")
            return bool(found.first & RSV1)

    both.see(look, CONFIG)


def test_a_browser_gets_compressed_fragments(both: Both) -> None:
    def look(server: WebSocketServer, agent: str) -> list[tuple[int, bool]]:
        data = bytes(range(256)) * 20 + bytes(i * i % 251 for i in range(20_000))
        with closing(client_of(server, agent)) as client:
            client.send(b"SUB a 1\r\nPING\r\n")
            client.read_until(b"PONG\r\n")
            client.send(b"PUB a %d\r\n%b\r\n" % (len(data), data))
            heads: list[tuple[int, bool]] = []
            while not heads or not heads[-1][0] & FIN:
                found = client.next_frame()
                assert found is not None
                heads.append((found.first, len(found.payload) <= 4096))
            return sorted(set(heads))

    for agent in ("Mozilla/5.0 Chrome/1", "Mozilla/5.0 Version/1 Safari/1"):
        found = [look(server, agent) for server in both.servers(CONFIG)]
        assert found[0][0][1] == found[1][0][1]


def test_a_bomb_is_refused(both: Both) -> None:
    bomb = packed(b"PUB a 50000000\r\n" + bytes(50_000_000))
    assert len(bomb) < 100_000

    def look(server: WebSocketServer) -> object:
        count = server.closed_count()
        with closing(client_of(server)) as client:
            client.raw(frame(bomb, FIN | RSV1 | BINARY))
            client.ending()
        return server.newly_closed(count)["reason"]

    both.see(look, CONFIG)


def test_a_message_that_inflates_beyond_max_payload_is_refused(both: Both) -> None:
    """Even if its operations are valid; those before the limit take effect."""
    text = b"PUB a 100000\r\n" + b"x" * 100_000 + b"\r\n"

    def look(server: WebSocketServer) -> object:
        count = server.closed_count()
        with closing(client_of(server)) as client:
            client.raw(frame(packed(text * 20), FIN | RSV1 | BINARY))
            client.ending()
        assert server.logged("read error: maximum payload exceeded", WAIT_S)
        return server.newly_closed(count)["reason"]

    both.see(look, CONFIG)
    # nats-server does not count them
    assert both.servers(CONFIG)[1].page("/connz?state=closed&sort=stop")["connections"][0]["in_msgs"] == 10


def test_an_empty_last_fragment_ends_a_message(both: Both) -> None:
    """nats-server instead waits for the next frame."""
    with closing(client_of(both.servers(CONFIG)[1])) as client:
        client.raw(frame(packed(TEXT), RSV1 | BINARY) + frame(b"", FIN | CONTINUATION))
        client.read_until(b"hello\r\n")


def test_a_compressed_message_has_a_limit_of_its_own(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(client_of(server)) as client:
            part = bytes(1_000_000)
            try:
                client.raw(frame(part, RSV1 | BINARY))
                for _ in range(9):
                    client.raw(frame(part, CONTINUATION))
            except ConnectionError:
                pass
            client.ending()
        return server.page("/connz?state=closed&sort=stop")["connections"][0]["reason"]

    both.see(look, CONFIG)


def test_damaged_data_is_refused(both: Both) -> None:
    def look(server: WebSocketServer) -> object:
        with closing(client_of(server)) as client:
            client.raw(frame(b"\xff" * 20, FIN | RSV1 | BINARY))
            client.ending()
        assert server.logged("read error: flate: corrupt input", WAIT_S)
        return server.page("/connz?state=closed&sort=stop")["connections"][0]["reason"]

    both.see(look, CONFIG)

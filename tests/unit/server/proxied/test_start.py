"""The start of a connection that may come through a proxy.

Texts of errors: tests/conformance/test_proxy_protocol.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pyjs.base.log import ListLog
from pyjs.config.options import Options
from pyjs.server.proxied import start as start_module
from pyjs.server.server import Server

WAIT_S = 60.0
HEADER = b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 4222\r\n"
CONNECT = b'CONNECT {"verbose":false}\r\nPING\r\n'
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    running = Server(Options(host="127.0.0.1", port=-1, proxy_protocol=True), ListLog())
    await running.start()
    yield running
    await running.stop()


async def caller_of(server: Server) -> Streams:
    """Connect to the server, and read its first INFO."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.client_port)
    await asyncio.wait_for(reader.readuntil(b"\r\n"), WAIT_S)
    return reader, writer


def warnings(server: Server) -> list[str]:
    return [text for _, text in server.node.log.lines if "reading PROXY" in text]  # type: ignore[attr-defined]


async def addresses(server: Server, caller: Streams) -> list[str]:
    """Return the addresses of the server's clients once the caller has logged in."""
    await asyncio.wait_for(caller[0].readuntil(b"PONG\r\n"), WAIT_S)
    return [session.peer.ip for session in server.node.sessions.values()]


async def test_a_header_byte_by_byte_changes_the_address(server: Server) -> None:
    reader, writer = await caller_of(server)
    for byte in HEADER:
        writer.write(bytes((byte,)))
        await writer.drain()
    writer.write(CONNECT)
    assert await addresses(server, (reader, writer)) == ["192.0.2.1"]
    writer.close()


async def test_operations_in_the_packet_of_the_header_are_read(server: Server) -> None:
    reader, writer = await caller_of(server)
    writer.write(HEADER + CONNECT)
    assert await addresses(server, (reader, writer)) == ["192.0.2.1"]
    writer.close()


async def test_a_client_without_a_header_keeps_its_address(server: Server) -> None:
    reader, writer = await caller_of(server)
    writer.write(CONNECT)
    assert await addresses(server, (reader, writer)) == ["127.0.0.1"]
    writer.close()


async def test_a_damaged_header_ends_the_connection_once(server: Server) -> None:
    reader, writer = await caller_of(server)
    writer.write(b"PROXY NONSENSE\r\n")
    await writer.drain()
    writer.write(CONNECT)
    await asyncio.wait_for(reader.read(), WAIT_S)
    assert len(warnings(server)) == 1
    assert server.node.closed[0].closed_reason == "Protocol Violation"


@pytest.mark.parametrize("part", [b"", b"PROXY ", HEADER[:-1]])
async def test_the_end_of_the_input_inside_the_header_ends_the_connection(
    server: Server, part: bytes
) -> None:
    reader, writer = await caller_of(server)
    writer.write(part)
    writer.write_eof()
    await asyncio.wait_for(reader.read(), WAIT_S)
    assert "EOF" in warnings(server)[0]


@pytest.mark.parametrize("part", [b"", b"PROXY TCP4"])
async def test_a_header_that_does_not_come_in_time_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, server: Server, part: bytes
) -> None:
    monkeypatch.setattr(start_module, "PREFIX_S", 0.05 if not part else 30.0)
    monkeypatch.setattr(start_module, "HEADER_S", 0.05)
    reader, writer = await caller_of(server)
    writer.write(part)
    await asyncio.wait_for(reader.read(), WAIT_S)
    assert "i/o timeout" in warnings(server)[0]


async def test_bytes_of_the_header_do_not_extend_its_time(
    monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    monkeypatch.setattr(start_module, "HEADER_S", 0.2)
    reader, writer = await caller_of(server)
    writer.write(HEADER[:6])
    ended = asyncio.ensure_future(reader.read())
    sent = 6
    while not ended.done() and sent < len(HEADER) - 1:
        writer.write(HEADER[sent : sent + 1])
        sent += 1
        await asyncio.wait([ended], timeout=0.02)
    await asyncio.wait_for(ended, WAIT_S)
    assert sent < len(HEADER) - 1


async def test_a_client_that_leaves_before_its_header_leaves_nothing_behind(server: Server) -> None:
    reader, writer = await caller_of(server)
    writer.transport.abort()
    await asyncio.wait_for(server.connections.wait_empty(), WAIT_S)
    assert not server.node.sessions
    assert reader.exception() is None or reader.at_eof()

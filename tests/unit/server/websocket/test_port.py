"""The port for WebSocket clients: its addresses, its certificates, the order in which it starts, and its end."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from pathlib import Path

import pytest
from tests.support.certificates import COMMON, LOCAL, Authority, subject
from tests.support.websocket import head_of
from tests.unit.server.websocket.doors import WAIT_S, Caller, options_of, port_of, started

from pyjs.config.options import Options, TlsOptions
from pyjs.server.connection import Connection
from pyjs.server.failures import StartFailed
from pyjs.server.tls.context import TlsFailed
from pyjs.server.tls.transport import TlsTransport
from pyjs.server.websocket.transport import WebSocketTransport


def encrypted(folder: Path) -> Options:
    authority = Authority(folder)
    authority.issue("server", subject(("localhost", COMMON)), *LOCAL)
    options = options_of()
    options.websocket.no_tls = False
    options.websocket.tls = TlsOptions(
        cert_file=str(folder / "server.pem"), key_file=str(folder / "server-key.pem")
    )
    return options


async def test_without_tls_it_warns() -> None:
    server = await started(options_of())
    port = port_of(server)
    assert (port.scheme, port.urls) == ("ws", [f"ws://127.0.0.1:{port.port}"])
    assert server.websocket_url == port.urls[0]
    texts = [text for _, text in server.node.log.lines]  # type: ignore[attr-defined]
    assert "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!" in texts
    await server.stop()


async def test_with_tls_the_handshake_comes_first(tmp_path: Path) -> None:
    server = await started(encrypted(tmp_path))
    port = port_of(server)
    assert port.scheme == "wss"
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    streams = await asyncio.open_connection("localhost", port.port, ssl=context)
    caller = Caller(*streams)
    caller.writer.write(head_of())
    assert b" 101 " in await caller.until(b"\r\n\r\n")
    caller.close()
    await server.stop()


async def test_http_without_tls_gets_plain_text(tmp_path: Path) -> None:
    server = await started(encrypted(tmp_path))
    caller = await Caller.of(server)
    caller.writer.write(head_of())
    assert (
        await caller.rest()
        == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    )
    await server.stop()


async def test_a_reload_with_an_unusable_certificate_is_refused_before_it_changes_anything(
    tmp_path: Path,
) -> None:
    options = encrypted(tmp_path)
    server = await started(options)
    port = port_of(server)
    before = port.read_reloaded(options)
    (tmp_path / "server.pem").write_text("nothing")
    with pytest.raises(TlsFailed, match=r"server\.pem"):
        port.read_reloaded(options)
    port.reloaded(options, before)
    assert port.scheme == "wss"
    await server.stop()


async def test_a_port_that_is_taken_fails_the_start() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = options_of()
        options.websocket.port = taken.getsockname()[1]
        with pytest.raises(StartFailed, match="Unable to listen for websocket connections"):
            await started(options)


async def test_many_requests_at_once_are_answered_all() -> None:
    server = await started(options_of())
    callers = [await Caller.of(server) for _ in range(50)]
    for caller in callers:
        caller.writer.write(head_of())
    for caller in callers:
        assert b" 101 " in await caller.until(b"\r\n\r\n")
        caller.close()
    await server.stop()


async def test_a_fault_in_one_answer_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    server = await started(options_of())
    answer, answered = WebSocketTransport.answer_request, []

    def fails_once(transport: WebSocketTransport) -> None:
        answered.append(transport)
        if len(answered) == 1:
            raise ZeroDivisionError
        answer(transport)

    monkeypatch.setattr(WebSocketTransport, "answer_request", fails_once)
    first, second = await Caller.of(server), await Caller.of(server)
    first.writer.write(head_of())
    async with asyncio.timeout(WAIT_S):
        while not answered:
            await asyncio.sleep(0)
    second.writer.write(head_of())
    assert b" 101 " in await second.until(b"\r\n\r\n")
    second.close()
    await server.stop()


async def test_a_connection_without_a_request_is_closed_in_time() -> None:
    server = await started(options_of(handshake_timeout_ns=50_000_000))
    caller = await Caller.of(server)
    assert await caller.rest() == b""
    await server.stop()


async def test_a_complete_request_waits_for_its_answer_without_a_time_limit() -> None:
    server = await started(options_of(handshake_timeout_ns=50_000_000))
    port = port_of(server)
    port._answering = True  # as if many other upgrades were waiting
    caller = await Caller.of(server)
    caller.writer.write(head_of())
    async with asyncio.timeout(WAIT_S):
        while not port._complete:
            await asyncio.sleep(0)
    assert port._complete[0]._timer is None
    port._answer()
    assert b" 101 " in await caller.until(b"\r\n\r\n")
    caller.close()
    await server.stop()


async def test_a_stop_closes_connections_that_sent_no_request() -> None:
    server = await started(options_of())
    silent = await Caller.of(server)
    halfway = await Caller.of(server)
    halfway.writer.write(b"GET / HT")
    upgraded = await Caller.upgraded(server)
    await asyncio.wait_for(server.stop(), WAIT_S)
    for caller in (silent, halfway):
        try:
            assert await caller.rest() == b""
        except ConnectionResetError:
            pass
    assert (await upgraded.rest())[:1] == b"\x88"  # a close frame


def doors_left() -> int:
    """Return how many transports and connections exist."""
    return sum(type(each) in (TlsTransport, WebSocketTransport, Connection) for each in gc.get_objects())


async def test_closed_connections_with_tls_leave_no_cycles(tmp_path: Path) -> None:
    server = await started(encrypted(tmp_path))
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    gc.collect()
    before = doors_left()
    gc.disable()
    try:
        reader, writer = await asyncio.open_connection("localhost", port_of(server).port, ssl=context)
        writer.write(head_of())
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        half = await Caller.of(server)
        half.writer.write(b"\x16\x03\x01")
        await half.writer.drain()
        half.close()
        writer.transport.abort()
        await asyncio.wait_for(port_of(server)._pending.wait_empty(), WAIT_S)
        await asyncio.wait_for(server.connections.wait_empty(), WAIT_S)
        async with asyncio.timeout(WAIT_S):
            while doors_left() > before:
                await asyncio.sleep(0)
    finally:
        gc.enable()
    await server.stop()

"""Peers of the monitoring port that read their answers slowly, in parts or not at all."""

import asyncio
import contextlib
import socket

import pytest
from tests.unit.server.monitoring.conftest import Site

from pyjs.server.monitoring.http import BUFFER_HIGH, STALLED_S


async def test_a_peer_that_asks_and_does_not_read_costs_little_and_gets_every_answer(site: Site) -> None:
    reader, writer = await site.connect(limit=1000)
    asked = 60
    writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * (asked - 1))
    writer.write(b"GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    await writer.drain()
    while not site.connections or not next(iter(site.connections)).pending_size():
        await asyncio.sleep(0.001)
    (connection,) = site.connections

    assert connection.pending_size() < 3 * BUFFER_HIGH
    answer = await asyncio.wait_for(reader.read(), 30)

    assert answer.count(b"HTTP/1.1 200 OK") == asked
    writer.close()


async def test_a_peer_that_reads_some_answers_and_asks_on_is_not_listened_to(site: Site) -> None:
    asked = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * 60
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.setblocking(False)
        peer.send(asked)
        while not site.connections or not next(iter(site.connections)).pending_size():
            await asyncio.sleep(0.001)
        (connection,) = site.connections
        answered = len(connection._requests)
        # each time there was room again, the client filled it
        while len(connection._requests) > answered - 5:
            await site.loop.sock_recv(peer, 1 << 20)

        for _ in range(100):
            with contextlib.suppress(BlockingIOError):
                peer.send(asked)
            await asyncio.sleep(0.001)

        assert len(connection._requests) < 60
        connection.abort()


@pytest.mark.usefixtures("hasty")
async def test_a_peer_that_reads_no_answer_is_dropped(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.setblocking(False)
        peer.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n" * 60)
        while not site.connections:
            await asyncio.sleep(0.001)

        await asyncio.wait_for(site.connections.wait_empty(), 60)


@pytest.mark.usefixtures("hasty")
async def test_a_peer_that_does_not_read_the_last_answer_is_dropped(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.send(b"GET /huge HTTP/1.1\r\nConnection: close\r\n\r\n")
        while not site.connections:
            await asyncio.sleep(0.001)

        await asyncio.wait_for(site.connections.wait_empty(), 60)


async def test_a_peer_that_reads_the_last_answer_slowly_is_not_dropped(site: Site) -> None:
    with socket.create_connection(("127.0.0.1", site.port)) as peer:
        peer.setblocking(False)
        peer.send(b"GET /huge HTTP/1.1\r\nConnection: close\r\n\r\n")
        while not site.connections or not next(iter(site.connections)).transport.is_closing():
            await asyncio.sleep(0.001)
        (connection,) = site.connections
        connection.check_deadline(site.loop.time())
        unsent = connection.pending_size()
        while connection.pending_size() == unsent:
            await site.loop.sock_recv(peer, 1 << 20)

        connection.check_deadline(site.loop.time() + STALLED_S + 1)
        left = connection.pending_size()
        connection.check_deadline(site.loop.time() + STALLED_S + 1)  # nothing was read since the last check

        assert left
        await asyncio.wait_for(site.connections.wait_empty(), 60)


async def test_a_peer_that_reads_less_than_the_kernel_accepts_at_once_is_not_dropped(site: Site) -> None:
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        peer.connect(("127.0.0.1", site.port))
        peer.setblocking(False)
        peer.send(b"GET /huge HTTP/1.1\r\nConnection: close\r\n\r\n")
        while not site.connections or not next(iter(site.connections)).transport.is_closing():
            await asyncio.sleep(0.001)
        (connection,) = site.connections
        now, unread = site.loop.time(), 0
        while unread != connection.unread_size():  # until the buffers of both sides are full
            unread = connection.unread_size()
            await asyncio.sleep(0.01)
        connection.check_deadline(now)
        unsent = connection.pending_size()
        while connection.unread_size() == unread:
            await site.loop.sock_recv(peer, 4096)

        connection.check_deadline(now + STALLED_S + 1)
        await asyncio.sleep(0.01)

        assert (len(site.connections), connection.pending_size()) == (1, unsent)
        # the peer's system may announce the new room later
        while unread != connection.unread_size():
            unread = connection.unread_size()
            await asyncio.sleep(0.01)
        connection.check_deadline(now)
        connection.check_deadline(now + 2 * STALLED_S + 2)  # nothing was read since the last check
        await asyncio.wait_for(site.connections.wait_empty(), 60)

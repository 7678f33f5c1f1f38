"""Bulk reads by a client over TCP while other clients publish, delete and compact; clients without permission."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig
from tests.conformance.harness.process import ServerProcess
from tests.support.bulk import Chunk, decode

StartServer = Callable[..., ServerProcess]
READ = "$JS.API.PYJS.BULK.READ.S"
USERS = """
authorization {
  users: [
    {user: admin, password: a}
    {user: reader, password: r, permissions: {publish: {deny: "$JS.API.PYJS.>"}}}
  ]
}
"""


@asynccontextmanager
async def connected(server: ServerProcess, **options: Any) -> AsyncIterator[Client]:
    client = await nats.connect(f"nats://127.0.0.1:{server.port}", allow_reconnect=False, **options)
    try:
        yield client
    finally:
        await client.close()


async def read_range(client: Client, seq: int = 1, **fields: Any) -> list[Chunk]:
    """Read from `seq` to the end, one request after another."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox, pending_msgs_limit=-1, pending_bytes_limit=-1)
    chunks: list[Chunk] = []
    while not chunks or not chunks[-1].is_end:
        at = chunks[-1].next if chunks else seq
        await client.publish(READ, json.dumps({"seq": at, **fields}).encode(), reply=inbox)
        while True:
            message = await answers.next_msg(timeout=60)
            assert not message.data.startswith(b"{"), message.data
            chunks.append(decode(message.data))
            if chunks[-1].is_last:
                break
    await answers.unsubscribe()
    return chunks


async def publish(client: Client, first: int, count: int) -> None:
    js = client.jetstream()
    for at in range(first, first + count, 200):
        numbers = range(at, min(at + 200, first + count))
        await asyncio.gather(
            *(js.publish(f"s.{n % 7}", b"%d " % n * 40, headers={"N": str(n)}) for n in numbers)
        )


@pytest.mark.parametrize("storage", [StorageType.FILE, StorageType.MEMORY])
async def test_a_stream_is_read_whole_over_tcp(start_server: StartServer, storage: StorageType) -> None:
    server = start_server()
    async with connected(server) as client:
        await client.jetstream().add_stream(
            StreamConfig(name="S", subjects=["s.>"], storage=storage, allow_direct=True)
        )
        await publish(client, 1, 4000)
        chunks = await read_range(client, chunk_bytes=200_000)
        messages = [message for chunk in chunks for message in chunk.messages()]
    assert [message.seq for message in messages] == list(range(1, 4001))
    assert all(message.subject == b"s.%d" % (int(message.payload.split()[0]) % 7) for message in messages)
    assert all(b"N: %s\r\n" % message.payload.split()[0] in message.headers for message in messages)
    assert len(chunks) > 4


async def test_reading_goes_on_while_messages_come_and_go(start_server: StartServer) -> None:
    server = start_server()
    async with connected(server) as client, connected(server) as other:
        js = other.jetstream()
        await js.add_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True, max_msgs=6000))
        await publish(other, 1, 3000)

        async def churn() -> None:
            for n in range(10):
                await publish(other, 3001 + 400 * n, 400)
                await asyncio.gather(*(js.delete_msg("S", seq) for seq in range(2000 + 2 * n, 2900, 20)))

        work = asyncio.ensure_future(churn())
        seen: set[int] = set()
        rounds = 0
        while not work.done() or rounds < 3:
            chunks = await read_range(client, max_bytes=100_000, chunk_bytes=30_000)
            seqs = [message.seq for chunk in chunks for message in chunk.messages()]
            assert seqs == sorted(set(seqs))
            seen |= set(seqs)
            rounds += 1
        await work
        left = {seq for chunk in await read_range(client) for seq in (entry.seq for entry in chunk.entries)}
        info = await js.stream_info("S")
    assert len(left) == info.state.messages
    assert left <= seen | set(range(info.state.first_seq, info.state.last_seq + 1))


async def test_a_client_that_may_not_publish_there_is_refused(start_server: StartServer) -> None:
    server = start_server(USERS)
    told: list[str] = []

    async def note(error: Exception) -> None:
        told.append(str(error))

    async with connected(server, user="admin", password="a") as client:
        await client.jetstream().add_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True))
        assert (await read_range(client))[0].is_end
    async with connected(server, user="reader", password="r", error_cb=note) as client:
        with pytest.raises(nats.errors.TimeoutError):
            await client.request(READ, b"", timeout=0.5)
    assert any("permissions violation for publish" in text.lower() for text in told)


async def test_a_slow_reader_is_not_closed_for_what_it_asked_for(start_server: StartServer) -> None:
    server = start_server("max_pending: 2MB")
    async with connected(server) as client:
        await client.jetstream().add_stream(StreamConfig(name="S", subjects=["s.>"], allow_direct=True))
        await publish(client, 1, 20_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = b'{"max_bytes":1048576,"chunk_bytes":9999}'
        ask = b"PUB %b i %d\r\n%b\r\n" % (READ.encode(), len(body), body)
        writer.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB i 1\r\n' + 16 * ask)
        # The server runs its turns, and no client reads the answers.
        await client.request(READ, b"", timeout=60)
        got = b""
        while len(re.findall(rb"PYJB\x01\x00[\x01\x03]", got)) < 16:
            data = await asyncio.wait_for(reader.read(1 << 20), 60)
            assert data, "the server closed the connection"
            got += data
        writer.close()

"""Messages between the server and a worker process."""

from __future__ import annotations

import asyncio
import socket

from pyjs.server.workers.channel import Channel


def test_messages_arrive_whole_and_in_order_and_the_end_is_told() -> None:
    async def play() -> list[object]:
        loop = asyncio.get_running_loop()
        seen: list[object] = []
        over = asyncio.Event()
        ours, theirs = socket.socketpair()
        sender = Channel(lambda fields, body: None, lambda: None)
        receiver = Channel(lambda fields, body: seen.append((fields, len(body))), over.set)
        await loop.create_unix_connection(lambda: sender, sock=ours)
        await loop.create_unix_connection(lambda: receiver, sock=theirs)
        assert sender.send({"do": "page"}, b"x" * 1_000_000)
        assert sender.send({"do": "stop"})
        sender.close()
        await asyncio.wait_for(over.wait(), 20)
        assert not receiver.send({"late": True})
        return seen

    assert asyncio.run(play()) == [({"do": "page"}, 1_000_000), ({"do": "stop"}, 0)]

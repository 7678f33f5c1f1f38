"""A server with a port for WebSocket clients in the test's own loop, and clients that compose frames themselves."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.websocket import BINARY, FIN, RSV1, frame, head_of, unpacked

from pyjs.base.log import ListLog
from pyjs.config.options import Options, WebSocketOptions
from pyjs.server.server import Server
from pyjs.server.websocket.port import WebSocketPort

WAIT_S = 60.0


def options_of(**values: Any) -> Options:
    """Return options for a port without TLS; `values` are those of the block."""
    options = Options(host="127.0.0.1", port=-1)
    options.websocket = WebSocketOptions(host="127.0.0.1", port=-1, no_tls=True, **values)
    return options


async def started(options: Options) -> Server:
    """Return a running server."""
    server = Server(options, ListLog())
    await server.start()
    return server


def port_of(server: Server) -> WebSocketPort:
    """Return the server's port for WebSocket clients."""
    assert server._websocket is not None
    return server._websocket


class Caller:
    """A client connection to the WebSocket port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def of(cls, server: Server) -> Caller:
        """Connect, and send nothing."""
        return cls(*await asyncio.open_connection("127.0.0.1", port_of(server).port))

    @classmethod
    async def upgraded(cls, server: Server, **headers: str) -> Caller:
        """Connect, upgrade and read INFO."""
        caller = await cls.of(server)
        caller.writer.write(head_of(**headers))
        assert b" 101 " in await caller.until(b"\r\n\r\n")
        assert (await caller.next_frame())[1].startswith(b"INFO ")
        return caller

    def send(self, data: bytes, first: int = FIN | BINARY) -> None:
        """Send one frame."""
        self.writer.write(frame(data, first))

    async def until(self, mark: bytes) -> bytes:
        """Return all bytes up to `mark`."""
        return await asyncio.wait_for(self.reader.readuntil(mark), WAIT_S)

    async def next_frame(self) -> tuple[int, bytes]:
        """Return the first byte and the payload of the next frame, inflated."""
        first, size = await asyncio.wait_for(self.reader.readexactly(2), WAIT_S)
        if size >= 126:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
        payload = await asyncio.wait_for(self.reader.readexactly(size), WAIT_S)
        return first, unpacked(payload) if first & RSV1 else payload

    async def rest(self) -> bytes:
        """Return all data up to the end of the connection."""
        return await asyncio.wait_for(self.reader.read(), WAIT_S)

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()

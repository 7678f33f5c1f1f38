"""Messages between the server and one worker, over a socket pair that both inherit.

A message is a JSON object and bytes. The end of the channel means that the other process has exited.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import orjson

Message: TypeAlias = dict[str, Any]

HEAD = struct.Struct("<II")  # sizes of the JSON and of the bytes after it


class Channel(asyncio.Protocol):
    """One end of the socket pair between the server and a worker."""

    def __init__(self, taken: Callable[[Message, bytes], None], ended: Callable[[], None]) -> None:
        self._taken = taken  # called with each message
        self._ended = ended  # called when the other end is closed
        self._data = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop has its own classes

    def data_received(self, data: bytes) -> None:
        """Call `taken` with each complete message."""
        self._data += data
        while len(self._data) >= HEAD.size:
            fields_size, body_size = HEAD.unpack_from(self._data)
            end = HEAD.size + fields_size + body_size
            if len(self._data) < end:
                return
            fields = orjson.loads(bytes(self._data[HEAD.size : HEAD.size + fields_size]))
            body = bytes(self._data[HEAD.size + fields_size : end])
            del self._data[:end]
            self._taken(fields, body)

    def connection_lost(self, error: Exception | None) -> None:
        """Call `ended`, because the channel is closed."""
        self._transport = None
        self._ended()

    def send(self, fields: Message, body: bytes = b"") -> bool:
        """Send a message; return False if the other end is closed."""
        if self._transport is None or self._transport.is_closing():
            return False
        text = orjson.dumps(fields)
        self._transport.write(HEAD.pack(len(text), len(body)) + text + body)
        return True

    def close(self) -> None:
        """Close the channel after all written bytes have been sent."""
        if self._transport is not None:
            self._transport.close()

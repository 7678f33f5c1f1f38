"""A client that sends one request, and the open resources of a process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n'


class Talk:
    """A client of a server on this loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, url: str) -> Talk:
        """Connect to `url` and wait for the PONG."""
        at = urlsplit(url)
        talk = cls(*await asyncio.open_connection(at.hostname, at.port))
        talk.writer.write(CONNECT)
        await talk.until(b"PONG\r\n")
        return talk

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), 60)

    async def rest(self) -> bytes:
        return await asyncio.wait_for(self.reader.read(), 60)

    async def api(self, endpoint: str, **request: Any) -> dict[str, Any]:
        """Send a request to the JetStream API."""
        return await self.ask(f"$JS.API.{endpoint}", json.dumps(request).encode())

    async def ask(self, subject: str, payload: bytes) -> dict[str, Any]:
        """Send a request; return its answer."""
        head = f"SUB inbox 9\r\nPUB {subject} inbox {len(payload)}\r\n"
        self.writer.write(head.encode() + payload + b"\r\n")
        await self.until(b"MSG inbox 9 ")
        size = int(await self.until(b"\r\n"))
        answer: dict[str, Any] = json.loads(await self.reader.readexactly(size + 2))
        self.writer.write(b"UNSUB 9\r\n")
        return answer


def refuses(url: str) -> bool:
    """Return whether no process listens at `url`."""
    at = urlsplit(url)
    try:
        socket.create_connection((at.hostname, at.port or 0), timeout=60).close()
    except ConnectionRefusedError:
        return True
    return False


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pyjs-")]

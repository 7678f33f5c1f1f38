import asyncio
from collections.abc import AsyncIterator, Generator

import pytest

from pyjs.base.log import ListLog
from pyjs.monitor.dashboard.posted import Posted
from pyjs.monitor.response import Response, text_response
from pyjs.server.addresses import listen
from pyjs.server.listener import Listener
from pyjs.server.monitoring import http
from pyjs.server.monitoring import port as monitor_port
from pyjs.server.monitoring.guard import Guard
from pyjs.server.monitoring.http import BUFFER_HIGH, HttpConnection
from pyjs.server.monitoring.port import MonitorPort


class Site:
    """A monitoring port that answers with the requested path."""

    def __init__(self) -> None:
        self.log = ListLog()
        # steps of long answers: number, and connections open at that time
        self.steps: list[tuple[int, int]] = []
        self.posted: list[Posted | None] = []
        self.loop = asyncio.get_running_loop()
        self.monitor = MonitorPort(self.loop, self.answer, Guard(self.loop, None, ""), self.log)
        self.connections = self.monitor.connections
        self.listener = Listener(self.loop, listen("127.0.0.1", -1), "Monitor", self.log)
        self.port = self.listener.port

    async def start(self) -> None:
        await self.listener.start(lambda: HttpConnection(self.monitor, self.listener))

    async def connect(self, **options: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **options)

    def answer(self, target: str, posted: Posted | None) -> Generator[None, None, Response]:
        self.posted.append(posted)
        for step in range({"/long": 3, "/endless": 10**9}.get(target, 0)):
            self.steps.append((step, len(self.connections)))
            yield
        if target == "/broken":
            raise ZeroDivisionError("broken view")
        if target == "/big":
            return text_response(200, "x" * BUFFER_HIGH)
        if target == "/huge":
            return Response(200, b"", rest=(b"x" * BUFFER_HIGH,) * 16)
        if target == "/pieces":
            return Response(200, b"one ", rest=(b"two ", b"three"))
        return text_response(404 if target == "/missing" else 200, target)

    async def ask(self, request: bytes) -> bytes:
        """Send `request` and return all bytes until the server closes the connection."""
        reader, writer = await self.connect()
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer

    async def ask_and_end(self, request: bytes) -> bytes:
        """Send `request` and nothing more, and return all bytes until the server closes the connection."""
        reader, writer = await self.connect()
        writer.write(request)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return answer


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    yield made
    made.monitor.stop()
    made.listener.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server wait only briefly for slow peers."""
    monkeypatch.setattr(http, "REQUEST_S", 0.02)
    monkeypatch.setattr(http, "STALLED_S", 0.02)
    monkeypatch.setattr(monitor_port, "SWEEP_S", 0.01)

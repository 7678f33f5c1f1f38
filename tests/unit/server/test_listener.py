"""Accepting connections, and not accepting them while the process is out of file descriptors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pyjs.base.log import ListLog
from pyjs.server import listener as module
from pyjs.server.addresses import listen
from pyjs.server.listener import Listener


class Port:
    """A listener whose connections send hello."""

    def __init__(self) -> None:
        self.log = ListLog()
        self.listener = Listener(asyncio.get_running_loop(), listen("127.0.0.1", -1), "Client", self.log)
        self.taken = 0

    def greeter(self) -> asyncio.Protocol:
        port = self

        class Greeter(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                port.taken += 1
                port.listener.accepted(transport)
                transport.write(b"hello")  # type: ignore[attr-defined]
                transport.close()

        return Greeter()

    async def greeting(self) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        said = await reader.read()
        writer.close()
        return said


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    made = Port()
    await made.listener.start(made.greeter)
    yield made
    made.listener.close()


async def test_every_connection_gets_a_protocol(port: Port) -> None:
    said = await asyncio.gather(*(port.greeting() for _ in range(100)))

    assert said == [b"hello"] * 100


async def test_connections_wait_until_descriptors_are_free(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    free = False
    monkeypatch.setattr(module, "is_free", lambda fd: free)
    assert await port.greeting() == b"hello"  # this connection gets one of the last descriptors
    # when
    waiting = asyncio.create_task(port.greeting())
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert (len(done), port.taken) == (0, 1)
    free = True
    # then
    assert await asyncio.wait_for(waiting, 60) == b"hello"
    assert port.log.lines == [("ERR", "Temporary Client Accept Error(too many open files), sleeping 10ms")]


async def test_a_listener_that_closes_while_it_waits_takes_nobody(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_free", lambda fd: False)
    await port.greeting()

    port.listener.close()
    port.listener.close()

    with pytest.raises(ConnectionRefusedError):
        await port.greeting()


@pytest.mark.parametrize(
    ("limit", "fd", "free"),
    [(40, 34, True), (40, 35, False), (1024, 991, True), (1024, 992, False), (-1, 10**6, True)],
)
def test_the_last_descriptors_are_kept(
    monkeypatch: pytest.MonkeyPatch, limit: int, fd: int, free: bool
) -> None:
    monkeypatch.setattr(module.resource, "getrlimit", lambda which: (limit, limit))

    assert module.is_free(fd) is free


def test_without_any_descriptor_none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module.os, "open", none)

    assert not module.descriptors_are_free()

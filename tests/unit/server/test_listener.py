import asyncio
import errno
import socket
from collections.abc import Iterator

import pytest

from pyjs.base.log import ListLog
from pyjs.server.addresses import listen
from pyjs.server.listener import Listener


def greet(sock: socket.socket, address: tuple[str, int]) -> None:
    """Say hello and close."""
    assert address[0] == "127.0.0.1"
    assert not sock.getblocking()
    sock.send(b"hello")
    sock.close()


class FailingSocket:
    """A listening socket whose first accepts fail."""

    def __init__(self, sock: socket.socket, errors: list[int]) -> None:
        self._sock = sock
        self._errors = errors

    def accept(self) -> tuple[socket.socket, object]:
        if self._errors:
            raise OSError(self._errors.pop(0), "planned")
        return self._sock.accept()

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with listen("127.0.0.1", -1) as made:
        yield made


async def greeting(listener: Listener) -> bytes:
    """Connect and return what the server says."""
    reader, writer = await asyncio.open_connection(listener.host, listener.port)
    said = await reader.read()
    writer.close()
    return said


async def test_every_connection_is_handed_on(sock: socket.socket) -> None:
    listener = Listener(asyncio.get_running_loop(), sock, greet, "Client", ListLog())
    listener.start()

    said = await asyncio.gather(*(greeting(listener) for _ in range(100)))

    assert said == [b"hello"] * 100
    listener.close()


async def test_a_closed_listener_refuses(sock: socket.socket) -> None:
    listener = Listener(asyncio.get_running_loop(), sock, greet, "Client", ListLog())
    listener.start()

    listener.close()
    listener.close()

    with pytest.raises(ConnectionRefusedError):
        await greeting(listener)


async def test_running_out_of_descriptors_is_survived(sock: socket.socket) -> None:
    log = ListLog()
    failing = FailingSocket(sock, [errno.EMFILE, errno.ENFILE])
    listener = Listener(asyncio.get_running_loop(), failing, greet, "Client", log)  # type: ignore[arg-type]
    listener.start()

    assert await greeting(listener) == b"hello"

    assert log.lines == [
        ("ERR", "Temporary Client Accept Error(too many open files), sleeping 10ms"),
        ("ERR", "Temporary Client Accept Error(too many open files in system), sleeping 20ms"),
    ]
    listener.close()


async def test_a_connection_that_is_gone_already_is_passed_over(sock: socket.socket) -> None:
    log = ListLog()
    failing = FailingSocket(sock, [errno.ECONNABORTED])
    listener = Listener(asyncio.get_running_loop(), failing, greet, "Client", log)  # type: ignore[arg-type]
    listener.start()

    assert await greeting(listener) == b"hello"
    assert log.lines == []
    listener.close()


async def test_another_error_is_said_and_tried_again(sock: socket.socket) -> None:
    log = ListLog()
    failing = FailingSocket(sock, [errno.EINVAL])
    listener = Listener(asyncio.get_running_loop(), failing, greet, "Client", log)  # type: ignore[arg-type]
    listener.start()

    assert await greeting(listener) == b"hello"
    assert log.lines == [("ERR", "Client Accept error: invalid argument")]
    listener.close()


async def test_closing_while_resting_ends_the_rest(sock: socket.socket) -> None:
    failing = FailingSocket(sock, [errno.EMFILE] * 100)
    loop = asyncio.get_running_loop()
    listener = Listener(loop, failing, greet, "Client", ListLog())  # type: ignore[arg-type]
    listener.start()
    asking = asyncio.create_task(greeting(listener))
    await asyncio.sleep(0.02)

    listener.close()

    with pytest.raises(OSError):
        await asking

"""A listening port on any asyncio loop, which stops accepting before file descriptors run out.

The loop accepts through `create_server`, on a duplicate of the socket. When a connection uses one of the last
descriptors, the duplicate is closed: further connections wait in the kernel's backlog, as with nats-server,
and files can still be opened. Accepting resumes when enough descriptors are free, which is checked after pauses
that double from 10 ms to 1 s.
"""

from __future__ import annotations

import os
import resource
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.server.addresses import BACKLOG, start_listening

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.base.log import Log

RESERVED_MAX = 32  # number of descriptors that connections may not use, at most
RESERVED_SHARE = 8  # if the limit is small, 1 / RESERVED_SHARE of it is reserved
PAUSE_MIN_S = 0.010
PAUSE_MAX_S = 1.0


class Listener:
    """One listening socket and its asyncio.Server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, name: str, log: Log) -> None:
        self.port: int = 0 if sock.family == socket.AF_UNIX else sock.getsockname()[1]
        self._loop = loop
        self._sock = sock
        self._name = name  # name of the port in log lines, such as "Client"
        self._log = log
        self._factory: Callable[[], asyncio.BaseProtocol]
        self._accepting: socket.socket | None = None  # the duplicate; None: accepting is paused
        self._server: asyncio.Server | None = None  # the asyncio server of the duplicate
        self._pause_s = PAUSE_MIN_S
        self._retry: asyncio.TimerHandle | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._closed = False

    def listen(self, host: str) -> None:
        """Make the bound socket listen; `host` is shown in the error.

        Raises:
            ListenFailed: the socket cannot listen.
        """
        start_listening(self._sock, host)

    async def start(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Start accepting connections.

        Each connection gets a protocol from `factory`; that protocol must call `accepted`.
        """
        self._factory = factory
        await self._serve()

    def close(self) -> None:
        """Stop accepting; existing connections remain open."""
        if self._closed:
            return
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._stop_accepting()
        with suppress(OSError):  # not supported on every system
            # A forked child also has the socket open, and must not occupy the port.
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def accepted(self, transport: asyncio.BaseTransport) -> None:
        """Pause accepting if the new connection uses one of the reserved descriptors."""
        sock = transport.get_extra_info("socket")
        if sock is None or self._server is None or is_free(sock.fileno()):
            return
        self._stop_accepting()
        ms = int(self._pause_s * 1000)
        self._log.error(f"Temporary {self._name} Accept Error(too many open files), sleeping {ms}ms")
        self._retry = self._loop.call_later(self._pause_s, self._try_again)

    def _stop_accepting(self) -> None:
        server, self._server = self._server, None
        if server is not None and not self._loop.is_closed():
            server.close()
        if self._accepting is not None:
            self._accepting.close()  # the loop does not close this socket if the loop itself was closed first
            self._accepting = None

    def _try_again(self) -> None:
        if descriptors_are_free():
            self._pause_s = PAUSE_MIN_S
            self._resuming = self._loop.create_task(self._serve())
        else:
            self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)
            self._retry = self._loop.call_later(self._pause_s, self._try_again)

    async def _serve(self) -> None:
        if self._closed:
            return
        try:
            self._accepting = self._sock.dup()
            create = (
                self._loop.create_unix_server
                if self._sock.family == socket.AF_UNIX
                else self._loop.create_server
            )
            self._server = await create(
                self._factory, sock=self._accepting, backlog=BACKLOG, start_serving=False
            )
        except OSError:  # a file took the last descriptor in the meantime
            self._stop_accepting()
            self._retry = self._loop.call_later(self._pause_s, self._try_again)
            return
        if self._closed:
            self._stop_accepting()
        else:
            # `_server` is set before this await, so that a cancelled start can close it.
            await self._server.start_serving()


def is_free(fd: int) -> bool:
    """Return whether `fd` is not one of the reserved descriptors.

    The kernel always assigns the lowest free number, so a reserved one is assigned only if few are left.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit == resource.RLIM_INFINITY or fd < limit - min(RESERVED_MAX, limit // RESERVED_SHARE)


def descriptors_are_free() -> bool:
    """Return whether at least one descriptor is free and not reserved."""
    try:
        fd = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return False
    os.close(fd)
    return is_free(fd)

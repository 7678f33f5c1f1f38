"""A listening socket on the event loop: accepts connections, survives running out of file descriptors.

Accepts by hand instead of through `loop.create_server`, because both event loops answer EMFILE by dropping the
waiting connections (libuv) or by going silent for a second (asyncio). Here they stay in the backlog and are
taken after a pause that doubles from 10 ms to 1 s.

Knows nothing of what is spoken on a connection: it makes a protocol per connection.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from pyjs.base.log import Log

ACCEPTS_PER_WAKE = 64  # then other connections have their turn
PAUSE_MIN_S = 0.010
PAUSE_MAX_S = 1.0
TEMPORARY = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
GONE_AGAIN = {errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.EPERM}  # the one connection failed, not we


class Listener:
    """Accepts on one socket until closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        name: str,
        log: Log,
    ) -> None:
        self.host, self.port = sock.getsockname()[:2]
        self._loop = loop
        self._sock = sock
        self._make_protocol = make_protocol
        self._name = name  # of the port, in log lines: "Client"
        self._log = log
        self._pause_s = PAUSE_MIN_S
        self._retry: asyncio.TimerHandle | None = None
        self._starting: set[asyncio.Task[object]] = set()  # accepted, transport not made yet
        self._closed = False

    def start(self) -> None:
        """Accept from now on."""
        self._retry = None
        self._loop.add_reader(self._sock.fileno(), self._accept_waiting)

    def close(self) -> None:
        """Take no more connections; those accepted stay."""
        if self._closed:
            return
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()

    def _accept_waiting(self) -> None:
        for _ in range(ACCEPTS_PER_WAKE):
            try:
                connected, _address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in GONE_AGAIN:
                    continue
                self._rest(error)
                return
            self._pause_s = PAUSE_MIN_S
            self._begin(connected)

    def _begin(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        task = self._loop.create_task(self._connect(connected))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _connect(self, connected: socket.socket) -> object:
        try:
            return await self._loop.connect_accepted_socket(self._make_protocol, connected)
        except OSError as error:  # gone between accept and here
            connected.close()
            self._log.debug(f"{self._name} connection ended while it was accepted: {error}")
            return None

    def _rest(self, error: OSError) -> None:
        text = os.strerror(error.errno or 0).lower()
        if error.errno in TEMPORARY:
            ms = int(self._pause_s * 1000)
            self._log.error(f"Temporary {self._name} Accept Error({text}), sleeping {ms}ms")
        else:
            self._log.error(f"{self._name} Accept error: {text}")
        self._loop.remove_reader(self._sock.fileno())
        self._retry = self._loop.call_later(self._pause_s, self.start)
        self._pause_s = min(self._pause_s * 2, PAUSE_MAX_S)

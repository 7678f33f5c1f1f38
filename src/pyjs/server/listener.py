"""A listening socket on the event loop: accepts connections, survives running out of file descriptors.

Connections that come while there is no descriptor for them stay in the backlog, and are taken after a pause that
doubles from 10 ms to 1 s.

Knows nothing of what is spoken on a connection: it hands every socket on.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from pyjs.base.log import Log
    from pyjs.server.loop import Handle, Loop

ACCEPTS_PER_WAKE = 64  # then other connections have their turn
PAUSE_MIN_S = 0.010
PAUSE_MAX_S = 1.0
TEMPORARY = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
GONE_AGAIN = {errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.EPERM}  # the one connection failed, not we


class Listener:
    """Accepts on one socket until closed."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        take: Callable[[socket.socket, tuple[str, int]], object],
        name: str,
        log: Log,
    ) -> None:
        self.host, self.port = sock.getsockname()[:2]
        self._loop = loop
        self._sock = sock
        self._take = take  # gets the socket, non-blocking, and the peer's address
        self._name = name  # of the port, in log lines: "Client"
        self._log = log
        self._pause_s = PAUSE_MIN_S
        self._retry: Handle | None = None
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
                connected, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in GONE_AGAIN:
                    continue
                self._rest(error)
                return
            self._pause_s = PAUSE_MIN_S
            connected.setblocking(False)
            self._take(connected, address[:2])

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

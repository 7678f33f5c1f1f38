"""A connected socket on the loop: reads as bytes come, writes at once what the kernel takes, keeps the rest.

Knows nothing of what is spoken: a subclass gets the bytes. Its calls never run inside each other: what happens
while bytes are written is told in the loop's next step.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from pyjs.server.loop import Loop

READ_SIZE = 256 * 1024  # bytes of one read
PIECES_MAX = 64  # in one call of the kernel, which allows 1,024


class Transport:
    """One connected, non-blocking socket."""

    def __init__(self, loop: Loop, sock: socket.socket, buffer_high: int, buffer_low: int) -> None:
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._buffer_high = buffer_high  # bytes kept above which `filled` is told
        self._buffer_low = buffer_low  # bytes kept below which `drained` is told
        self._kept: deque[memoryview] = deque()
        self._kept_size = 0
        self.is_full = False  # between `filled` and `drained`
        self._ended = False  # the peer sends no more
        self.closing = False

    def start(self) -> None:
        """Read from now on."""
        self._loop.add_reader(self._fd, self._read)

    # -- told to the subclass ----------------------------------------------------------------------------------
    def received(self, data: bytes) -> None:
        """Take the bytes of one read."""
        raise NotImplementedError("a Transport subclass reads the bytes")

    def ended(self) -> None:
        """The peer sends no more; it may read on."""
        self.close()

    def lost(self) -> None:
        """The socket is gone; told once, whoever closed it."""

    def filled(self) -> None:
        """The peer does not keep up: better write no more."""

    def drained(self) -> None:
        """There is room again after `filled`."""

    # -- asked by the subclass ---------------------------------------------------------------------------------
    def write(self, data: bytes) -> None:
        """Send `data`, now or when the kernel takes it."""
        if self.closing:
            return
        sent = 0
        if not self._kept:
            sent = self._send(data)
            if sent == len(data) or self.closing:
                return
            self._loop.add_writer(self._fd, self._write_kept)
        self._kept.append(memoryview(data)[sent:])
        self._keep(len(data) - sent)

    def write_all(self, pieces: list[bytes]) -> None:
        """Send each of `pieces`, now or when the kernel takes it; a call for each write is saved."""
        if self.closing:
            return
        size = sum(map(len, pieces))
        sent = 0
        if not self._kept:
            sent = self._send_all(pieces)
            if sent == size or self.closing:
                return
            self._loop.add_writer(self._fd, self._write_kept)
        self._keep(size - sent)
        for piece in pieces:
            if sent < len(piece):
                self._kept.append(memoryview(piece)[sent:])
            sent = max(0, sent - len(piece))

    def close(self) -> None:
        """Read no more; close when everything written is sent."""
        if self.closing:
            return
        self.closing = True
        self._loop.remove_reader(self._fd)
        if not self._kept:
            self._loop.call_soon(self._close_now)

    def abort(self) -> None:
        """Close now; what is kept is dropped."""
        if self._fd < 0:
            return
        self.closing = True
        self._kept.clear()
        self._kept_size = 0
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._loop.call_soon(self._close_now)

    def pending_size(self) -> int:
        """Return how many bytes wait for the kernel."""
        return self._kept_size

    def pause_reading(self) -> None:
        """Take no more input."""
        if not self.closing:
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Take input again."""
        if not self.closing and not self._ended:
            self._loop.add_reader(self._fd, self._read)

    # -- called by the loop ------------------------------------------------------------------------------------
    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.abort()
            return
        if data:
            self.received(data)
            return
        self._ended = True
        self._loop.remove_reader(self._fd)
        self.ended()

    def _send(self, data: bytes | memoryview) -> int:
        """Return how many bytes the kernel took; on an error the connection is aborted."""
        try:
            return self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.abort()
            return 0

    def _send_all(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Return how many bytes of the first PIECES_MAX pieces the kernel took, as _send does."""
        try:
            return self._sock.sendmsg(pieces[:PIECES_MAX])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.abort()
            return 0

    def _keep(self, size: int) -> None:
        """Count bytes that the kernel did not take."""
        self._kept_size += size
        if self._kept_size > self._buffer_high and not self.is_full:
            self.is_full = True
            self.filled()

    def _write_kept(self) -> None:
        sent = self._send(self._kept[0]) if len(self._kept) == 1 else self._send_all(list(self._kept))
        self._kept_size -= sent
        while sent and sent >= len(self._kept[0]):
            sent -= len(self._kept.popleft())
        if sent:
            self._kept[0] = self._kept[0][sent:]
        if not self._kept:
            self._loop.remove_writer(self._fd)
            if self.closing:
                self._loop.call_soon(self._close_now)
        if self.is_full and self._kept_size < self._buffer_low and not self.closing:
            self.is_full = False
            self.drained()

    def _close_now(self) -> None:
        if self._fd < 0:
            return
        self._fd = -1
        self._sock.close()
        self.lost()

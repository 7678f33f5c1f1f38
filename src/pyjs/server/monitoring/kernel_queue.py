"""The bytes that the kernel has accepted for a TCP socket, and that the other side has not acknowledged yet.

Source: tcp(7), SIOCOUTQ.
"""

from __future__ import annotations

import fcntl
import struct
from termios import TIOCOUTQ  # SIOCOUTQ has the same number
from typing import Protocol

_SIZE = struct.Struct("i")


class Socket(Protocol):
    """A socket, or the object that an event loop returns for the socket of a transport."""

    def fileno(self) -> int:
        """Return the file descriptor, or -1 if the socket is closed."""


def unacknowledged(sock: Socket | None) -> int:
    """Return the number of bytes that the kernel has accepted for `sock` and the other side has not acknowledged.

    Return 0 if there is no open socket, or if the system does not report this number.
    """
    if sock is None or (fd := sock.fileno()) < 0:
        return 0
    try:
        (size,) = _SIZE.unpack(fcntl.ioctl(fd, TIOCOUTQ, bytes(_SIZE.size)))
    except OSError:
        return 0
    return int(size)

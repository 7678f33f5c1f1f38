"""A TCP or TLS connection as bytes: one reusable receive buffer, and a deadline for every wait.

This module knows nothing of protocols. The received bytes that are not used yet are `data[start:end]` of the buffer.
The buffer grows to the size of the largest frame; its content is valid only until the next fill().
"""

from __future__ import annotations

import socket
import ssl
import time

from pyjs_spark.errors import BadCredentials, ConnectionLost, ProtocolError
from pyjs_spark.nats.settings import Address, ConnectSettings

BUFFER_SIZE = 256 * 1024
LARGE = 64 * 1024  # bytes; if at least this many are missing, a read waits for all of them
LINE_MAX = 1 << 20
LEAST_MAX = 512 * 1024  # maximum number of bytes that a read waits for, since the kernel must buffer them


class ByteStream:
    """One TCP or TLS connection; its errors contain the address of the server."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        """Connect to `address`.

        `timeout_s` limits the time to connect and the time of each send.

        Raises:
            OSError: the connection cannot be established.
        """
        self.address = address
        self._timeout_s = timeout_s
        self.data = bytearray(BUFFER_SIZE)
        self.start = 0  # offset of the first unused byte
        self.end = 0  # offset after the last received byte
        self.received = 0  # number of bytes received so far; while it grows, the server is alive
        self._least = 1  # the number of bytes at which a waiting read wakes up
        self._socket = socket.create_connection((address.host, address.port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start_tls(self, settings: ConnectSettings) -> None:
        """Switch to TLS.

        Raises:
            OSError: the handshake failed; this includes ssl.SSLError.
            BadCredentials: a file of the TLS settings cannot be used.
        """
        context = tls_context(settings)
        self._socket = context.wrap_socket(
            self._socket, server_hostname=settings.tls_hostname or self.address.host
        )

    def send(self, data: bytes | memoryview) -> None:
        """Send all of `data`.

        Raises:
            ConnectionLost: the connection broke.
        """
        try:
            self._socket.settimeout(self._timeout_s)  # the timeout of the last wait may be almost 0
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: the connection broke while sending: {error}") from error

    def fill(self, need: int, deadline_s: float) -> bool:
        """Receive until there are `need` unused bytes; return False if the deadline passes first.

        Raises:
            ConnectionLost: the connection ended.
        """
        self._make_room(need)
        view = memoryview(self.data)
        while (missing := need - (self.end - self.start)) > 0:
            if not self._receive(view, missing, deadline_s):
                return False
        return True

    def line_end(self, deadline_s: float) -> int:
        """Wait for the end of a line; return the offset of this end, or -1 if the deadline passes first.

        Raises:
            ConnectionLost: the other side has disconnected.
            ProtocolError: a line is too long.
        """
        while (end := self.data.find(b"\r\n", self.start, self.end)) < 0:
            have = self.end - self.start
            if have > LINE_MAX:
                raise ProtocolError(
                    f"{self.address}: a protocol line of more than {LINE_MAX} bytes; is the port right?"
                )
            if not self.fill(have + 1, deadline_s):
                return -1
        return end

    def fill_whole(self, need: int, silence_s: float) -> bool:
        """Fill as `fill` does, but wait as long as bytes arrive.

        Return False after `silence_s` seconds without a byte.
        """
        before = -1
        while before < self.received:
            before = self.received
            if self.fill(need, time.monotonic() + silence_s):
                return True
        return False

    def _receive(self, view: memoryview, missing: int, deadline_s: float) -> bool:
        """Receive once, and return False at the deadline.

        If at least LARGE bytes are `missing`, the receive waits for all of them, or for LEAST_MAX bytes if more are
        missing.
        """
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return False
        self._wake_at(min(missing, LEAST_MAX) if missing >= LARGE else 1)
        try:
            self._receive_within(left_s, view)
            return True
        except TimeoutError:
            if self._least == 1:
                return False
        self._wake_at(1)
        try:
            self._receive_within(0.0, view)  # some bytes arrived, but fewer than the read waits for
        except BlockingIOError:
            pass
        return False

    def _receive_within(self, wait_s: float, view: memoryview) -> None:
        """Receive once, and wait at most `wait_s` seconds.

        Raises:
            ConnectionLost: the connection ended.
            TimeoutError: nothing arrived in time.
            BlockingIOError: nothing has arrived, and `wait_s` is 0.
        """
        try:
            self._socket.settimeout(wait_s)
            count = self._socket.recv_into(view[self.end :])
        except (TimeoutError, BlockingIOError):
            raise
        except OSError as error:
            raise ConnectionLost(f"{self.address}: the connection broke: {error}") from error
        if not count:
            raise ConnectionLost(f"{self.address}: the server closed the connection")
        self.end += count
        self.received += count

    def _wake_at(self, size: int) -> None:
        """Set SO_RCVLOWAT, so that a receive wakes up after `size` bytes and not for each packet.

        Waking up for each packet is costly (benchmarks/spark_bulk.py). TLS sockets keep 1, since TLS reads a
        record in several parts.
        """
        if size != self._least and not isinstance(self._socket, ssl.SSLSocket):
            self._least = size
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def close(self) -> None:
        """Close the connection, if it is open."""
        self._socket.close()

    def _make_room(self, need: int) -> None:
        """Move the unused bytes to the start of the buffer, or to a larger buffer if `need` requires it."""
        left = self.end - self.start
        if need > len(self.data):
            larger = bytearray(max(need, 2 * len(self.data)))
            larger[:left] = self.data[self.start : self.end]
            self.data = larger
        elif self.start:
            self.data[:left] = self.data[self.start : self.end]
        self.start, self.end = 0, left


def tls_context(settings: ConnectSettings) -> ssl.SSLContext:
    """Return the TLS context of a connection, with the authorities and the client's certificate in the settings.

    Raises:
        BadCredentials: a file cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
        if settings.tls_cert:
            context.load_cert_chain(settings.tls_cert, settings.tls_key or None)
    except OSError as error:
        files = ", ".join(filter(None, (settings.tls_ca, settings.tls_cert, settings.tls_key)))
        raise BadCredentials(f"tls: {files} cannot be used: {error}; they must be PEM files") from error
    return context

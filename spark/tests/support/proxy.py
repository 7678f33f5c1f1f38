"""A TCP proxy that cuts connections after a number of the server's bytes, or changes the bytes."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class CuttingProxy:
    """A proxy with its own port, which cuts connections.

    The n-th connection is cut after `cuts[n]` bytes of the server; connections without a number are not cut. `said`
    transforms each piece of the server's bytes before the client receives it.
    """

    def __init__(self, port: int, cuts: list[int], said: Callable[[bytes], bytes] = bytes) -> None:
        self.connections = 0
        self.target = port  # port of the server; may change between two connections
        self._cuts = cuts
        self._said = said
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Accept no more connections; an open connection continues until its client closes it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            left = self._cuts[self.connections] if self.connections < len(self._cuts) else 1 << 60
            self.connections += 1
            # Either side may have closed already.
            with client, suppress(OSError), socket.create_connection(("127.0.0.1", self.target)) as server:
                _pass_on(client, server, left, self._said)


def _pass_on(client: socket.socket, server: socket.socket, left: int, said: Callable[[bytes], bytes]) -> None:
    """Copy in both directions until one side closes or the server has sent `left` bytes."""
    with selectors.DefaultSelector() as ready:  # select() accepts no descriptor above 1,023
        ready.register(client, selectors.EVENT_READ, (client, server))
        ready.register(server, selectors.EVENT_READ, (server, client))
        while left > 0:
            for key, _ in ready.select():
                source, other = key.data
                data = source.recv(min(65536, left))
                if not data:
                    return
                if source is server:
                    left -= len(data)
                    data = said(data)
                other.sendall(data)

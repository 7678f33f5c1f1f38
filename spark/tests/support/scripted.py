"""A server that accepts any login and then sends scripted bytes, valid or not."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class ScriptedServer:
    """A server for one connection, which sends `said` after each line of the client that begins with `cue`.

    In `said`, {inbox} is replaced by the third word of the line.
    """

    def __init__(self, cue: bytes, said: bytes, *, info: bytes = b"{}", pong: bytes = b"PONG\r\n") -> None:
        self._cue = cue
        self._said = said
        self._greeting = (b"INFO " + info + b"\r\n", pong)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.heard: list[bytes] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Wait until the client has disconnected."""
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        # The client may close before it has received everything.
        with suppress(ConnectionResetError), client, client.makefile("rb") as lines:
            client.sendall(self._greeting[0])
            for line in lines:
                self.heard.append(line)
                if line == b"PING\r\n":
                    client.sendall(self._greeting[1])
                    self._greeting = (b"", b"")  # one PONG, for the login
                if line.startswith(self._cue):
                    client.sendall(self._said.replace(b"{inbox}", line.split()[2]))

"""What the encrypted connections of a port share: settings, the thread for handshakes, and their rate.

A reload gives new settings; connections that are there keep theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.server.threads.io_thread import IoThread

if TYPE_CHECKING:
    import asyncio

    from pyjs.base.log import Log
    from pyjs.server.tls.context import TlsSettings


class TlsPort:
    """The TLS of the client port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log) -> None:
        self.loop = loop
        self.settings: TlsSettings | None = None  # of connections to come; None: they are plain
        self.thread = IoThread(loop, "tls")
        self._log = log
        self._admitted = 0  # in the second that runs
        self._rejected = 0
        self._second: asyncio.TimerHandle | None = None

    def announce(self) -> None:
        """Log what clients have to know."""
        if self.settings is None:
            return
        self._log.info("TLS required for client connections")
        if self.settings.options.handshake_first_ns == 0:
            text = 'Clients that are not using "TLS Handshake First" option will fail to connect'
            self._log.warn(text)

    async def close(self) -> None:
        """End the thread, when the connections are gone."""
        if self._second is not None:
            self._second.cancel()
        await self.thread.finish()

    # -- who may come ------------------------------------------------------------------------------------------
    def admit(self, most: int) -> bool:
        """Return whether one more connection may be made in this second, of which there may be `most`; 0: any."""
        if not most:
            return True
        if self._second is None:
            self._second = self.loop.call_later(1.0, self._next_second)
        if self._admitted >= most:
            self._rejected += 1
            return False
        self._admitted += 1
        return True

    def _next_second(self) -> None:
        self._second = None
        if self._rejected:
            self._log.warn(f"Rejected {self._rejected} connections due to TLS rate limiting")
        self._admitted = self._rejected = 0

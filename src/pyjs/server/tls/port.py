"""TLS of one port: its settings, the thread for handshakes, and their rate limit.

A reload sets new settings for new connections; existing connections are not affected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pyjs.server.threads.io_thread import IoThread

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pyjs.base.log import Log
    from pyjs.server.tls.context import TlsSettings


class Cancellable(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


class TlsPort:
    """The TLS of the port for clients, WebSocket clients or routes; monitoring uses the TLS of the client port."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        log: Log,
        after: Callable[[float, Callable[[], None]], Cancellable],
    ) -> None:
        self.loop = loop
        self.after = after  # schedules a call after some seconds: Driver.after, or the loop's call_later
        self.settings: TlsSettings | None = None  # for new connections; None: no TLS
        self.thread = IoThread(loop, "tls")
        self._log = log
        self._admitted = 0  # connections admitted in the current second
        self._rejected = 0
        self._second: asyncio.TimerHandle | None = None

    def announce(self) -> None:
        """Log that clients must use TLS, if TLS is configured."""
        if self.settings is None:
            return
        self._log.info("TLS required for client connections")
        if self.settings.options.handshake_first_ns == 0:
            text = 'Clients that are not using "TLS Handshake First" option will fail to connect'
            self._log.warn(text)

    async def close(self) -> None:
        """End the handshake thread after its jobs; all connections must be closed."""
        if self._second is not None:
            self._second.cancel()
        await self.thread.finish()

    # -- rate limit --------------------------------------------------------------------------------------------
    def admit(self, most: int) -> bool:
        """Count a new connection, and return whether it is within the limit of `most` connections per second.

        If `most` is 0, there is no limit.
        """
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

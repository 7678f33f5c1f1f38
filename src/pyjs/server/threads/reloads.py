"""Reloads of a server, one at a time: a thread reads and checks the file, then the loop applies it as a whole.

Reading a file with ten thousand declared streams takes seconds. Meanwhile the loop serves clients: it gets the GIL
after each switch interval (server/command.py). If reloads are requested while one is running, these requests share a
second reload, which begins after the running one and reads the file again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from pyjs.server.threads.io_thread import IoThread

if TYPE_CHECKING:
    from collections.abc import Callable

STOPPING = "the server is stopping"
CLOSE_S = 10.0  # seconds for which a stop waits for the end of a reading

Found = TypeVar("Found")


class Reloads(Generic[Found]):
    """The reloads of one server."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[[], Found],
        apply: Callable[[Found | Exception], str],
    ) -> None:
        self._loop = loop
        self._thread = IoThread(loop, "reload")
        self._read = read  # called in the thread
        self._apply = (
            apply  # called on the loop with the result or the exception; returns why it is refused, or ""
        )
        self._running: asyncio.Future[str] | None = None
        self._next: asyncio.Future[str] | None = None  # a reload that waits for `_running`
        self._stopped = False

    def ask(self) -> asyncio.Future[str]:
        """Request a reload; it begins after the running one, if there is one.

        The result of the future is "" if the configuration was applied, otherwise the reason for the failure.
        """
        asked: asyncio.Future[str] = self._loop.create_future()
        if self._stopped:
            asked.set_result(STOPPING)
        elif self._running is None:
            self._begin(asked)
        elif self._next is None:
            self._next = asked
        else:
            return self._next
        return asked

    def stop(self) -> None:
        """Refuse further reloads; a configuration that is still being read is not applied."""
        self._stopped = True
        waiting, self._next = self._next, None
        _answer(waiting, STOPPING)

    async def close(self) -> None:
        """Wait up to `CLOSE_S` for the thread that reads a file; after that, let the thread end by itself."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._thread.finish()
        except TimeoutError:
            self._thread.leave()

    def _begin(self, asked: asyncio.Future[str]) -> None:
        self._running = asked
        found: list[Found] = []

        def read() -> None:
            found.append(self._read())

        self._thread.submit(read, lambda error: self._end(error or found.pop()))

    def _end(self, found: Found | Exception) -> None:
        asked, self._running = self._running, None
        try:
            _answer(asked, STOPPING if self._stopped else self._apply(found))
        except Exception as error:
            self._loop.call_exception_handler({"message": "Exception in a reload", "exception": error})
            _answer(asked, f"a fault of the server: {error!r}")
        finally:
            waiting, self._next = self._next, None
            if waiting is not None:
                self._begin(waiting)


def _answer(asked: asyncio.Future[str] | None, text: str) -> None:
    if asked is not None and not asked.done():
        asked.set_result(text)

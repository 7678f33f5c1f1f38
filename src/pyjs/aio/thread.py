"""A server in its own thread, for programs without an event loop."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from pyjs.aio.server import Server
from pyjs.server.system.loop import new_event_loop

if TYPE_CHECKING:
    import logging
    from types import TracebackType
    from typing import Self, Unpack

    from pyjs.aio.configuration import Source
    from pyjs.aio.keys import ConfigKeys


class ServerThread:
    """A server in a thread of the program: `with ServerThread() as server`."""

    def __init__(
        self,
        config: Source | None = None,
        *,
        logger: logging.Logger | None = None,
        spin: bool = False,
        **keys: Unpack[ConfigKeys],
    ) -> None:
        """Read the configuration as `Server` does; start nothing.

        Raises:
            ConfigError: the configuration is invalid.
        """
        self._server = Server(config, logger=logger, spin=spin, **keys)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop_asked: asyncio.Event  # belongs to the loop of the thread
        self._pid = 0  # id of the process that started the thread

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread and the server; clients can connect when this returns.

        All running servers are stopped when the program exits.

        Raises:
            StartFailed: a port, a file or the store directory cannot be used; the thread has ended.
            RuntimeError: the server is already running.
        """
        if self._thread is not None:
            raise RuntimeError("this server runs already")
        started: Future[None] = Future()
        self._loop, self._stop_asked, self._pid = new_event_loop(), asyncio.Event(), os.getpid()
        self._thread = threading.Thread(target=self._run, args=(started,), name="pyjs-server", daemon=True)
        _running.add(self)
        try:
            self._thread.start()
            started.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server, and wait until its thread has ended. Do nothing if the server is not running."""
        thread = self._thread
        if thread is None or self._pid != os.getpid():  # a forked child has no such thread
            return
        _running.discard(self)
        with suppress(RuntimeError):  # raised if the start failed, so that the loop is closed
            self._loop.call_soon_threadsafe(self._stop_asked.set)
        if thread.ident is None:  # the system could not start the thread
            self._loop.close()
        else:
            thread.join()
        self._thread = None

    @property
    def client_url(self) -> str:
        """The URL for clients. Raises RuntimeError if the server is not running."""
        return self._server.client_url

    @property
    def monitor_url(self) -> str | None:
        """The URL of the monitoring pages, or None if monitoring is off.

        Raises RuntimeError if the server is not running.
        """
        return self._server.monitor_url

    def _run(self, started: Future[None]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        try:
            await self._server.start()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(None)
        await self._stop_asked.wait()
        await self._server.stop()


# All servers to stop when the process ends. One atexit call stops them all, since atexit never drops a call.
_running: set[ServerThread] = set()


@atexit.register
def _stop_all() -> None:
    for server in tuple(_running):
        server.stop()

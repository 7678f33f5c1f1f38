"""One server on the event loop of a program: use it with `async with`, or call `start` and `stop`.

This is a thin wrapper around pyjs.server. It converts the arguments to Options, sends the log to the program's
logging, and creates a new server for each start.
"""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyjs.aio.configuration import PLACE, options_from, wants_scratch
from pyjs.aio.log import StandardLog
from pyjs.base.errors import reason_of
from pyjs.config.errors import ConfigError
from pyjs.server.failures import StartFailed
from pyjs.server.logging import Logger, opened_logger
from pyjs.server.server import Server as ShellServer
from pyjs.server.system.scratch import ScratchStore

if TYPE_CHECKING:
    import logging
    from types import TracebackType
    from typing import Self, Unpack

    from pyjs.aio.configuration import Source
    from pyjs.aio.keys import ConfigKeys


class Server:
    """A NATS server with JetStream inside this program."""

    def __init__(
        self,
        config: Source | None = None,
        *,
        logger: logging.Logger | None = None,
        spin: bool = False,
        **keys: Unpack[ConfigKeys],
    ) -> None:
        """Read the configuration; open nothing.

        `config` is the path of a configuration file, Options, or a model. `keys` are configuration keys by name,
        which override `config`: `Server(port=4222, jetstream={"store_dir": "data"})`. With neither, the server
        listens on a free port of 127.0.0.1 and stores its streams in a directory that is removed when the server
        stops.

        Log lines go to the `log_file` of the configuration if there is one, otherwise to `logger` (by default
        "pyjs.server"). With `spin`, the loop checks for input for up to 50 us before it sleeps: answers are faster,
        but the server uses a whole core.

        Raises:
            ConfigError: the configuration is invalid; the message states the place, the cause and a fix.
        """
        self._options = options_from(config, dict(keys))
        if self._options.workers > 1:
            cause = "workers are processes of the command pyjs-server; a server inside a program has none"
            raise ConfigError.at(PLACE, cause, "remove workers, or run pyjs-server")
        self._wants_scratch = wants_scratch(config, self._options)
        self._logger = logger
        self._spin = spin
        self._server: ShellServer | None = None  # the running server

    def __repr__(self) -> str:
        return f"<pyjs.aio.Server {self._server.client_url if self._server else 'not running'}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server; clients can connect when this returns. A stopped server can be started again.

        Raises:
            StartFailed: a port, a file or the store directory cannot be used; nothing is left open.
            RuntimeError: the server is already running.
        """
        if self._server is not None:
            raise RuntimeError(f"{self!r} runs already")
        server, log = self._made()
        self._server = server
        server.after_stop.append(partial(self._stopped, server, log))
        for warning in self._options.warnings.mistakes:
            log.warn(warning)
        await server.start(self._spin)

    async def stop(self) -> None:
        """Close connections and streams, and free all resources. Do nothing if the server is not running.

        If the event loop of the server was closed, abort the server with a ResourceWarning.

        Raises:
            RuntimeError: the server runs on another event loop.
        """
        server = self._server
        if server is None:
            return
        if server.loop is asyncio.get_running_loop():
            await server.stop()
        elif server.loop.is_closed():
            text = f"the event loop of {self!r} was closed before the server was stopped"
            warnings.warn(text, ResourceWarning, stacklevel=2)
            server.abort()
        else:
            raise RuntimeError(f"{self!r} runs on another event loop, and is to be stopped there")

    @property
    def client_url(self) -> str:
        """The URL for clients, such as `nats://127.0.0.1:40051`.

        Raises RuntimeError if no server is running.
        """
        return self._running().client_url

    @property
    def monitor_url(self) -> str | None:
        """The URL of the monitoring pages, or None if monitoring is off.

        Raises RuntimeError if no server is running.
        """
        return self._running().monitor_url

    @property
    def websocket_url(self) -> str | None:
        """The URL for WebSocket clients, or None if there is no WebSocket port.

        Raises RuntimeError if no server is running.
        """
        return self._running().websocket_url

    def _running(self) -> ShellServer:
        if self._server is None:
            raise RuntimeError("the server does not run: use `async with`, or await start()")
        return self._server

    def _made(self) -> tuple[ShellServer, Logger | StandardLog]:
        """Return a new server and its log. Raises StartFailed if its directory or log is unusable."""
        if not self._wants_scratch:
            log = self._opened_log()
            return ShellServer(self._options, log), log
        scratch = _scratch_store()
        try:
            log = self._opened_log()
        except StartFailed:
            scratch.remove()
            raise
        jetstream = replace(self._options.jetstream, store_dir=scratch.path)
        return ShellServer(replace(self._options, jetstream=jetstream), log, scratch), log

    def _opened_log(self) -> Logger | StandardLog:
        options = self._options.log
        if options.log_file:
            return opened_logger(self._options)
        return StandardLog(self._logger, options.debug, options.trace)

    def _stopped(self, server: ShellServer, log: Logger | StandardLog) -> None:
        """Free the resources of a stopped server."""
        assert self._server is server
        if isinstance(log, Logger):
            log.close()
        self._server = None


def _scratch_store() -> ScratchStore:
    try:
        return ScratchStore()
    except OSError as error:
        raise StartFailed(f"no store directory: {error.filename}: {reason_of(error)}") from None

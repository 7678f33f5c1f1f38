"""One worker: a server process that is controlled by the server that started it.

Run as `python -m pyjs.server.workers.child FD`. The first message on FD has the configuration and the
worker's number. When FD is closed, the server has ended, and the worker stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from pyjs.config.errors import ConfigError
from pyjs.config.load import load_options
from pyjs.config.options import Worker
from pyjs.config.ports.workers import place_worker
from pyjs.server.command import Command
from pyjs.server.failures import StartFailed
from pyjs.server.logging import configured_logger
from pyjs.server.spin import pays
from pyjs.server.system.collector import keep_survivors
from pyjs.server.system.config_file import read_file
from pyjs.server.workers.channel import Channel

if TYPE_CHECKING:
    from pyjs.config.options import Options
    from pyjs.monitor.response import Response
    from pyjs.server.server import Server
    from pyjs.server.workers.channel import Message
    from pyjs.server.workers.pages import Pages

IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)  # the server forwards them


class Overseer:
    """A worker's connection to the server process that started it."""

    def __init__(self) -> None:
        self._server: Server
        self._starting: asyncio.Task[None] | None = None
        self._pages: Pages | None = None
        self._stopping = False  # a stop was requested, perhaps before there is a server
        self._loaded_ns = 0  # time of the last read of the configuration
        self._first: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._channel = Channel(self._taken, self._stop_with_all)

    async def connect(self, fd: int) -> Message:
        """Connect to the server over the socket `fd`; return the first message from the server."""
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self._channel, sock=socket.socket(fileno=fd))
        return await self._first

    async def serve(self, command: Command, stands_in: bool) -> int:
        """Start the server of `command` and wait until it ends; return the exit code.

        If a stop was requested before, the server is not started.
        """
        if self._stopping:
            return 0
        self._server = server = command.server
        self._loaded_ns = server.clock.now_ns()
        spin = pays() and (os.cpu_count() or 1) > (server.options.workers)
        self._starting = asyncio.ensure_future(server.start(spin, stands_in))
        try:
            await self._starting
        except StartFailed as error:
            self._channel.send({"failed": str(error)})
            await asyncio.sleep(0)
            self._channel.close()
            return 1
        except asyncio.CancelledError:  # the server was stopped meanwhile
            return 0
        finally:
            self._starting = None
        keep_survivors()
        command.return_memory()
        self._channel.send({"ready": True, "id": server.node.server_id, "name": server.node.server_name})
        await server.wait_stopped()
        return 0

    def stop(self) -> None:
        """Stop the worker, even in the middle of its start."""
        self._stopping = True
        if not self._first.done():
            self._first.cancel()
        elif self._starting is not None:
            self._starting.cancel()
        elif hasattr(self, "_server"):
            self._server.request_stop()

    def _stop_with_all(self) -> None:
        """Stop together with all other workers; each worker waits until the others have closed their streams."""
        if hasattr(self, "_server"):
            self._server.stops_with_all = True
        self.stop()

    def _taken(self, message: Message, body: bytes) -> None:
        if not self._first.done():
            self._first.set_result(message)
            return
        do = message["do"]
        if do == "stop":
            self._stop_with_all()
        elif do == "lame_duck":
            self._server.start_lame_duck()
        elif do == "reload":
            number = message["number"]
            self._server.reload().add_done_callback(lambda asked: self._reloaded(number, asked.result()))
        elif do == "page":
            self._answer(message["number"], message["target"])

    def _reloaded(self, number: int, error: str) -> None:
        if not error:
            self._loaded_ns = self._server.clock.now_ns()
            if self._pages is not None:
                self._pages.reloaded(self._server.options)
        self._channel.send({"reloaded": number, "error": error})

    def _answer(self, number: int, target: str) -> None:
        def done(response: Response) -> None:
            body = b"".join((response.body, *response.rest))
            self._channel.send({"page": number, "status": response.status, "headers": response.headers}, body)

        if self._pages is None:
            # Imported lazily: the views are a third of the server's modules, needed only with a monitoring
            # port.
            from pyjs.server.workers.pages import Pages

            self._pages = Pages(
                self._server.driver, self._server.options, self._loaded_ns, self._server.declared_report
            )
        self._pages.answer(target, done)


def options_of(message: Message) -> Options:
    """Return the options of the worker that the first message describes.

    Raises:
        ConfigError: the configuration is no longer valid.
        OSError: the configuration file can no longer be read.
    """
    options = load_options(message["config"], read_file, os.environ, message["flags"])
    return place_worker(options, Worker(**message["worker"]))


async def work(fd: int) -> int:
    """Run one worker with the configuration received over `fd`; return the exit code."""
    overseer = Overseer()
    try:
        message = await overseer.connect(fd)
        options = options_of(message)
    except asyncio.CancelledError:
        return 0
    except (ConfigError, OSError) as error:
        print(f"the configuration cannot be used any more: {error}", file=sys.stderr)
        return 1
    # the server process has already logged these warnings
    options.warnings = replace(options.warnings, repeated=())
    command = Command(options, configured_logger(options))
    command.prepare()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(command.log_uncaught)
    loop.add_signal_handler(signal.SIGTERM, overseer.stop)
    return await overseer.serve(command, message["stands_in"])


def main() -> int:
    """Run the worker; return the exit code."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    from pyjs.server.system.loop import new_event_loop

    return new_event_loop().run_until_complete(work(int(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())

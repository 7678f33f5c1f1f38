"""The command: a server in its own process, and all settings of the process.

The owner of the process controls descriptors, allocator, garbage collector, hooks, signals and the loop. A server
inside another program (pyjs.aio) changes none of them.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

from pyjs.server.failures import StartFailed, log_exception
from pyjs.server.logging import CONTINUED, opened_logger
from pyjs.server.server import Server
from pyjs.server.spin import pays
from pyjs.server.system import signals
from pyjs.server.system.allocator import keep_buffers, objects_from_glibc, trim
from pyjs.server.system.collector import collect, keep_survivors
from pyjs.server.system.descriptors import raise_limit
from pyjs.server.system.loop import new_event_loop
from pyjs.server.system.memory import MemoryReturn
from pyjs.server.system.process import cpu_seconds, memory_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.log import Log
    from pyjs.config.options import Options

# Seconds for which a computing thread may keep the GIL from the event loop. Each callback of the loop takes the
# GIL again: with Python's default of 5 ms, a check of stored files delayed pings by up to 50 ms.
SWITCH_INTERVAL_S = 0.0005


def run(options: Options) -> int:
    """Serve until a signal stops the server; return the exit code of the command."""
    try:
        log = opened_logger(options)
    except StartFailed as error:
        print(CONTINUED.join(str(error).split("\n")), file=sys.stderr)
        return 1
    return Command(options, log).run()


class Command:
    """The command `pyjs-server`: one server that owns its process."""

    def __init__(self, options: Options, log: Log) -> None:
        self.log = log
        self.server = Server(options, log)

    def prepare(self) -> None:
        """Set up the process: GIL switch interval, descriptor limit, allocator and `sys.unraisablehook`."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        raise_limit()
        keep_buffers()
        objects_from_glibc()
        sys.unraisablehook = self.count_unraisable

    def run(self) -> int:
        """Set up the process and serve; return the exit code."""
        self.prepare()
        loop = new_event_loop()
        # The loop is not closed: that would restore the default action of signals before the process ends.
        return loop.run_until_complete(self._serve())

    async def _serve(self) -> int:
        server, loop = self.server, asyncio.get_running_loop()
        loop.set_exception_handler(self.log_uncaught)
        actions: dict[signal.Signals, Callable[[], object]] = {
            signal.SIGINT: server.request_stop,
            signal.SIGTERM: self._terminated,
            signal.SIGUSR1: server.reopen_log,
            signal.SIGUSR2: server.start_lame_duck,
            signal.SIGHUP: server.reload,
        }
        signals.install(loop, actions, self.log.info)
        try:
            await server.start(spin=pays())
        except StartFailed as error:
            if server.stop_asked:
                self.log.info(f"Server Exiting.., {error}")
                return 0
            self.log.fatal(str(error))
            return 1
        keep_survivors()
        self.return_memory()
        await server.wait_stopped()
        return 0

    def return_memory(self) -> None:
        """Start to return unused memory to the system periodically; the server must be running."""
        server = self.server
        wait, thread = server.driver.after_next_turn, server.compute_thread
        MemoryReturn(server.loop, wait, thread, collect, trim, cpu_seconds, memory_size)

    def _terminated(self) -> None:
        if not self.server.in_lame_duck_mode:  # SIGTERM does not interrupt lame duck mode
            self.server.request_stop()

    def count_unraisable(self, failed: sys.UnraisableHookArgs) -> None:
        """Count and log an exception that was raised in a destructor, or in compiled code that cannot pass it on."""
        error = failed.exc_value or failed.exc_type()
        what = f"{failed.err_msg or 'code that cannot raise'}: {failed.object}"
        if hasattr(self.server, "node") and isinstance(error, Exception):
            self.server.node.faults.report("compiled", what, error, self.server.clock.now_ns())
        else:
            log_exception(self.log, what, error)

    def log_uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Log an exception that reached the event loop, unless it is a ConnectionError."""
        error = context.get("exception")
        if isinstance(error, ConnectionError):
            return  # the client disconnected
        log_exception(self.log, context.get("message"), error)

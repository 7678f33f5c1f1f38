"""A server of several processes; this one starts the workers, forwards signals, and serves the monitoring pages.

The process of the command has no clients. It binds the client port, so that no other program can use the port, but
does not listen on it: each worker listens, and the kernel distributes connections over the workers. Log lines of
workers are read from pipes and written to one log. A crashed worker is restarted; if a worker fails at its first
start, the server exits.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from base64 import b32encode
from typing import TYPE_CHECKING

from pyjs import __version__
from pyjs.config.errors import ConfigError
from pyjs.config.options import Worker
from pyjs.server.addresses import ListenFailed, host_port, reserve, urls
from pyjs.server.announce import announce_configuration
from pyjs.server.declaring.rereading import read_with_declared
from pyjs.server.failures import StartFailed, attempt, fail
from pyjs.server.logging import CONTINUED, configured_logger, opened_logger
from pyjs.server.reload import LOG_OPTIONS, ReloadRefused, change_line, rewrite_files
from pyjs.server.system import files, signals
from pyjs.server.system.clock import OsRng, SystemClock
from pyjs.server.system.collector import keep_survivors
from pyjs.server.system.descriptors import raise_limit
from pyjs.server.tls.context import TlsFailed, read_tls_settings
from pyjs.server.tls.port import TlsPort
from pyjs.server.workers.process import State, WorkerProcess

if TYPE_CHECKING:
    from pyjs.config.options import Options
    from pyjs.server.logging import Logger
    from pyjs.server.workers.monitoring import WorkersMonitoring

STOP_S = 30.0  # seconds after which workers that do not stop are killed
PATH_MAX = 90  # maximum bytes of the path of the directory of sockets; the path of a socket may have 107


def run(options: Options) -> int:
    """Serve with several workers until a signal ends the server; return the exit code of the command."""
    import sys

    try:
        log = opened_logger(options)
    except StartFailed as error:
        print(CONTINUED.join(str(error).split("\n")), file=sys.stderr)
        return 1
    if not hasattr(socket, "SO_REUSEPORT"):
        log.fatal("workers need a system with SO_REUSEPORT, which this one does not have: remove workers")
        return 1
    raise_limit()
    # asyncio's own loop, since `pass_fds` needs it
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(Supervisor(options, log).serve())


class Supervisor:
    """The process that starts, watches and stops the workers of one server."""

    def __init__(self, options: Options, log: Logger) -> None:
        self.options = options
        self.log = log
        self.clock = SystemClock()
        self.started_ns = self.clock.now_ns()
        self.server_id = "N" + b32encode(OsRng().randbytes(35)).decode()[:55]
        self.workers: list[WorkerProcess] = []
        self.port = options.port
        self._reserved: list[socket.socket] = []
        self._directory = ""
        self._monitoring: WorkersMonitoring | None = None
        self._tls: TlsPort
        self._changed: asyncio.Event
        self._stopping = False
        self._in_lame_duck_mode = False
        self._ready = False  # whether all workers have been ready once
        self._failed = False  # whether a worker could not start
        self._reloading: asyncio.Task[None] | None = None  # the last one that was requested
        self._reload_waits = False  # whether it waits for the one before it

    @property
    def server_name(self) -> str:
        """The name of the server; the names of its workers begin with it."""
        return self.options.server_name or self.server_id

    async def serve(self) -> int:
        """Run the workers; return the exit code."""
        self._changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        actions = {
            signal.SIGINT: self.stop,
            signal.SIGTERM: self._terminated,
            signal.SIGUSR1: self._reopen_log,
            signal.SIGUSR2: self._start_lame_duck,
            signal.SIGHUP: self._reload_later,
        }
        signals.install(loop, actions, self.log.info)
        self._announce()
        self._tls = TlsPort(loop, self.log, loop.call_later)
        try:
            return await self._serve()
        except StartFailed as error:
            self.log.fatal(str(error))
            return 1
        finally:
            await self._close()

    def _announce(self) -> None:
        log, options = self.log, self.options
        log.info("Starting nats-server")
        log.info(f"  Git:      [pyjs-server {__version__}]")
        log.info(f"  Name:     {self.server_name}")
        log.info(f"  Workers:  {options.workers}")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if options.workers > cores:
            log.warn(
                f"{options.workers} workers share {cores} cores; more workers than cores serve no more clients"
            )
        announce_configuration(log, options)

    async def _serve(self) -> int:
        self._open()
        await self._start_monitoring()
        running = [asyncio.ensure_future(each.run(lambda: self._ready)) for each in self.workers]
        try:
            await self._wait_ready()
            if self._ready:
                self._tell_ready()
                keep_survivors()
            elif not self._stopping and not self._in_lame_duck_mode:
                self._fail()
            await self._wait_ended(running)
        finally:
            for each in self.workers:
                each.kill()
            await asyncio.gather(*running)
        if self._failed:
            return 1
        self.log.info("Server Exiting..")
        return 0

    def _fail(self) -> None:
        """Abandon the start, because a worker could not start."""
        worker = next(each for each in self.workers if each.state is State.ENDED)
        self.log.fatal(f"{worker}: {worker.failure}")
        self._failed = True
        for each in self.workers:
            each.stop()

    # -- starting --------------------------------------------------------------------------------------------------
    def _open(self) -> None:
        """Open the ports and the files, and create the workers."""
        options = self.options
        self.port = self._reserve(options.host, options.port, "Error listening on port")
        websocket_port = 0
        if options.websocket.port:
            block = options.websocket
            websocket_port = self._reserve(
                block.host, block.port, "Unable to listen for websocket connections"
            )
        files.write_first_pid_file(options.pid_file)
        self._directory = private_directory()
        for number in range(1, options.workers + 1):
            worker = Worker(
                number, options.workers, self.server_id, self.port, websocket_port, self._directory
            )
            self.workers.append(WorkerProcess(options, worker, self.log, self._note_change))

    def _reserve(self, host: str, port: int, what: str) -> int:
        try:
            sock = reserve(host, port)
        except ListenFailed as error:
            fail(f'{what}: {host_port(host, max(port, 0))}, "{error}"', error.remedy("port"))
        self._reserved.append(sock)
        found: int = sock.getsockname()[1]
        return found

    async def _start_monitoring(self) -> None:
        options = self.options
        try:
            self._tls.settings = read_tls_settings(options)
        except TlsFailed as error:
            fail(str(error))
        if options.monitoring.http_port or options.monitoring.https_port:
            from pyjs.server.workers.monitoring import WorkersMonitoring

            self._monitoring = WorkersMonitoring(self, self._tls)
            await self._monitoring.start()

    def _note_change(self) -> None:
        self._changed.set()

    async def _wait_ready(self) -> None:
        """Wait until all workers are ready, one has ended, or a signal has requested to stop."""
        while not self._stopping and not self._in_lame_duck_mode:
            states = {each.state for each in self.workers}
            if states == {State.READY}:
                self._ready = True
                return
            if State.ENDED in states:
                return
            self._changed.clear()
            await self._changed.wait()

    def _tell_ready(self) -> None:
        self.log.info(f"Listening for client connections on {host_port(self.options.host, self.port)}")
        self._write_ports_file()
        self.log.info("Server is ready")

    def _write_ports_file(self) -> None:
        options = self.options
        if not options.ports_file_dir:
            return
        listed = {"nats": urls("nats", options.host, self.port)}
        if self._monitoring is not None:
            listed["monitoring"] = self._monitoring.pages.urls
        if len(self._reserved) > 1:
            scheme = "wss" if options.websocket.tls.certificates else "ws"
            port = self._reserved[1].getsockname()[1]
            listed["websocket"] = urls(scheme, options.websocket.host, port)
        files.write_ports_file(options.ports_file_dir, listed, self.log)

    # -- signals ---------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Start to stop all workers."""
        if self._stopping:
            return
        self._stopping = True
        self.log.info("Initiating Shutdown...")
        for each in self.workers:
            each.stop()
        self._changed.set()

    def _terminated(self) -> None:
        if not self._in_lame_duck_mode:  # SIGTERM does not cut the lame duck mode short
            self.stop()

    def _reopen_log(self) -> None:
        if self.log.reopen():
            self.log.info("File log re-opened")
        else:
            self.log.info("File log re-open ignored, not a file logger")

    def _start_lame_duck(self) -> None:
        if self._stopping or self._in_lame_duck_mode:
            return
        self._in_lame_duck_mode = True
        for each in self.workers:
            each.start_lame_duck()
        self._changed.set()

    def _reload_later(self) -> None:
        if self._reload_waits:  # that reload will read the file as it is now
            return
        before = self._reloading
        self._reload_waits = before is not None and not before.done()
        self._reloading = asyncio.ensure_future(self._reload(before))

    async def _reload(self, before: asyncio.Task[None] | None) -> None:
        """Reread the configuration, in this process and then in all workers."""
        if before is not None:
            await before
        self._reload_waits = False
        if self._stopping:
            return
        old = self.options
        try:
            new, changed, _ = await asyncio.to_thread(read_with_declared, old)
            tls = read_tls_settings(new)
            names = {change.name for change in changed}
            log = configured_logger(new) if names.intersection(LOG_OPTIONS) else None
        except (ReloadRefused, ConfigError, TlsFailed, OSError) as error:
            self.log.error(f"Failed to reload server configuration: {error}")
            return
        except Exception as error:  # the next reload must work
            self.log.error(f"Failed to reload server configuration, by a fault of the server: {error!r}")
            return
        self.options, self._tls.settings = new, tls
        if log is not None:
            self.log.adopt(log)
        for change in changed:
            self.log.info(change_line(change))
        rewrite_files(old, new, self.log, self._write_ports_file)
        for each in self.workers:
            each.options = new
            each.reload_when_ready()
        asked = [each for each in self.workers if each.state is State.READY]
        answers = await asyncio.gather(*(each.reload() for each in asked))
        for worker, refusal in zip(asked, answers, strict=True):
            if refusal:
                self.log.error(f"Failed to reload server configuration in {worker}: {refusal}")
        if not any(answers):
            self.log.info(f"Reloaded server configuration ({new.config_digest})")

    # -- ending ----------------------------------------------------------------------------------------------------
    async def _wait_ended(self, running: list[asyncio.Task[None]]) -> None:
        """Wait until all workers have ended; kill workers that take too long to stop."""
        killing: asyncio.TimerHandle | None = None
        while not all(each.done() for each in running):
            if killing is None and (self._stopping or self._failed):
                killing = asyncio.get_running_loop().call_later(STOP_S, self._kill_all)
            self._changed.clear()
            await self._changed.wait()
            await asyncio.sleep(0)  # let the handler of the last change of a worker's state run first
        if killing is not None:
            killing.cancel()

    def _kill_all(self) -> None:
        for each in self.workers:
            if each.state is not State.ENDED:
                self.log.error(f"{each} does not stop, and is killed")
                each.kill()

    async def _close(self) -> None:
        if self._reloading is not None:
            await self._reloading
        if self._monitoring is not None:
            await self._monitoring.close()
        await self._tls.close()
        for sock in self._reserved:
            sock.close()
        if self._directory:
            attempt(self.log, lambda: shutil.rmtree(self._directory))
        if self.options.ports_file_dir:
            files.remove_ports_file(self.options.ports_file_dir)


def private_directory() -> str:
    """Create a directory that only this user can enter, and return its path; it is for sockets."""
    path = tempfile.mkdtemp(prefix="pyjs-workers-")
    if len(os.fsencode(path)) > PATH_MAX:
        os.rmdir(path)
        path = tempfile.mkdtemp(prefix="pyjs-workers-", dir="/tmp")
    return path

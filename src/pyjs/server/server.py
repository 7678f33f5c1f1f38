"""The server: the node, its listening ports, and the order in which they start and end.

`run` is the command, on a loop of its own; `start` and `stop` are the same server inside another program, on the
loop that is given, without signal handlers and allocator settings. The order of starting is that of the log lines,
which test suites wait for: identity, configuration, monitoring, JetStream, clients, `Server is ready`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from pyjs.base.disk import OsDisk
from pyjs.core.job import Lane
from pyjs.node import Node
from pyjs.server import files
from pyjs.server.addresses import ListenFailed, host_port, listen, urls
from pyjs.server.announce import announce_start
from pyjs.server.clock import OsRng, SystemClock
from pyjs.server.connection import Connection
from pyjs.server.driver import Driver
from pyjs.server.failures import StartFailed, attempt, fail, log_exception, reason
from pyjs.server.io_thread import IoThread
from pyjs.server.jetstream_switch import JetStreamSwitch
from pyjs.server.listener import Listener
from pyjs.server.logging import Logger, configured_logger
from pyjs.server.machine import effective_options
from pyjs.server.workers import Workers

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator

    from pyjs.base.log import Log
    from pyjs.config.options import Options
    from pyjs.monitor.response import Response
    from pyjs.monitor.router import Router
    from pyjs.monitor.state import Monitored
    from pyjs.server.http import HttpConnection
    from pyjs.server.lame_duck import LameDuck
    from pyjs.server.loop import EventLoop, Loop

CLOSING_S = 1.0  # connections have this long to take their last output when the server ends
CLOSING_STEP_S = 0.005
WARM_UP_AFTER_S = 0.05  # first let the client that waited for the port have its PONG


def _nothing() -> None:
    """Do nothing."""


class Server:
    """One server on one event loop: its own, or one of asyncio."""

    def __init__(self, options: Options, log: Log | None = None) -> None:
        self.options = options
        self.log: Log = log if log is not None else _opened_log(options)
        self.clock = SystemClock()
        self.node: Node
        self.driver: Driver
        self.loop: Loop
        self.monitored: Monitored | None = None  # None: no monitoring
        self.connections: set[Connection] = set()
        self.http_connections: set[HttpConnection] = set()
        self._client_listener: Listener | None = None
        self._http_listener: Listener | None = None
        self._router: Router | None = None
        self._jetstream: JetStreamSwitch
        self._workers: Workers
        self._lame_duck: LameDuck | None = None  # not None: clients are being sent away
        self._after_stop: list[Callable[[], None]] = []  # called once it has stopped, whoever asked for that
        self._running = False
        self._stopped = False

    # -- the command -------------------------------------------------------------------------------------------
    def run(self) -> int:
        """Serve until a signal ends it; return the exit code of the command."""
        from pyjs.server.allocator import keep_buffers
        from pyjs.server.collector import keep_survivors
        from pyjs.server.loop import EventLoop

        keep_buffers()
        keep_survivors()
        loop = EventLoop()
        self._after_stop.append(loop.stop)
        self._install_signals(loop)
        code = 0
        try:
            self.start(loop)
        except StartFailed as error:
            self.log.fatal(str(error))
            code = 1
        loop.run()
        return code  # the loop stays open: a signal may still come before the process is gone

    def _install_signals(self, loop: EventLoop) -> None:
        import signal

        from pyjs.server import signals

        actions = {
            signal.SIGINT: self.request_stop,
            signal.SIGTERM: self._terminated,
            signal.SIGUSR1: self.reopen_log,
            signal.SIGUSR2: self.start_lame_duck,
            signal.SIGHUP: self.reload,
        }
        signals.install(loop, actions, lambda text: self.log.info(text))

    def request_stop(self) -> None:
        """End the server, and then `run`."""
        self.stop()

    def _terminated(self) -> None:
        if self._lame_duck is None:  # SIGTERM does not cut a lame duck short
            self.request_stop()

    # -- starting ----------------------------------------------------------------------------------------------
    def start(self, loop: Loop) -> None:
        """Start to serve on `loop`; clients are accepted when it returns.

        Raises:
            StartFailed: a port, a file or the store directory cannot be used; what was opened is being closed.
        """
        self.loop = loop
        loop.set_exception_handler(self._uncaught)
        effective = effective_options(self.options)
        self.node = Node(effective, self.clock, OsRng(), OsDisk(), self.log)
        self.driver = Driver(self.loop, self.node)
        self._workers = Workers(self.driver, {lane: IoThread(loop, lane.value) for lane in Lane})
        self.driver.after_turn.append(self._workers.after_turn)
        self._jetstream = JetStreamSwitch(self.driver)
        announce_start(self.log, self.node, self.options)
        try:
            self._write_pid_file()
            self._start_monitoring()
            self._jetstream.start(self.options)
            self._start_clients()
        except StartFailed:
            self._close_everything(_nothing)
            raise
        self._running = True
        if self.monitored is not None:
            self.monitored.ready = True
        self.write_ports_file()
        self.log.info("Server is ready")
        self.driver.wake()
        self.loop.call_later(WARM_UP_AFTER_S, self._warm_up)

    def _write_pid_file(self) -> None:
        if not self.options.pid_file:
            return
        try:
            files.write_pid_file(self.options.pid_file)
        except OSError as error:
            fail(f"Could not write pidfile: open {self.options.pid_file}: {reason(error)}")

    def _start_monitoring(self) -> None:
        options = self.options
        if not options.http_port:
            return
        from pyjs.monitor.state import Monitored
        from pyjs.server.http import HttpConnection
        from pyjs.server.process import SystemProcess

        now_ns = self.clock.now_ns()
        host = options.http_host or options.host
        try:
            sock = listen(host, options.http_port)
        except ListenFailed as error:
            fail(f"Can't start monitoring: can't listen to the monitor port: {error}")
        self.monitored = Monitored(self.node, options, SystemProcess(now_ns), now_ns)
        self._http_listener = Listener(
            self.loop,
            sock,
            lambda sock, _: HttpConnection(self.loop, self._answer, self.http_connections, self.log, sock),
            "Monitor",
            self.log,
        )
        self._http_listener.start()
        self.log.info(f"Starting http monitor on {host_port(host, self._http_listener.port)}")

    def _start_clients(self) -> None:
        options = self.options
        try:
            sock = listen(options.host, options.port)
        except ListenFailed as error:
            where = host_port(options.host, max(options.port, 0))
            fail(f'Error listening on port: {where}, "{error}"')
        self._client_listener = Listener(self.loop, sock, self._take_client, "Client", self.log)
        self.node.port = self._client_listener.port
        self._client_listener.start()
        self.log.info(f"Listening for client connections on {host_port(options.host, self.node.port)}")

    def _take_client(self, sock: socket.socket, address: tuple[str, int]) -> None:
        Connection(self.driver, self.connections, sock, address)

    def _answer(self, target: str) -> Generator[None, None, Response]:
        """Answer a monitoring request; the views are loaded with the first, long after the first PONG."""
        if self._router is None:
            from pyjs.monitor.router import Router

            assert self.monitored is not None
            self._router = Router(self.monitored, self.clock, self.log)
        return self._router.answer(target)

    def _warm_up(self) -> None:
        """Load what the first requests, writes and failures need, beside the loop.

        When descriptors have run out it is too late to open a module.
        """
        modules = ["traceback"]
        if self.node.jetstream is not None:
            modules += ["queue", "pyjs.jetstream.api.router", "pyjs.jetstream.persist"]
        if self.monitor_port:
            modules += ["pyjs.monitor.router", "httptools"]
        if self._running:
            import threading

            threading.Thread(target=_import_all, args=(modules,), name="pyjs-warm-up", daemon=True).start()

    # -- what others ask ---------------------------------------------------------------------------------------
    @property
    def client_port(self) -> int:
        """Return the port that clients connect to."""
        return self.node.port

    @property
    def monitor_port(self) -> int:
        """Return the port of the monitoring endpoints, 0: there is none."""
        return self._http_listener.port if self._http_listener is not None else 0

    @property
    def client_url(self) -> str:
        """Return a URL that a client on this machine can use."""
        return urls("nats", self.options.host, self.client_port)[0]

    def write_ports_file(self) -> None:
        """Write the ports file, if one is wanted."""
        options = self.options
        if not options.ports_file_dir:
            return
        listed = {"nats": urls("nats", options.host, self.client_port)}
        if self.monitor_port:
            listed["monitoring"] = urls("http", options.http_host or options.host, self.monitor_port)
        try:
            files.write_ports_file(options.ports_file_dir, listed)
        except OSError as error:
            path = files.ports_path(options.ports_file_dir)
            self.log.error(f"Error writing ports file ({path}): {reason(error)}")

    def reload(self) -> None:
        """Apply the configuration file as it is now: all of it, or nothing and say why."""
        from pyjs.config.errors import ConfigError
        from pyjs.server.reload import LOG_OPTIONS, ReloadRefused, change_line, read_again

        old = self.options
        try:
            new, changed = read_again(old)
            names = {change.name for change in changed}
            log = configured_logger(new) if names.intersection(LOG_OPTIONS) else None
        except (ReloadRefused, ConfigError, OSError) as error:
            self.log.error(f"Failed to reload server configuration: {error}")
            return
        self._apply_options(new)
        if log is not None and isinstance(self.log, Logger):
            self.log.adopt(log)
        for change in changed:
            self.log.info(change_line(change))
        if "pid_file" in names or "ports_file_dir" in names:
            self._rewrite_files(old)
        self._switch_jetstream()
        self._apply_to_sessions()
        self.log.info(f"Reloaded server configuration ({new.config_digest})")

    def _apply_options(self, options: Options) -> None:
        self.options = options
        self.node.apply_options(effective_options(options, self.node.options))
        if self.monitored is not None:
            self.monitored.options = options
            self.monitored.config_loaded_at_ns = self.clock.now_ns()

    def _switch_jetstream(self) -> None:
        """Start JetStream, or end it, when a reload says so."""
        if self._jetstream.ending:
            return  # looked at again when it has ended
        if self._lame_duck is not None or not self._running:
            return  # who ends has given it up for good
        if self.options.jetstream.enabled == (self.node.jetstream is not None):
            return
        if not self.options.jetstream.enabled:
            self._jetstream.stop(self._switch_jetstream)
            return
        try:
            self._jetstream.start(self.options)
        except StartFailed as error:
            self.log.warn(str(error))

    def _rewrite_files(self, old: Options) -> None:
        try:
            if self.options.pid_file:
                files.write_pid_file(self.options.pid_file)
        except OSError as error:
            self.log.error(f"Failed to write pidfile: {reason(error)}")
        if old.ports_file_dir:
            files.remove_ports_file(old.ports_file_dir)
        self.write_ports_file()

    def _apply_to_sessions(self) -> None:
        """Close whom changed users and a smaller max_connections leave no place; the newest first."""
        for session in list(self.node.sessions.values()):
            session.reauthorize()
        surplus = list(self.node.sessions.values())[max(0, self.options.max_connections) :]
        for session in reversed(surplus):
            session.close("Maximum Connections Exceeded", "maximum connections exceeded")
        if surplus:
            self.log.info(f"Closed {len(surplus)} connections to fall within max_connections")
        self.driver.wake()

    def reopen_log(self) -> None:
        """Open the log file again, after someone moved it away."""
        if isinstance(self.log, Logger) and self.log.reopen():
            self.log.info("File log re-opened")
        else:
            self.log.info("File log re-open ignored, not a file logger")

    # -- ending ------------------------------------------------------------------------------------------------
    def start_lame_duck(self) -> None:
        """Send the clients elsewhere, then end."""
        if not self._running or self._lame_duck is not None:
            return
        from pyjs.server.lame_duck import LameDuck

        options = self.options
        self.log.info("Entering lame duck mode, stop accepting new clients")
        self._close_client_listener()
        self._lame_duck = LameDuck(
            self.driver, options.lame_duck_duration_ns, options.lame_duck_grace_period_ns, self.request_stop
        )
        self._jetstream.stop(self._lame_duck.start)

    def _close_client_listener(self) -> None:
        if self._client_listener is not None:
            self._client_listener.close()

    def stop(self, then: Callable[[], None] = _nothing) -> None:
        """Close the connections and the streams, then call `then`; the server can not be started again."""
        if self._stopped:
            then()
            return
        self._after_stop.append(then)
        if not self._running:
            return  # on its way already
        self._running = False
        self.log.info("Initiating Shutdown...")
        if self._lame_duck is not None:
            self._lame_duck.cancel()
        self._close_everything(self._say_farewell)

    def _say_farewell(self) -> None:
        if self.options.ports_file_dir:
            files.remove_ports_file(self.options.ports_file_dir)
        self.log.info("Server Exiting..")

    def _close_everything(self, then: Callable[[], None]) -> None:
        self._close_client_listener()
        if self._http_listener is not None:
            self._http_listener.close()
        attempt(self.log, self.driver.turn_now)
        self._jetstream.stop(lambda: self._close_connections(then))

    def _close_connections(self, then: Callable[[], None]) -> None:
        attempt(self.log, self.node.stop)
        self.driver.stop()
        attempt(self.log, self._workers.stop)
        for http_connection in list(self.http_connections):
            http_connection.close()
        self._await_closed(self.loop.time() + CLOSING_S, then)

    def _await_closed(self, deadline: float, then: Callable[[], None]) -> None:
        """End when every connection has sent its last output, or has been given up."""
        if (self.connections or self.http_connections) and self.loop.time() < deadline:
            self.loop.call_later(CLOSING_STEP_S, self._await_closed, deadline, then)
            return
        for connection in [*self.connections, *self.http_connections]:
            connection.abort()
        attempt(self.log, then)
        self._stopped = True
        for waiting in self._after_stop:
            waiting()

    def _uncaught(self, loop: Loop, context: dict[str, object]) -> None:
        """Log an exception that nothing else caught: the one edge where every exception is."""
        error = context.get("exception")
        if isinstance(error, ConnectionError):
            return  # a peer that went away in the middle of something
        log_exception(self.log, context.get("message"), error)


def _opened_log(options: Options) -> Logger:
    try:
        return configured_logger(options)
    except OSError as error:
        raise SystemExit(f"error opening file: open {options.log_file}: {reason(error)}") from None


def _import_all(modules: list[str]) -> None:
    import importlib

    orjson.loads(b"{}")  # loads the library
    for module in modules:
        importlib.import_module(module)

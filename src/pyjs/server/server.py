"""The server: the node, its listening ports, and the order of its start and stop.

The server uses the running event loop, which belongs to the command (command.py) or to another program (pyjs.aio).
It changes no global state of the process: no signal handler, no hook, no allocator and no limit. The log lines of a
start have a fixed order, on which test suites rely: identity, configuration, monitoring, JetStream, routes, clients,
`Server is ready`.

Long because it contains every step of a start and of a stop, in order.
"""

from __future__ import annotations

import asyncio
import enum
import os
import sys
import warnings
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.disk import OsDisk
from pyjs.base.table import HASH_SEED_SIZE, set_hash_seed
from pyjs.config.errors import ConfigError
from pyjs.core.job import JobQueue
from pyjs.node import Node
from pyjs.server.addresses import ListenFailed, bind, host_port, urls
from pyjs.server.announce import announce_start
from pyjs.server.connection import Connection
from pyjs.server.declaring.part import DeclaredStreams
from pyjs.server.declaring.rereading import given, read_with_declared
from pyjs.server.driver import Driver
from pyjs.server.failures import StartFailed, attempt, fail
from pyjs.server.jetstream_switch import JetStreamSwitch
from pyjs.server.lame_duck import LameDuck
from pyjs.server.listener import Listener
from pyjs.server.logging import Logger, configured_logger
from pyjs.server.monitoring.system_account import SystemAccount
from pyjs.server.open_connections import OpenConnections
from pyjs.server.reload import (
    LOG_OPTIONS,
    ReloadRefused,
    change_line,
    refuse_reload,
    rewrite_files,
)
from pyjs.server.spin import Spin
from pyjs.server.system import files
from pyjs.server.system.clock import OsRng, SystemClock
from pyjs.server.system.descriptors import open_files_max
from pyjs.server.system.resources import effective_options
from pyjs.server.system.scratch import UnsyncedDisk
from pyjs.server.threads.io_thread import IoThread
from pyjs.server.threads.reloads import Reloads
from pyjs.server.threads.workers import Workers
from pyjs.server.tls.context import TlsFailed, certificate_ends, read_tls_settings
from pyjs.server.tls.port import TlsPort
from pyjs.server.tls.transport import TlsTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from pyjs.base.log import Log
    from pyjs.config.options import Options, Worker
    from pyjs.core.session import ClientSession
    from pyjs.monitor.own.declaredz import DeclaredReport
    from pyjs.server.cluster.port import RoutePort
    from pyjs.server.declaring.rereading import Reread
    from pyjs.server.monitoring.endpoints import Monitoring
    from pyjs.server.monitoring.http import HttpConnection
    from pyjs.server.system.scratch import ScratchStore
    from pyjs.server.websocket.port import WebSocketPort

RECOVERY_S = 0.01  # seconds of recovery between two iterations of the loop
MEET_S = 3.0  # seconds for which a replacement worker waits for the other workers
FETCHERS = 4  # threads that query an account server
STREAMS_S = 10.0  # seconds for which a worker waits until the other workers have closed their streams
CLOSING_S = 1.0  # seconds for which connections may read their last output when the server stops


class State(enum.Enum):
    """The state of a server: NEW -> STARTING -> RUNNING -> STOPPING -> STOPPED.

    A server can become STOPPED from any other state, for example after a failed start.
    """

    NEW = enum.auto()
    STARTING = enum.auto()
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    STOPPED = enum.auto()


class Server:
    """A NATS server on one event loop; it can be started only once, and not again after a stop."""

    def __init__(self, options: Options, log: Log, scratch: ScratchStore | None = None) -> None:
        self.options = options
        self.log = log
        self.clock = SystemClock()
        self.node: Node
        self.driver: Driver
        self.loop: asyncio.AbstractEventLoop
        self.state = State.NEW
        self.connections: OpenConnections[Connection] = OpenConnections()
        self.after_stop: list[Callable[[], object]] = []  # called after a stop or a failed start
        self._scratch = scratch  # a temporary store directory, removed after the stop
        self._client_listener: Listener | None = None
        self._tls: TlsPort
        self._monitoring: Monitoring | None = None  # None: there is no port for it
        self._routes: RoutePort | None = None  # None: the server is in no cluster
        self._websocket: WebSocketPort | None = None  # None: there is no such port
        self._system_account: SystemAccount
        self._jetstream: JetStreamSwitch
        self._workers: Workers
        self._reloads: Reloads[Reread]
        self._lame_duck: LameDuck | None = None  # not None: in lame duck mode
        self._stop_asked = False
        self.stops_with_all = False  # in a worker: all other workers are stopping too
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._pid = 0  # id of the process that started the server

    def __del__(self) -> None:
        if self.state in (State.NEW, State.STOPPED) or self._pid != os.getpid() or sys.is_finalizing():
            return
        text = f"the server at {self.client_url} was not stopped before its event loop ended"
        warnings.warn(text, ResourceWarning, source=self, stacklevel=2)
        self.abort()

    # -- starting ----------------------------------------------------------------------------------------------
    async def start(self, spin: bool = False, stands_in: bool = False) -> None:
        """Start the server on the running loop; it accepts clients on return.

        With `spin`, on a machine with two cores or more, the loop checks for input for a short time before it
        sleeps (spin.pyx). With `stands_in`, the server replaces a worker that has ended, while the other workers
        run. If the start fails or is cancelled, everything it opened is closed.

        Raises:
            StartFailed: for example, a port, a file or the store directory cannot be used.
        """
        assert self.state is State.NEW
        self.state = State.STARTING
        self._pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self._make_parts(spin)
        announce_start(self.log, self.node, self.options)
        try:
            self._jetstream.declared.read_first(self.options)
            self._start_tls()
            files.write_first_pid_file(self.options.pid_file)
            await self._start_trust()
            await self._start_monitoring()
            await self._start_jetstream()
            reload = self.reload if self.options.worker is None else partial(refuse_reload, self.loop)
            counts = {} if self._monitoring is None else self._monitoring.request_counts
            self._system_account = SystemAccount(self.driver, self.options, certificate_ends, reload, counts)
            if self.options.worker is not None:
                await self._meet(self.options.worker, stands_in)
            self._bind_clients()
            await self._start_routes()
            await self._jetstream.declared.start(self.driver)
            await self._start_websocket()
            await self._start_clients()
        except BaseException:
            await self._end()
            raise
        self.state = State.RUNNING
        if self._monitoring is not None:
            self._monitoring.ready()
        self.write_ports_file()
        self.log.info("Server is ready" if self.options.worker is None else "Ready")
        self.driver.wake()
        if self._stop_asked:
            self.request_stop()

    def _make_parts(self, spin: bool) -> None:
        """Create the node and its driver, without opening anything."""
        disk = OsDisk() if self._scratch is None else UnsyncedDisk()
        disk.open_files_max = open_files_max()
        rng = OsRng()
        set_hash_seed(rng.randbytes(HASH_SEED_SIZE))  # before any table contains a key from a client
        options = effective_options(self.options)
        if self._scratch is not None:
            # Not in a subdirectory, since removing one takes milliseconds on some file systems.
            options.jetstream.store_dir = self._scratch.path
        self.node = Node(options, self.clock, rng, disk, self.log)
        self.driver = Driver(self.loop, self.node)
        threads = {queue: IoThread(self.loop, queue.value, queue is JobQueue.COMPUTE) for queue in JobQueue}
        threads[JobQueue.NETWORK] = IoThread(self.loop, JobQueue.NETWORK.value, most=FETCHERS)
        self._workers = Workers(self.driver, threads)
        self.driver.jobs_queued.append(self._workers.after_turn)
        if spin:
            self.driver.after_turn.append(Spin(self.driver).after_turn)
        self._tls = TlsPort(self.loop, self.log, self.driver.after)
        self._jetstream = JetStreamSwitch(self.driver, DeclaredStreams())
        self._reloads = Reloads(self.loop, lambda: read_with_declared(self.options), self._apply_file)

    def _start_tls(self) -> None:
        try:
            self._tls.settings = read_tls_settings(self.options)
        except TlsFailed as error:
            fail(str(error))

    async def _start_trust(self) -> None:
        """Load the accounts that must be known before clients connect."""
        trust = self.node.trust
        if trust is None:
            return
        from pyjs.claims.token import TokenFault
        from pyjs.core.trust.resolvers import ResolverFault, UrlResolver
        from pyjs.server.system.account_server import get

        try:
            if isinstance(trust.resolver, UrlResolver):
                trust.resolver.get = get
                await asyncio.to_thread(trust.resolver.fetch, "")  # raises if the server does not answer
                await asyncio.to_thread(self.node.start_trust)  # no other code uses the node at this point
            else:
                self.node.start_trust()
        except (TokenFault, ResolverFault) as fault:
            fail(str(fault))

    async def _start_monitoring(self) -> None:
        if not self.options.monitoring.http_port and not self.options.monitoring.https_port:
            return
        from pyjs.server.monitoring.endpoints import Monitoring

        self._monitoring = Monitoring(
            self.driver, self.options, self._tls, certificate_ends, self.declared_report
        )
        await self._monitoring.start()

    async def _start_jetstream(self) -> None:
        """Recover the streams in steps, between which the loop serves monitoring and signals."""
        give_way_at = self.loop.time() + RECOVERY_S
        with closing(self._jetstream.start_steps(self.options)) as steps:
            for _ in steps:
                if self.loop.time() < give_way_at:
                    continue
                await asyncio.sleep(0)
                if self._stop_asked:
                    fail("stopped before the streams were recovered")
                give_way_at = self.loop.time() + RECOVERY_S

    async def _start_websocket(self) -> None:
        if not self.options.websocket.port:
            return
        from pyjs.server.websocket.port import WebSocketPort

        try:
            self._websocket = WebSocketPort(self.driver, self.options, self.connections)
        except TlsFailed as error:
            fail(str(error))
        await self._websocket.start()

    def _bind_clients(self) -> None:
        """Bind the client port, since other servers need its number; connections are refused for now."""
        options = self.options
        with self._client_port():
            sock = bind(options.host, options.port, shared=options.worker is not None)
        self._client_listener = Listener(self.loop, sock, "Client", self.log)
        self.node.port = self._client_listener.port

    @contextmanager
    def _client_port(self) -> Iterator[None]:
        """Raise StartFailed if the code in the `with` block cannot listen on the client port."""
        try:
            yield
        except ListenFailed as error:
            where = host_port(self.options.host, max(self.options.port, 0))
            fail(f'Error listening on port: {where}, "{error}"', error.remedy("port"))

    async def _start_clients(self) -> None:
        options, listener = self.options, self._client_listener
        assert listener is not None
        with self._client_port():
            listener.listen(options.host)
        await listener.start(lambda: self._client_protocol(listener))
        self.log.info(f"Listening for client connections on {host_port(options.host, self.node.port)}")
        if options.proxy_protocol:
            self.log.info("PROXY protocol enabled for client connections")
        self._tls.announce()

    async def _start_routes(self) -> None:
        cluster = self.node.cluster
        if cluster is None or self._routes is not None:
            return
        from pyjs.server.cluster.port import RoutePort  # imported lazily: most servers are not in a cluster

        try:
            self._routes = RoutePort(self.driver, self.options, cluster, self.connections)
        except TlsFailed as error:
            fail(str(error))
        await self._routes.start()
        if self.options.worker is None:
            # The clients of a restarted server must reach subscribers and streams of the others at once.
            await self._routes.wait_known()

    async def _meet(self, worker: Worker, stands_in: bool) -> None:
        """Open the routes to the other workers, and wait for those workers, so that clients can use the streams."""
        await self._start_routes()
        assert self._routes is not None
        try:
            async with asyncio.timeout(MEET_S if stands_in else None):
                await self._routes.wait_met(worker.count - 1, self._jetstream.spread)
        except TimeoutError:
            self.log.warn("Not all other workers answer; clients are accepted without them")

    def _client_protocol(self, listener: Listener) -> asyncio.BaseProtocol:
        """Return the asyncio protocol for a new client connection."""
        behind_proxy = self.options.proxy_protocol
        connection = Connection(self.driver, self.connections, listener, behind_proxy)
        settings = self._tls.settings
        protocol = connection if settings is None else TlsTransport(self._tls, settings, connection)
        if not behind_proxy:
            return protocol
        # Imported lazily, in 2 ms: most servers have no proxy.
        from pyjs.server.proxied.start import ProxiedStart

        return ProxiedStart(self.driver, connection, protocol)

    # -- queries and requests ----------------------------------------------------------------------------------
    @property
    def client_port(self) -> int:
        """The number of the client port; it is known before clients are accepted."""
        return self.node.port

    @property
    def monitor_port(self) -> int:
        """The number of the monitoring port, or 0 if there is none."""
        return 0 if self._monitoring is None else self._monitoring.pages.port

    @property
    def websocket_url(self) -> str | None:
        """A URL for WebSocket clients on this machine, or None if there is no WebSocket port."""
        return None if self._websocket is None else self._websocket.urls[0]

    @property
    def client_url(self) -> str:
        """A URL that a client on this machine can use."""
        return urls("nats", self.options.host, self.client_port)[0]

    @property
    def monitor_url(self) -> str | None:
        """A URL of the monitoring pages on this machine, or None if there is no monitoring port."""
        return None if self._monitoring is None else self._monitoring.pages.urls[0]

    def declared_report(self) -> Generator[Any, None, DeclaredReport]:
        """Compare the streams and consumers with the declared ones in steps, and return a report.

        A step may yield a future, for which the caller must wait.
        """
        return self._jetstream.declared.report()

    @property
    def stop_asked(self) -> bool:
        """Whether a stop was requested, possibly before the start."""
        return self._stop_asked

    @property
    def in_lame_duck_mode(self) -> bool:
        """Whether the server is in lame duck mode."""
        return self._lame_duck is not None

    @property
    def compute_thread(self) -> IoThread:
        """The thread for jobs of the COMPUTE queue; only valid while the server runs."""
        return self._workers.thread(JobQueue.COMPUTE)

    def write_ports_file(self) -> None:
        """Write the ports file, if configured."""
        options = self.options
        if not options.ports_file_dir:
            return
        listed = {"nats": urls("nats", options.host, self.client_port)}
        if self._monitoring is not None:
            listed["monitoring"] = self._monitoring.pages.urls
        if self._websocket is not None:
            listed["websocket"] = self._websocket.urls
        if self._routes is not None:
            listed["cluster"] = self._routes.urls
        files.write_ports_file(options.ports_file_dir, listed, self.log)

    def reload(self) -> asyncio.Future[str]:
        """Reread the configuration file and apply it as a whole.

        The result of the future is "" on success, otherwise the reason why the file was not applied.
        """
        return self._reloads.ask()

    def _apply_file(self, found: Reread | Exception) -> str:
        """Apply a configuration that was read again, and return "".

        If it cannot be applied, log and return the reason.
        """
        old = self.options
        try:
            new, changed, declared = given(found)
            names = {change.name for change in changed}
            tls = read_tls_settings(new)
            route_tls = None if self._routes is None else self._routes.read_reloaded(new)
            websocket_tls = None if self._websocket is None else self._websocket.read_reloaded(new)
            log = (
                configured_logger(new)
                if names.intersection(LOG_OPTIONS) and isinstance(self.log, Logger)
                else None
            )
        except (ReloadRefused, ConfigError, TlsFailed, OSError) as error:
            self.log.error(f"Failed to reload server configuration: {error}")
            return str(error)
        self._apply_options(new)
        self._tls.settings = tls
        if self._websocket is not None:
            self._websocket.reloaded(new, websocket_tls)
        if self._routes is not None and route_tls is not None:
            self._routes.reloaded(new, route_tls)
        if log is not None and isinstance(self.log, Logger):
            self.log.adopt(log)
        for change in changed:
            self.log.info(change_line(change))
        for text in (*new.warnings.mistakes, *new.warnings.repeated):
            self.log.warn(text)
        rewrite_files(old, new, self.log, self.write_ports_file)
        self._switch_jetstream()
        self._apply_to_sessions()
        self._jetstream.declared.reloaded(self.driver, declared)
        self.log.info(f"Reloaded server configuration ({new.config_digest})")
        return ""

    def _apply_options(self, options: Options) -> None:
        self.options = options
        self.node.apply_options(effective_options(options, self.node.options))
        if self._monitoring is not None:
            self._monitoring.reloaded(options)
        self._system_account.reloaded(options)

    def _switch_jetstream(self) -> None:
        """Start or stop JetStream after a reload has changed it."""
        if self._jetstream.ending:
            return  # called again when JetStream has stopped
        if self._lame_duck is not None or self.state is not State.RUNNING:
            return  # the server is stopping: do not start JetStream again
        if self.options.runs_jetstream == (self.node.jetstream is not None):
            return
        if not self.options.runs_jetstream:
            self._jetstream.stop(self._switch_jetstream)
            return
        try:
            self._jetstream.start(self.options)
        except StartFailed as error:
            self.log.warn(str(error))

    def _apply_to_sessions(self) -> None:
        """Apply changed users to all clients, and close the newest clients beyond max_connections."""
        for session in list(self.node.sessions.values()):
            session.reauthorize()
        self.node.enforce_account_limits()
        surplus = list(self.node.sessions.values())[max(0, self.options.limits.max_connections) :]
        for session in reversed(surplus):
            session.close("Maximum Connections Exceeded", "maximum connections exceeded")
        if surplus:
            self.log.info(f"Closed {len(surplus)} connections to fall within max_connections")
        self.driver.wake()

    def reopen_log(self) -> None:
        """Reopen the log file, after it was renamed."""
        if isinstance(self.log, Logger) and self.log.reopen():
            self.log.info("File log re-opened")
        else:
            self.log.info("File log re-open ignored, not a file logger")

    # -- ending ------------------------------------------------------------------------------------------------
    def start_lame_duck(self) -> None:
        """Enter lame duck mode, after which the server stops; do nothing unless the server is running."""
        if self.state is not State.RUNNING or self._lame_duck is not None:
            return
        options = self.options
        self.log.info("Entering lame duck mode, stop accepting new clients")
        assert self._client_listener is not None
        self._client_listener.close()
        if self._websocket is not None:
            self._websocket.listener.close()
        self._lame_duck = LameDuck(
            self.driver,
            options.lame_duck_duration_ns,
            options.lame_duck_grace_period_ns,
            self._close_session,
            self.request_stop,
        )
        begin = partial(self._jetstream.stop, self._lame_duck.start)
        (begin if self._routes is None else partial(self._routes.leaving.begin_lame_duck, begin))()

    def _close_session(self, session: ClientSession) -> None:
        """Close the connection of one client in lame duck mode."""
        if self._routes is not None:
            self._routes.leaving.close(session)
        else:
            session.close("Server Shutdown")

    def request_stop(self) -> None:
        """Begin to stop the server, and return before it has stopped.

        A server that is still starting stops as soon as it has started.
        """
        self._stop_asked = True
        if self.state is State.STARTING:
            self._jetstream.declared.stop()  # the start must not wait for it
        if self.state is State.RUNNING:
            self.state = State.STOPPING
            self._stopping = self.loop.create_task(self._shut_down())
            self._stopping.add_done_callback(lambda _: self.abort())  # also if cancelled before it begins

    async def stop(self) -> None:
        """Stop the server, and wait until its connections and streams are closed.

        A stopped server cannot be started again.
        """
        if self.state is State.NEW:
            self.state = State.STOPPED
            self._stopped.set()
        self.request_stop()
        await self._stopped.wait()

    async def wait_stopped(self) -> None:
        """Wait until the server has stopped."""
        await self._stopped.wait()

    async def _shut_down(self) -> None:
        self.log.info("Initiating Shutdown...")
        if self._lame_duck is not None:
            self._lame_duck.cancel()
        await self._end()

    async def _end(self) -> None:
        """Close all parts; if the server was ready, log that it has stopped. If this task is cancelled, abort."""
        said = self.state is State.STOPPING
        try:
            await self._close_everything()
            if said:
                attempt(self.log, self._say_farewell)
        except asyncio.CancelledError:  # the loop is about to be closed
            self._cut_off()
            raise
        finally:
            await self._remove_scratch()
            self._note_stopped()

    def _say_farewell(self) -> None:
        if self.options.ports_file_dir:
            files.remove_ports_file(self.options.ports_file_dir)
        self.log.info("Server Exiting..")

    async def _close_everything(self) -> None:
        """Close the ports, the streams and the connections, in this order."""
        self._close_ports()
        self._reloads.stop()
        self._jetstream.declared.stop()
        attempt(self.log, self.driver.turn_now)
        if self._routes is not None:
            await self._routes.leaving.let_all_go()
        jetstream_stopped = asyncio.Event()
        self._jetstream.stop(jetstream_stopped.set)
        await jetstream_stopped.wait()
        await self._hear_streams()
        attempt(self.log, self.node.stop)
        self._leave_cluster()
        self.driver.stop()
        await self._workers.finish()
        await self._reloads.close()
        await self._close_connections()
        await self._tls.close()
        if self._websocket is not None:
            await self._websocket.close()
        if self._routes is not None:
            await self._routes.close()

    async def _remove_scratch(self) -> None:
        """Remove a temporary store directory, in a thread since it may have gigabytes."""
        if self._scratch is None:
            return
        thread = IoThread(self.loop, "scratch")
        thread.submit(self._scratch.remove, lambda _: None)
        try:
            await thread.finish()
        finally:
            thread.stop()

    def _close_ports(self) -> None:
        if self._client_listener is not None:
            self._client_listener.close()
        if self._websocket is not None:
            self._websocket.listener.close()
            self._websocket.stop()
        if self._monitoring is not None:
            self._monitoring.pages.listener.close()
        if self._routes is not None:
            self._routes.close_port()

    def _leave_cluster(self) -> None:
        """Close the routes; must be called after the last message to clients of other servers was sent."""
        if self._routes is not None:
            attempt(self.log, self._routes.stop)

    async def _hear_streams(self) -> None:
        """If all workers stop, wait up to `STREAMS_S` for the last messages from the streams of other workers."""
        if self.stops_with_all and self._routes is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(STREAMS_S):
                    await self._routes.wait_streams(self.options.worker, self._jetstream.spread)

    async def _close_connections(self) -> None:
        """Wait until every connection has sent its last output; abort connections that take too long."""
        ports: list[OpenConnections[Connection] | OpenConnections[HttpConnection]] = [self.connections]
        if self._routes is not None:
            ports.append(self._routes.connections)
        if self._monitoring is not None:
            ports.append(self._monitoring.pages.stop())
        all_closed = asyncio.gather(*(port.wait_empty() for port in ports))
        try:
            await asyncio.wait_for(all_closed, CLOSING_S)
        except TimeoutError:
            for port in ports:
                for connection in port:
                    connection.abort()

    def abort(self) -> None:
        """Stop at once, without the loop; the streams are closed as the last turn left them.

        This is meant for a server whose loop has ended. PubAcks that wait for a sync are never sent.
        """
        if self.state in (State.NEW, State.STOPPED) or self._pid != os.getpid():
            return
        self._cut_off()
        if self._scratch is not None:
            self._scratch.remove()
        self._note_stopped()

    def _note_stopped(self) -> None:
        self.state = State.STOPPED
        self._stopped.set()
        for call in self.after_stop:
            call()

    def _cut_off(self) -> None:
        self.log.warn("Stopping without waiting for connections and syncs")
        self._close_ports()
        self.driver.stop()
        attempt(self.log, self._workers.stop)
        attempt(self.log, self._jetstream.abort)
        if not self.loop.is_closed():
            attempt(self.log, self.node.stop)
            self._leave_cluster()
            for connection in self.connections:
                connection.abort()

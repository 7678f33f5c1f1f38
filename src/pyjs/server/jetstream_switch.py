"""The start and the stop of JetStream.

JetStream starts with the server or by a reload; it stops with the server, by a reload, or in lame duck mode. A stop
takes several turns: written bytes are synced, PubAcks that wait for the sync are sent, the stores are closed, and
then the callbacks of `stop` are called.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pyjs.base.errors import PyjsError, reason_of
from pyjs.base.gotext import duration_text
from pyjs.server.announce import announce_jetstream
from pyjs.server.failures import attempt, fail, file_remedy
from pyjs.server.system import files
from pyjs.server.system.recovery import RecoveryProgress
from pyjs.server.threads.io_thread import IoThread
from pyjs.server.threads.syncer import Syncer
from pyjs.server.threads.upkeep import Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyjs.config.options import Options
    from pyjs.jetstream.server import JetStreamServer
    from pyjs.jetstream.spread.spread_node import SpreadNode
    from pyjs.server.declaring.part import DeclaredStreams
    from pyjs.server.driver import Driver


class JetStreamSwitch:
    """A controller that starts and stops JetStream on one node."""

    def __init__(self, driver: Driver, declared: DeclaredStreams) -> None:
        self._driver = driver
        self.declared = declared  # the streams that the file declares
        self._node = driver.node
        self._log = driver.node.log
        self._io_thread: IoThread | None = None
        self._upkeep_thread: IoThread | None = None
        self._upkeep: Upkeep | None = None
        self._syncer: Syncer | None = None
        self._hook: Callable[[], None] | None = None  # of the syncer, in the driver's list
        # The JetStream that is stopping: it syncs, waits for jobs that write metadata, then ends.
        self._ending: JetStreamServer | None = None
        self._synced = False  # the syncs are done; `_ending` now waits only for jobs that write metadata
        self._after: list[Callable[[], None]] = []  # called after JetStream has stopped
        self.spread: SpreadNode | None = (
            None  # this worker's part in streams that are spread over all workers; stays after a stop
        )

    def start(self, options: Options) -> None:
        """Start JetStream if `options` enable it, by running all steps of `start_steps` at once.

        Raises:
            StartFailed: JetStream cannot be started, for example because its store directory cannot be used.
        """
        for _ in self.start_steps(options):
            pass

    def start_steps(self, options: Options) -> Generator[None, None, None]:
        """Start JetStream in steps, if `options` enable it; no turn may run before the last step.

        Raises:
            StartFailed: JetStream cannot be started, for example because its store directory cannot be used.
        """
        if not options.runs_jetstream:
            return
        node = self._node
        started_ns = node.clock.now_ns()
        self._log.info("Starting JetStream")
        try:
            files.make_directory(node.options.jetstream.store_dir)
            announce_jetstream(self._log, options, node.options)
            yield from self._recover()
            self._start_syncing()
        except OSError as error:
            path = error.filename or node.options.jetstream.store_dir
            text = f"could not create storage directory - mkdir {path}: {reason_of(error)}"
            fail(f"Can't start JetStream: {text}", file_remedy(error, "store_dir"))
        except PyjsError as error:
            fail(f"Can't start JetStream: {error}")
        self._log.info(f"Took {duration_text(node.clock.now_ns() - started_ns)} to start JetStream")

    def _recover(self) -> Generator[None, None, None]:
        progress = RecoveryProgress(self._node, self._log)
        with closing(self._node.start_jetstream_steps()) as steps:
            try:
                for _ in steps:
                    progress.step()
                    yield
            finally:
                progress.end()

    def _start_syncing(self) -> None:
        jetstream = self._node.jetstream
        assert jetstream is not None
        self._io_thread = IoThread(self._driver.loop, "io")
        syncer = self._syncer = Syncer(
            self._driver, self._io_thread, self._node.options.jetstream, jetstream.open_files
        )
        self.spread, member = jetstream.shared.spread, jetstream.shared.member
        if member is not None:
            syncer.beside = member.sync_log
        self._upkeep_thread = IoThread(self._driver.loop, "upkeep")
        upkeep = self._upkeep = Upkeep(self._driver, self._upkeep_thread)
        self._attach(syncer, upkeep)

    def _attach(self, syncer: Syncer, upkeep: Upkeep) -> None:
        """Register `syncer` and `upkeep` with the driver, in place of those of an earlier JetStream."""
        driver = self._driver
        if self._hook is not None:
            driver.after_turn.remove(self._hook)
        self._hook = syncer.after_turn
        driver.after_turn.append(self._hook)
        driver.upkeep_queued[:] = [upkeep.after_turn]

    @property
    def ending(self) -> bool:
        """Whether a stop is in progress."""
        return self._ending is not None

    def stop(self, then: Callable[[], None]) -> None:
        """Stop accepting messages, sync and close the streams, then call `then`.

        If a stop is in progress, `then` is called when that stop is complete. If JetStream is off, `then` is called
        at once.
        """
        self._after.append(then)
        jetstream, self._node.jetstream = self._node.jetstream, None
        if jetstream is None:
            if self._ending is None:
                self._drained()
            return
        self._log.info("Initiating JetStream Shutdown...")
        self._ending = jetstream
        syncer = self._syncer
        if syncer is not None:
            attempt(self._log, lambda: syncer.drain(self._drained))
        else:
            self._drained()

    def _drained(self) -> None:
        """Close the streams if no thread uses their files; otherwise check again after the next turn."""
        jetstream = self._ending
        if jetstream is not None:
            jetstream.begin_stop()
            if self._upkeep is not None:
                self._upkeep.close()
            self._synced = True
            if self._is_busy(jetstream):
                self._driver.after_next_turn(self.after_turn)
                self._driver.wake()
                return
        self._end()

    def _is_busy(self, jetstream: JetStreamServer) -> bool:
        return jetstream.is_changing or (self._upkeep is not None and self._upkeep.is_busy)

    def after_turn(self) -> None:
        """Close the streams if their syncs and jobs are done; while a job runs, check again after the next turn."""
        if not self._synced or self._ending is None:
            return
        if self._is_busy(self._ending):
            self._driver.after_next_turn(self.after_turn)
        else:
            self._end()

    def abort(self) -> None:
        """Close the streams at once, without waiting for syncs, and call the callbacks of earlier stops.

        No thread may be writing metadata.
        """
        jetstream, self._node.jetstream = self._node.jetstream, None
        self._ending = self._ending or jetstream
        self._end()

    def _end(self) -> None:
        """Stop the threads, close the streams and call the waiting callbacks."""
        jetstream, self._ending = self._ending, None
        self._synced = False
        if jetstream is not None:
            if self._upkeep_thread is not None:
                attempt(self._log, self._upkeep_thread.stop)
            attempt(self._log, jetstream.stop)
            if self._io_thread is not None:
                attempt(self._log, self._io_thread.stop)
            self._log.info("JetStream Shutdown")
        waiting, self._after = self._after, []
        for then in waiting:
            then()

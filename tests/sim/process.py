"""One process of a server: a Node on a SimDisk, and the parts of `server/` around it, on virtual time.

The Driver, the Syncer, the Upkeep and the JetStreamSwitch are the real ones. The loop is a queue and a heap. The two
I/O threads are queues: the simulation decides when a job runs and when its result arrives. A job always runs as a
whole.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

import pyjs.jetstream.api.router  # noqa: F401  loaded in each process, or a run would depend on those before it
from pyjs.base.clock import NS_PER_S, VirtualClock
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.base.table import HASH_SEED_SIZE, set_hash_seed
from pyjs.config.options import Options
from pyjs.core.job import JobQueue
from pyjs.core.link import Peer
from pyjs.node import Node
from pyjs.server.declaring.part import DeclaredStreams
from pyjs.server.driver import Driver
from pyjs.server.jetstream_switch import JetStreamSwitch
from pyjs.server.threads.io_thread import result_of
from pyjs.server.threads.syncer import Syncer
from pyjs.server.threads.upkeep import Upkeep
from pyjs.server.threads.workers import Workers
from pyjs.testing import CONNECT, MemoryLink, RawClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.disk import SimDisk

STORE_DIR = "/srv/jetstream"

set_hash_seed(b"s" * HASH_SEED_SIZE)  # the same in every process, as in tests/conftest.py


class SimHandle:
    """A timer of the loop."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the timer."""
        self.cancelled = True


class SimLoop:
    """An event loop that runs only when the simulation calls it."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._ready: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._timers: list[tuple[int, int, SimHandle, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def time(self) -> float:
        """Return the time in seconds."""
        return self._clock.now_ns() / NS_PER_S

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Queue a callback for the next round."""
        self._ready.append((callback, args))

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> SimHandle:
        """Call `callback` after `delay` seconds."""
        handle = SimHandle()
        self._count += 1
        due = self._clock.now_ns() + round(delay * NS_PER_S)
        heapq.heappush(self._timers, (due, self._count, handle, callback, args))
        return handle

    def run(self) -> None:
        """Run callbacks until none is ready or due."""
        for _ in range(1000):
            self._take_due()
            if not self._ready:
                return
            for _ in range(len(self._ready)):
                callback, args = self._ready.popleft()
                callback(*args)
        raise AssertionError("the loop does not come to rest")

    def _take_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._clock.now_ns():
            _, _, handle, callback, args = heapq.heappop(self._timers)
            if not handle.cancelled:
                self._ready.append((callback, args))

    def next_due_ns(self) -> int | None:
        """Return the time of the next timer."""
        return self._timers[0][0] if self._timers else None


class SimThread:
    """An IoThread whose jobs run in calls of `step`."""

    def __init__(self, loop: SimLoop, clock: VirtualClock) -> None:
        self._loop = loop
        self._clock = clock
        self._jobs: deque[tuple[Any, Any, int]] = deque()
        self._finished: deque[tuple[Any, Any, int]] = deque()
        self.pending = 0
        self.longest_ns = 0  # longest time from the submission of a job to the arrival of its result

    def submit(self, job: Any, done: Any) -> None:
        """Queue a job."""
        self.pending += 1
        self._jobs.append((job, done, self._clock.now_ns()))

    def step(self) -> None:
        """Deliver the result of a job that has run, or run a job if there is no such result."""
        if self._finished:
            self._loop.call_soon(self._finish, *self._finished.popleft())
        elif self._jobs:
            self._run()

    def _run(self) -> None:
        job, done, given_ns = self._jobs.popleft()
        self._note_wait(given_ns)
        result = result_of(job)
        self._finished.append((done, result, given_ns))

    def _note_wait(self, given_ns: int) -> None:
        self.longest_ns = max(self.longest_ns, self._clock.now_ns() - given_ns)

    def _finish(self, done: Any, result: Exception | None, given_ns: int) -> None:
        self._note_wait(given_ns)
        self.pending -= 1
        done(result)

    def longest_wait_ns(self) -> int:
        """Return the longest time from the submission of a job to its result, including pending jobs."""
        for *_, given_ns in (*list(self._finished)[:1], *list(self._jobs)[:1]):
            self._note_wait(given_ns)
        return self.longest_ns

    def stop(self) -> None:
        """Run the queued jobs; their results arrive later."""
        while self._jobs:
            self._run()
        while self._finished:
            self._loop.call_soon(self._finish, *self._finished.popleft())


class SimSwitch(JetStreamSwitch):
    """The switch, with simulated threads."""

    thread_class: type[SimThread] = SimThread
    group_min = 2  # so low that streams are synced together, although there are few

    def start_on(self, loop: SimLoop, clock: VirtualClock) -> list[SimThread]:
        """Recover the streams; return the threads."""
        node, options = self._node, self._node.options.jetstream
        node.start_jetstream()
        threads = [self.thread_class(loop, clock), self.thread_class(loop, clock)]
        self._io_thread, self._upkeep_thread = threads  # type: ignore[assignment]
        assert node.jetstream is not None
        files = node.jetstream.open_files
        syncer = self._syncer = Syncer(self._driver, threads[0], options, files)  # type: ignore[arg-type]
        syncer.group_min = self.group_min
        upkeep = Upkeep(self._driver, threads[1])  # type: ignore[arg-type]
        self._attach(syncer, upkeep)
        return threads


class DyingLink(MemoryLink):
    """A connection over which nothing is sent after its process has ended."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__()
        self._disk = disk

    def write(self, data: bytes) -> None:
        if not self._disk.dead:
            super().write(data)


class SimClient(RawClient):
    """A client of a Process. `send` only queues bytes; the loop does the rest."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.link = DyingLink(process.disk)
        self.session = process.node.open_session(Peer("127.0.0.1", 50000), self.link)
        self.send(b"CONNECT " + CONNECT + b"\r\n")

    def send(self, data: bytes) -> None:
        """Pass `data` to the session, as one read from a socket."""
        self.session.receive_data(data)
        self.process.driver.wake()


class Process:
    """One process of the server, from its start to its end."""

    switch_class: type[SimSwitch] = SimSwitch
    client_class: type[SimClient] = SimClient

    def __init__(self, disk: SimDisk, now_ns: int, seed: int, always: bool, interval_ns: int) -> None:
        self.disk = disk
        self.clock = VirtualClock(now_ns)
        self.log = ListLog()
        options = Options()
        options.jetstream.enabled = True
        options.jetstream.store_dir = STORE_DIR
        options.jetstream.sync_always = always
        options.jetstream.sync_interval_ns = interval_ns
        self.loop = SimLoop(self.clock)
        self.node = Node(options, self.clock, SeededRng(seed), disk, self.log)
        self.driver = Driver(self.loop, self.node)  # type: ignore[arg-type]
        self.job_queues = {queue: SimThread(self.loop, self.clock) for queue in JobQueue}
        self.workers = Workers(self.driver, self.job_queues)  # type: ignore[arg-type]
        self.driver.jobs_queued.append(self.workers.after_turn)
        self.switch = self.switch_class(self.driver, DeclaredStreams())
        self.threads: list[SimThread] = []
        self.stopped = False
        self._removes_together = seed % 2 == 1  # many messages, even if they are only three

    def start(self) -> None:
        """Recover the streams; clients may connect when this returns."""
        self.threads = [*self.job_queues.values(), *self.switch.start_on(self.loop, self.clock)]
        self.driver.wake()
        self.run()

    def client(self) -> SimClient:
        """Open a connection."""
        return self.client_class(self)

    def run(self) -> None:
        """Run everything that is due now."""
        if self._removes_together and self.node.jetstream is not None:
            for account in self.node.jetstream.accounts.values():
                for stream in account.streams.values():
                    stream.store.many = 2
        self.loop.run()

    def advance(self, ns: int) -> None:
        """Advance the clock, and stop at every timer on the way."""
        end_ns = self.clock.now_ns() + ns
        while (due := self.loop.next_due_ns()) is not None and due <= end_ns:
            self.clock.advance(max(0, due - self.clock.now_ns()))
            self.run()
        self.clock.advance(end_ns - self.clock.now_ns())
        self.run()

    def finish_changes(self) -> None:
        """Finish the changes of metadata that were begun."""
        while self.node.jetstream is not None and self.node.jetstream.is_changing:
            self.job_queues[JobQueue.FILES].step()
            self.run()

    def settle(self) -> None:
        """Finish everything that was begun, without advancing the clock."""
        while any(thread.pending for thread in self.threads):
            for thread in self.threads:
                thread.step()
            self.run()

    def stop(self) -> None:
        """Stop as on SIGTERM."""
        self.driver.turn_now()
        self.switch.stop(self._closed)
        for _ in range(1000):
            if self.stopped:
                break
            self.run()
            for thread in self.threads:
                thread.step()
        assert self.stopped, "the server does not stop"
        self.run()

    def _closed(self) -> None:
        self.node.stop()
        self.driver.stop()
        self.stopped = True

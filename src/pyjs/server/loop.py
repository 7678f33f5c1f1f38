"""The event loop of the command: descriptors, timers and callbacks of one thread.

Has those methods of asyncio's loop that the server uses, with their meaning, so that the same server runs on
either: on this one as a command, on asyncio's inside another program. What it has before asyncio: it is loaded in
2 ms instead of 100, and it spins. A client that waits for each answer sends the next request within microseconds;
a thread that went to sleep meanwhile needs longer than that to be woken. So the loop looks again for up to
SPIN_NS before it sleeps, as long as looking pays (benchmarks/: reqrep, jssync-1).

Knows nothing of what the callbacks do. One thread runs it; others may only use `call_soon_threadsafe`.
"""

from __future__ import annotations

import os
import select
from collections import deque
from functools import partial
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

from pyjs.base.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from pyjs.base.timers import Timer

    class Handle(Protocol):
        """A call that is due later."""

        def cancel(self) -> None:
            """Do not call."""

    class Loop(Protocol):
        """What the server asks of a loop; asyncio's loops have it too."""

        def time(self) -> float:
            """Return the loop's clock, seconds."""

        def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
            """Call in this iteration, or the next."""

        def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object:
            """Call soon; from any thread."""

        def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
            """Call after `delay` seconds."""

        def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> object:
            """Call whenever `fd` can be read."""

        def remove_reader(self, fd: int) -> bool:
            """Look no more whether `fd` can be read."""

        def add_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> object:
            """Call whenever `fd` takes bytes."""

        def remove_writer(self, fd: int) -> bool:
            """Look no more whether `fd` takes bytes."""

        def set_exception_handler(self, handler: Callable[[Any, dict[str, Any]], object] | None) -> None:
            """Have `handler(loop, context)` called with what a callback raised."""


READ = select.POLLIN
WRITE = select.POLLOUT
TROUBLE = select.POLLERR | select.POLLHUP  # always reported; the next read or write tells what it is
NS_PER_S = 1_000_000_000
SPIN_NS = 50_000  # looks this long before it sleeps
SPIN_PAID_NS = 150_000  # a sleep this short would have been a hit: waking up took most of it
SPIN_CREDIT_MAX = 32  # so many waits in vain, and spinning stops until short waits are seen again
SPIN_CREDIT_PAID = 3  # what a wait that was no longer than the spinning is worth
SLEEP_MAX_NS = (
    86_400 * NS_PER_S
)  # the kernel counts milliseconds in 31 bits, 24 days: the loop looks again before


class EventLoop:
    """Calls back when descriptors are ready, times are due or somebody asked for it."""

    time = staticmethod(monotonic)

    def __init__(self, spin_ns: int | None = None) -> None:
        self._poll = _Poll()
        self._readers: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._writers: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._timers = Timers()
        self._handler: Callable[[EventLoop, dict[str, object]], object] | None = None
        self._spin_ns = default_spin_ns() if spin_ns is None else spin_ns
        self._credit = SPIN_CREDIT_MAX
        self._stopping = self._closed = False
        self._wake_read, self.wake_write = os.pipe()  # signal.set_wakeup_fd takes `wake_write`
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self.wake_write, False)
        self.add_reader(self._wake_read, self._woken)

    def run(self) -> None:
        """Run until `stop`."""
        while not self._stopping:
            self._iterate()
        self._stopping = False

    def stop(self) -> None:
        """Let `run` return after this iteration; a run that has not begun returns at once."""
        self._stopping = True

    def close(self) -> None:
        """Give the descriptors back; nothing is called any more."""
        self._closed = True
        self._poll.close()
        os.close(self._wake_read)
        os.close(self.wake_write)

    # -- calls -------------------------------------------------------------------------------------------------
    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Call in this iteration if it handles descriptors or timers, else in the next one."""
        self._soon.append((callback, args))

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        """Call soon; from any thread and from signal handlers.

        Raises:
            RuntimeError: the loop is closed.
        """
        if self._closed:
            raise RuntimeError("the event loop is closed")
        self._soon.append((callback, args))
        try:
            os.write(self.wake_write, b"\0")
        except BlockingIOError:
            pass  # a full pipe wakes as well

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call after `delay` seconds, up to a millisecond late."""
        due_ns = monotonic_ns() + int(delay * NS_PER_S)
        return self._timers.at(due_ns, partial(self._call, (callback, args)))

    def set_exception_handler(self, handler: Callable[[EventLoop, dict[str, object]], object] | None) -> None:
        """Have `handler(loop, context)` called with what a callback raised; context: message, exception."""
        self._handler = handler

    # -- descriptors -------------------------------------------------------------------------------------------
    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        """Call whenever `fd` can be read, has ended or failed."""
        known = fd in self._readers or fd in self._writers
        self._readers[fd] = (callback, args)
        self._watch(fd, known)

    def remove_reader(self, fd: int) -> bool:
        """Look no more whether `fd` can be read; returns whether it was looked for."""
        if self._readers.pop(fd, None) is None:
            return False
        self._watch(fd, True)
        return True

    def add_writer(self, fd: int, callback: Callable[..., object], *args: object) -> None:
        """Call whenever `fd` takes bytes or has failed."""
        known = fd in self._readers or fd in self._writers
        self._writers[fd] = (callback, args)
        self._watch(fd, known)

    def remove_writer(self, fd: int) -> bool:
        """Look no more whether `fd` takes bytes; returns whether it was looked for."""
        if self._writers.pop(fd, None) is None:
            return False
        self._watch(fd, True)
        return True

    def _watch(self, fd: int, known: bool) -> None:
        mask = (READ if fd in self._readers else 0) | (WRITE if fd in self._writers else 0)
        if not mask:
            self._poll.unregister(fd)
        elif known:
            self._poll.modify(fd, mask)
        else:
            self._poll.register(fd, mask)

    # -- one iteration -----------------------------------------------------------------------------------------
    def _iterate(self) -> None:
        for fd, mask in self._wait():
            if mask & (READ | TROUBLE) and (reader := self._readers.get(fd)) is not None:
                self._call(reader)
            if mask & (WRITE | TROUBLE) and (writer := self._writers.get(fd)) is not None:
                self._call(writer)
        self._timers.fire(monotonic_ns())
        for _ in range(len(self._soon)):  # what these ask for comes next time, when others had theirs
            self._call(self._soon.popleft())

    def _wait(self) -> list[tuple[int, int]]:
        """Return what is ready: at once if calls wait, else after looking, then sleeping."""
        if self._soon:
            return self._poll.poll(0)
        began_ns = monotonic_ns()
        if self._credit > 0:
            spin_until_ns = began_ns + self._spin_ns
            while True:
                ready = self._poll.poll(0)
                if ready:
                    self._spin_paid()
                    return ready
                if monotonic_ns() >= spin_until_ns:
                    break
            self._credit -= 1
        ready = self._poll.poll(self._sleep_s())
        if monotonic_ns() - began_ns < SPIN_PAID_NS:
            self._spin_paid()
        return ready

    def _spin_paid(self) -> None:
        self._credit = min(self._credit + SPIN_CREDIT_PAID, SPIN_CREDIT_MAX)

    def _sleep_s(self) -> float | None:
        due_ns = self._timers.next_deadline_ns()
        return None if due_ns is None else min(max(0, due_ns - monotonic_ns()), SLEEP_MAX_NS) / NS_PER_S

    def _call(self, call: tuple[Callable[..., object], tuple[object, ...]]) -> None:
        callback, args = call
        try:
            callback(*args)
        except Exception as error:
            if self._handler is None:
                raise
            self._handler(self, {"message": f"Exception in callback {callback!r}", "exception": error})

    def _woken(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass


class _Poll:
    """epoll, or poll where there is none."""

    def __init__(self) -> None:
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        poll = self._epoll or select.poll()
        self.register, self.modify, self.unregister = poll.register, poll.modify, poll.unregister
        self.poll = self._epoll.poll if self._epoll is not None else self._poll_ms(poll)

    @staticmethod
    def _poll_ms(poll: Any) -> Callable[[float | None], list[tuple[int, int]]]:
        return lambda wait_s: poll.poll(None if wait_s is None else -int(-wait_s * 1000 // 1))

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()


def default_spin_ns() -> int:
    """Return how long to look before sleeping: not at all where that would keep the client from running."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return SPIN_NS if cpus > 1 else 0

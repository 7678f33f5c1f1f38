"""An event loop that times everything that it calls: scheduled callbacks, steps of tasks, callbacks of transports.

The time that a callback's thread waited for a processor is subtracted, so that other work on the machine does not
count. Time spent waiting for a disk or a lock does count.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import uvloop

SLOW_NS = 20_000_000
PROTOCOL_CALLS = (
    "connection_made",
    "data_received",
    "eof_received",
    "pause_writing",
    "resume_writing",
    "connection_lost",
)


class Record:
    """The number of callbacks, and the slow ones with their names."""

    def __init__(self, slow_ns: int = SLOW_NS) -> None:
        self.slow_ns = slow_ns
        self.calls = 0
        self.slow: list[
            tuple[float, str]
        ] = []  # milliseconds, and the names of the slow parts, innermost first
        self.longest: Counter[str] = Counter()  # nanoseconds, by name
        self._names: list[str] = []  # names of the slow parts of the running callback, outermost last
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def waited_ns(self) -> int:
        """Return how long this thread has waited for a processor while it was runnable, since its start."""
        return int(os.pread(self._schedstat, 64, 0).split()[1])

    def timed(self, call: Callable[..., Any], name: str, outer: bool = True) -> Callable[..., Any]:
        """Return `call` with timing; `outer`: the loop calls it directly, otherwise it is a part of such a call."""

        def run(*args: Any) -> Any:
            shown = "" if outer or not args else f" {_described(args[0])}"
            waited_ns, began_ns = self.waited_ns(), perf_counter_ns()
            try:
                return call(*args)
            finally:
                took_ns = perf_counter_ns() - began_ns - (self.waited_ns() - waited_ns)
                self.note(name, shown, took_ns, outer)

        return run

    def note(self, name: str, shown: str, took_ns: int, outer: bool) -> None:
        """Record a call; `shown` describes it."""
        if took_ns > self.longest[name]:
            self.longest[name] = took_ns
        if took_ns > self.slow_ns:
            self._names.append(f"{name}{shown} {took_ns / 1e6:.1f} ms")
        if outer:
            self.calls += 1
            if took_ns > self.slow_ns:
                self.slow.append((took_ns / 1e6, " < ".join(self._names)))
            self._names.clear()


def _described(item: Any) -> str:
    """Describe an item of a turn's work: the subject of a request, or the innermost function of stepped work."""
    steps = getattr(item, "steps", None)
    while getattr(steps, "gi_yieldfrom", None) is not None:
        steps = steps.gi_yieldfrom
    if steps is not None:
        return str(getattr(steps, "__qualname__", steps))
    return str(getattr(item, "subject", item))[:120]


class TimedLoop(uvloop.Loop):
    """A uvloop that times its callbacks into `record`."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Schedule a callback."""
        return super().call_soon(self._timed(callback), *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:
        """Schedule a callback, from any thread."""
        return super().call_soon_threadsafe(self._timed(callback), *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Schedule a callback after `delay` seconds."""
        return super().call_later(delay, self._timed(callback), *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Schedule a callback at a time of the loop."""
        return super().call_at(when, self._timed(callback), *args, context=context)

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        """Listen; the calls of each connection's protocol are timed."""

        def make() -> Any:
            protocol = protocol_factory()
            for name in PROTOCOL_CALLS:
                setattr(protocol, name, self._timed(getattr(protocol, name)))
            return protocol

        return await super().create_server(make, *args, **options)

    def _timed(self, callback: Any) -> Callable[..., Any]:
        name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
        return self.record.timed(callback, name)

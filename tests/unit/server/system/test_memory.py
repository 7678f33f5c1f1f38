"""When the server returns memory to the system after a burst, and when not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pyjs.server.system import allocator
from pyjs.server.system.memory import (
    ABOVE,
    BUSY_S,
    GAIN_SIZE,
    LOOK_S,
    QUIET_LOOK_S,
    QUIET_SHARE,
    WORK_S,
    MemoryReturn,
)
from pyjs.server.threads.io_thread import IoThread

MB = 1 << 20


class Timer:
    """A loop whose time only moves when the test says so; its timers fire in order."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.waiting.append((self.now + delay, callback))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.waiting and min(self.waiting)[0] <= end:
            at, callback = self.waiting.pop(0)
            self.now = at
            callback()
        self.now = end


class Here(IoThread):
    """Runs jobs immediately."""

    def __init__(self) -> None:
        pass

    def submit(self, job: Callable[[], None], done: Callable[[None], None]) -> None:  # type: ignore[override]
        job()
        done(None)


class Process:
    """A process with its memory and processor time, and the trimmer of its memory."""

    def __init__(self) -> None:
        self.timer = Timer()
        self.cpu = 0.0
        self.size = 20 * MB
        self.free = 0
        self.trims = 0
        self.collected = 0
        self.hooks: list[Callable[[], None]] = []
        self.returning = MemoryReturn(
            self.timer,  # type: ignore[arg-type]
            self.hooks.append,
            Here(),
            self._collect,
            self._trim,
            lambda: self.cpu,
            lambda: self.size,
        )

    def _collect(self) -> None:
        assert self.collected == self.trims  # one collection before each trim
        self.collected += 1

    def _trim(self) -> None:
        self.trims += 1
        assert self.collected == self.trims
        self.size -= self.free
        self.free = 0

    def turn(self, cpu: float) -> None:
        self.cpu += cpu
        hooks, self.hooks[:] = self.hooks.copy(), []
        for hook in hooks:
            hook()


def test_what_is_free_after_work_goes_back_when_the_process_is_idle_again() -> None:
    process = Process()

    process.turn(cpu=LOOK_S)
    process.size, process.free = 200 * MB, 180 * MB
    process.timer.advance(LOOK_S)
    assert process.trims == 0
    process.timer.advance(LOOK_S)

    assert (process.trims, process.size) == (1, 20 * MB)


def test_a_process_that_does_little_and_has_little_is_left_alone() -> None:
    process = Process()

    for _ in range(20):
        process.turn(cpu=WORK_S / 100)
        process.timer.advance(LOOK_S)
    process.timer.advance(QUIET_LOOK_S)

    assert process.trims == 0
    assert not process.timer.waiting


def test_a_process_that_does_hardly_anything_is_checked_rarely() -> None:
    process = Process()
    checks = 0

    for _ in range(60):
        process.turn(cpu=QUIET_SHARE / 20)
        before = len(process.timer.waiting)
        process.timer.advance(1.0)
        checks += before > len(process.timer.waiting)

    assert 9 <= checks <= 12


def test_a_process_that_is_never_idle_is_trimmed_now_and_then() -> None:
    process = Process()

    for _ in range(int(2 * BUSY_S)):
        process.turn(cpu=LOOK_S)
        process.timer.advance(LOOK_S)

    assert 1 <= process.trims <= 2


def test_memory_that_becomes_free_with_little_work_goes_back() -> None:
    process = Process()
    process.turn(cpu=WORK_S)
    process.size = 200 * MB
    process.timer.advance(LOOK_S)
    assert (process.trims, process.size) == (1, 200 * MB)

    process.free = 180 * MB
    process.turn(cpu=0.0)
    process.timer.advance(3 * LOOK_S)

    assert process.size == 20 * MB


def test_memory_that_becomes_free_after_the_last_turn_goes_back_too() -> None:
    process = Process()
    process.turn(cpu=WORK_S)
    process.size = 200 * MB
    process.timer.advance(LOOK_S)
    assert (process.trims, process.size) == (1, 200 * MB)

    process.free = 180 * MB
    process.timer.advance(3 * LOOK_S)

    assert process.size == 20 * MB


def test_a_process_that_rests_and_needs_its_memory_is_left_alone_in_the_end() -> None:
    process = Process()
    process.turn(cpu=WORK_S)
    process.size = 200 * MB

    process.timer.advance(3600.0)

    assert 4 <= process.trims <= 8
    assert not process.timer.waiting


def test_trims_in_vain_become_rare() -> None:
    process = Process()
    process.size = int(20 * MB * ABOVE + GAIN_SIZE)

    for _ in range(100):
        process.turn(cpu=0.0)
        process.timer.advance(LOOK_S)

    assert 4 <= process.trims <= 7


async def test_the_allocator_is_trimmed_in_a_thread() -> None:
    thread = IoThread(asyncio.get_running_loop(), "trim")
    trimmed = asyncio.Event()
    results: list[bool] = []

    thread.submit(lambda: results.append(allocator.trim()), lambda _: trimmed.set())
    await asyncio.wait_for(trimmed.wait(), 60)

    thread.stop()
    assert results in ([True], [False])

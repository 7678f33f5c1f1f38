"""Measures one attack on one server: a quiet client's waits, the memory before, during and after, and the answers.

The quiet client is a separate process (benchmarks/quiet.py), so that the attacker's work does not affect its figures.
It begins to ping before the attack, and ends after the attacker's connections are closed. Memory is that of the
process without pages of files.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from driver_build import Driver
from quiet import Quiet
from servers import RunningServer, ServerCommand, ServerFailed

from attacks.attack import Attack, Victim

IDLE_S = 0.7  # seconds that the quiet client pings the idle server
TAIL_S = 0.5  # seconds that it continues after the attacker has left
RECOVERY_S = 3.0  # seconds within which memory must shrink again
BACK = 1.3  # memory counts as shrunk if it is at most this many times the memory before
SAMPLE_S = 0.01
ERROR_LINE = re.compile(r"[\w.]*(Error|Exception|Failed)\b|panic: ")  # the last line of a traceback
KINDS_MAX = 5
FAILURES = (
    "Traceback",
    "panic:",
    "SIGSEGV",
    "goroutine 1 [",
)  # in a log: no attack should make a server write these


@dataclass(slots=True)
class Sample:
    """The effects of one attack on one server."""

    alive: bool = False
    asked: int = 0
    answered: int = 0
    idle_ms: float = 0.0  # longest wait before the attack
    worst_ms: float = 0.0
    p99_ms: float = 0.0
    idle_mb: float = 0.0  # memory after the start
    before_mb: float = 0.0  # after the set-up
    peak_mb: float = 0.0
    after_mb: float = 0.0
    cpu_s: float = 0.0
    seconds: float = 0.0
    failures: int = 0  # lines of its log that contain one of FAILURES
    notes: list[str] = field(default_factory=list)


class _Peak:
    """Measures the largest memory of a server while the `with` block runs."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.mb = 0.0

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with suppress(OSError, IndexError):  # the process has ended
            while True:
                self.mb = max(self.mb, self._server.heap_mb())
                if self._ended.wait(SAMPLE_S):
                    return


def measure(attack: Attack, command: ServerCommand, driver: Driver, base: Path) -> Sample:
    """Run `attack` on a new server started with `command`."""
    sample = Sample()
    with RunningServer(command, base=base, config=attack.config) as server:
        victim = Victim(server, driver, attack.connect)
        sample.idle_mb = server.heap_mb()
        try:
            attack.setup(victim)
            _attacked(attack, victim, sample)
        finally:
            victim.leave()
        _read_log(server, sample)
        if sample.alive and attack.restart:
            sample.alive = _restarted(server, sample)
            _read_log(server, sample)
        sample.notes = victim.notes + sample.notes
    return sample


def _attacked(attack: Attack, victim: Victim, sample: Sample) -> None:
    server = victim.server
    connect = attack.connect.decode().strip()
    with Quiet(server.port, connect) as idle:
        time.sleep(IDLE_S)
    sample.idle_ms = idle.result["max"]
    sample.before_mb = server.heap_mb()
    cpu_s, began = server.cpu_s(), time.monotonic()
    victim.begin(attack.limit_s)
    with Quiet(server.port, connect) as quiet, _Peak(server) as peak:
        try:
            attack.run(victim)
        except OSError as error:  # the server has ended, or accepts no connection
            victim.note(f"{type(error).__name__}: {error}")
        sample.seconds = time.monotonic() - began
        victim.leave()
        time.sleep(TAIL_S)
    sample.asked, sample.answered, sample.peak_mb = victim.asked, victim.answered, peak.mb
    sample.worst_ms, sample.p99_ms = quiet.result["max"], quiet.result["p99"]
    sample.alive = bool(quiet.result["served"]) and server.running
    if server.running:
        sample.cpu_s = server.cpu_s() - cpu_s
        _undo(attack, victim)
        sample.after_mb = _memory_after(server, sample.before_mb)
        sample.alive = sample.alive and server.answers()


def _undo(attack: Attack, victim: Victim) -> None:
    victim.deadline = time.monotonic() + attack.limit_s
    try:
        attack.undo(victim)
    except OSError as error:
        victim.note(f"undo: {error}")
    victim.leave()


def _memory_after(server: RunningServer, before_mb: float) -> float:
    """Wait until the memory has shrunk to its earlier size, or for RECOVERY_S; return the memory in MB."""
    deadline = time.monotonic() + RECOVERY_S
    while (now_mb := server.heap_mb()) > BACK * before_mb and time.monotonic() < deadline:
        time.sleep(0.1)
    return now_mb


def _read_log(server: RunningServer, sample: Sample) -> None:
    """Count the failures in the log, and record their kinds."""
    log = server.log_text()
    sample.failures += sum(log.count(text) for text in FAILURES)
    kinds = Counter(line[:160] for line in log.splitlines() if ERROR_LINE.match(line))
    sample.notes += [f"{count} x {line}" for line, count in kinds.most_common(KINDS_MAX)]


def _restarted(server: RunningServer, sample: Sample) -> bool:
    try:
        sample.notes.append(f"started again in {server.restart():.1f} s")
    except ServerFailed as error:
        sample.notes.append(f"does not start again: {str(error)[-300:]}")
        return False
    return server.answers()

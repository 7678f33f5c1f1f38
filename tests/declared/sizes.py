"""A reload of a file with many declared streams: its time, and how long a quiet client waits for a PONG meanwhile.

`python -m tests.declared --reload 10000`. Other work on the machine delays the client too. So the client is measured
before, while the server does nothing; and callbacks of the server's loop are timed without the time for which they
waited for a processor.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.conformance.harness.process import REPOSITORY, ServerProcess
from tests.support.raw import RawClient

PAUSE_S = 0.002  # between two PINGs
REST_S = 3.0  # for which the client is measured at rest
WAIT_S = 600.0
TOTAL = "more lines are left out"  # one of the last lines of an application with more than 100 changes
SHOWN = 10  # callbacks
EDITED = 120  # streams that the edit changes


class Waits(NamedTuple):
    """The PINGs of one phase."""

    seconds: float
    worst_ms: float
    late: int  # PINGs that waited for more than 20 ms

    def __str__(self) -> str:
        return f"{self.seconds:6.2f} s, worst PING {self.worst_ms:6.1f} ms, over 20 ms: {self.late}"


class Quiet:
    """A client that sends a PING, waits for the PONG, and pauses for a moment."""

    def __init__(self, port: int) -> None:
        self._client = RawClient(port, timeout_s=60)
        self._waits: list[float] = []
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._ping)

    def start(self) -> None:
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> Waits:
        self._ends.set()
        self._thread.join()
        self._client.close()
        late = sum(each > 0.02 for each in self._waits)
        return Waits(time.monotonic() - self._began, 1000 * max(self._waits), late)

    def _ping(self) -> None:
        while not self._ends.wait(PAUSE_S):
            sent = time.monotonic()
            self._client.fence()
            self._waits.append(time.monotonic() - sent)


def blocks(count: int, edit: str) -> str:
    """Return a configuration with `count` streams, some of which have the description `edit`."""
    lines = ['jetstream { store_dir: "<<store>>"', "streams {"]
    for at in range(count):
        text = edit if at < EDITED else "one of many"
        options = f'subjects: ["orders.{at}.>"], max_age: "30d", max_bytes: 1MB, description: "{text}"'
        lines.append(f"  S{at} {{ {options} }}")
    return "\n".join([*lines, "} }"])


class Measured(NamedTuple):
    """The result for one size."""

    waits: dict[str, Waits]  # by phase
    callbacks: list[str]  # callbacks of the loop that took more than 20 ms, the longest first

    def lines(self) -> Iterator[str]:
        for phase, waits in self.waits.items():
            yield f"{phase:32}{waits}"
        yield f"callbacks of the loop over 20 ms: {len(self.callbacks)}"
        yield from self.callbacks[:SHOWN]


def measure(count: int, directory: Path) -> Measured:
    """Reload a file that declares `count` new streams, and then an edit of it."""
    report = directory / "report"
    path = f"PYTHONPATH={REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
    command = ["env", path, sys.executable, "-m", "tests.lag.server", str(report)]
    server = ServerProcess(command, blocks(0, ""), directory, with_http=False)
    server.start()
    try:
        waits = {"at rest": _during(server.port, lambda: time.sleep(REST_S))}
        for number, edit in enumerate(("before", "after"), 1):
            head = server.config_path.read_text("utf-8").splitlines()[:2]
            text = blocks(count, edit).replace("<<store>>", str(directory / "store"))
            server.config_path.write_text("\n".join([*head, text]), "utf-8")
            read = partial(_reload, server, directory, number)
            waits[f"reload {number}: reads {count} streams"] = _during(server.port, read)
            done = partial(_wait, directory, TOTAL, number)
            waits[f"reload {number}: {'creates' if number == 1 else 'compares'} them"] = _during(
                server.port, done
            )
        server.stop()
        slow = json.loads(report.read_text("utf-8"))["slow"]
        return Measured(waits, [f"{ms:6.1f} ms  {names}" for ms, names in slow])
    finally:
        server.kill()


def _reload(server: ServerProcess, directory: Path, number: int) -> None:
    server.signal("HUP")
    _wait(directory, "Reloaded server configuration", number)


def _during(port: int, work: Callable[[], None]) -> Waits:
    client = Quiet(port)
    client.start()
    work()
    return client.stop()


def _wait(directory: Path, text: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        lines = (directory / "log").read_text("utf-8", "replace").splitlines()
        if sum(text in line for line in lines) >= count:
            return
        assert time.monotonic() < deadline, "\n".join(lines[-20:])
        time.sleep(0.02)  # a log file has no event to wait for

"""The server with each callback of its event loop timed: `python -m tests.lag.server REPORT -c CONF`.

At its end it writes a JSON object to REPORT: the number of callbacks, those that took more than 20 ms, and the
longest call of each name. The parts of a turn are timed as well, so that the slow part of a slow turn is known.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from tests.lag.timed_loop import Record, TimedLoop

import pyjs.node as node_module
import pyjs.server.command as command_module
from pyjs.cli import main
from pyjs.core.scheduler import Scheduler
from pyjs.server.threads.io_thread import IoThread


def time_lanes(record: Record) -> None:
    """Measure each item of the lanes of a turn."""

    def timed_scheduler(*arguments: Any) -> Scheduler:
        scheduler = Scheduler(*arguments)
        for lane in scheduler.lanes:
            name = getattr(lane.do, "__qualname__", None) or str(lane.do)
            lane.do = record.timed(lane.do, name, outer=False)
        return scheduler

    node_module.Scheduler = timed_scheduler  # type: ignore[assignment, misc]


def time_results(record: Record) -> None:
    """Time the event loop's handling of the result of each thread job."""
    submit = IoThread.submit

    def timed_submit(self: IoThread, job: Any, done: Any) -> None:
        name = getattr(getattr(job, "__self__", job), "__class__", type(job)).__qualname__
        submit(self, job, record.timed(done, f"result of {name}", outer=False))

    IoThread.submit = timed_submit  # type: ignore[method-assign]


def time_collections(record: Record) -> None:
    """Measure each run of the garbage collector as a part of the callback during which it runs."""
    began_ns = 0

    def note(phase: str, info: dict[str, int]) -> None:
        nonlocal began_ns
        if phase == "start":
            began_ns = perf_counter_ns()
        else:
            record.note(
                f"gc of generation {info['generation']}", "", perf_counter_ns() - began_ns, outer=False
            )

    gc.callbacks.append(note)


def report(record: Record) -> dict[str, Any]:
    """Return the measurements."""
    longest = {name: round(ns / 1e6, 2) for name, ns in record.longest.most_common(20)}
    slow = [[round(ms, 1), names] for ms, names in sorted(record.slow, reverse=True)]
    return {"calls": record.calls, "slow": slow, "longest_ms": longest}


def run(path: Path, argv: list[str]) -> int:
    """Run the server command; write the report when it ends."""
    record = Record()
    time_lanes(record)
    time_results(record)
    time_collections(record)
    command_module.new_event_loop = lambda: TimedLoop(record)
    code = main(argv)
    path.write_text(json.dumps(report(record)))
    return code


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))

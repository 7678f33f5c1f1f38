"""The progress of a run, in a status file. On a terminal, Spark shows its own progress bar.

    {"pipeline": "archive", "state": "running", "started": "...Z", "updated": "...Z", "seconds": 12.5,
     "rows": 1000000, "rows_per_s": 80000, "batches": {"done": 2, "planned": 5}, "lag": {"ORDERS": 1500000},
     "losses": [], "error": ""}

`state` is running, done, failed or interrupted. A batch is one range of sequences. For each stream, `lag` is the
number of sequences that the run has not read yet. While the run lasts, `rows_per_s` covers about the last ten
seconds; at the end it is the mean of the run. The file is replaced as a whole, so nobody reads a half-written file.
The clocks are arguments of the constructor. This module does not use Spark.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType

from pyjs_spark.read.ranges import ReadRange

RATE_OVER_S = 10.0


@dataclass(frozen=True, slots=True)
class Done:
    """One range that a task has finished."""

    stream: str
    low: int
    high: int
    rows: int
    lost: int  # maximum number of lost sequences


class Watch:
    """The progress of one run, which is written to the status file, if there is one.

    It is a context manager for the run.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        file: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._pipeline = pipeline
        self._file = file
        self._clock = clock
        self._now = now
        self._started, self._started_s = now(), clock()
        self._left: dict[tuple[str, int], int] = {}  # unfinished ranges: (stream, first sequence) -> length
        self._planned = 0  # number of planned ranges
        self._lag: dict[str, int] = {}
        self._rows = 0
        self._losses: list[str] = []
        self._samples: deque[tuple[float, int]] = deque()  # (seconds since the start, rows), for rows_per_s
        self._trouble: OSError | None = None  # an error from replacing the status file while tasks ran

    def __enter__(self) -> Watch:
        self._tell("running")
        self._raise_trouble()  # stops the run early, instead of after hours of work
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = "done" if kind is None else "interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"
        self._trouble = None
        self._tell(state, " ".join(str(error or "").split()))
        if kind is None:
            self._raise_trouble()

    def plan(self, ranges: Iterable[ReadRange]) -> None:
        """Set the planned ranges, and write the status."""
        self._left = {(each.stream, each.low): each.high - each.low for each in ranges}
        self._planned = len(self._left)
        for (stream, _), count in self._left.items():
            self._lag[stream] = self._lag.get(stream, 0) + count
        self._tell("running")

    def done(self, what: Done) -> None:
        """Count a finished range once, even if Spark repeats its task. Raises no exception."""
        count = self._left.pop((what.stream, what.low), None)
        if count is None:
            return
        self._lag[what.stream] -= count
        self._rows += what.rows
        if what.lost:
            self._losses.append(
                f"stream {what.stream}: up to {what.lost} messages of {what.low} to {what.high - 1} went before "
                "they were read"
            )
        self._tell("running")

    def lost(self, text: str) -> None:
        """Add a loss, which was found before the run, to the later statuses."""
        self._losses.append(text)

    def _tell(self, state: str, error: str = "") -> None:
        if self._file is None or self._trouble is not None:
            return
        at_s = self._clock() - self._started_s
        self._samples.append((at_s, self._rows))
        while len(self._samples) > 2 and self._samples[1][0] < at_s - RATE_OVER_S:
            self._samples.popleft()
        rate = self._rate(self._samples[0] if state == "running" else (0.0, 0))
        status = {
            "pipeline": self._pipeline,
            "state": state,
            "started": _text(self._started),
            "updated": _text(self._now()),
            "seconds": round(at_s, 3),
            "rows": self._rows,
            "rows_per_s": round(rate),
            "batches": {"done": self._planned - len(self._left), "planned": self._planned},
            "lag": self._lag,
            "losses": self._losses,
            "error": error,
        }
        try:
            _replace(self._file, json.dumps(status) + "\n")
        except OSError as trouble:  # raised only after the run, which is more important than its status file
            self._trouble = trouble

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise self._trouble

    def _rate(self, begun: tuple[float, int]) -> float:
        """Return the rows per second since the sample `begun`."""
        (before_s, before), (last_s, last) = begun, self._samples[-1]
        return (last - before) / (last_s - before_s) if last_s > before_s else 0.0


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


def _replace(path: str, text: str) -> None:
    part = f"{path}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, path)

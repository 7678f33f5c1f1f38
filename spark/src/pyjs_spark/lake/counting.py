"""Notes about finished Spark tasks, passed to the watch of a run.

An accumulator carries it: Spark hands the driver a task's part when the task ends, before its job does. In the driver
the part goes to the watch at once and nothing is kept; in a worker it is collected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

from pyjs_spark.lake.watch import Done, Watch
from pyjs_spark.read.ranges import ReadRange, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Telling(AccumulatorParam):
    """Lists of Done. Pickled for the workers, without its listener."""

    def __init__(self, hear: Callable[[Done], None] | None = None) -> None:
        self._hear = hear

    def __reduce__(self) -> tuple[type[_Telling], tuple[()]]:
        return _Telling, ()

    def zero(self, value: list[Done]) -> list[Done]:
        """Return the initial state of a task."""
        return []

    def addInPlace(self, value1: list[Done], value2: list[Done]) -> list[Done]:
        """Take what is new."""
        if self._hear is None:
            return value1 + value2
        for each in value2:
            self._hear(each)
        return value1


class _Counted:
    """A task with its count, in the form sent to the workers."""

    def __init__(self, task: Callable[[ReadRange, Report], Any], told: Any) -> None:
        self._task = task
        self._told = told

    def __call__(self, what: ReadRange) -> Any:
        report = Report()
        found = self._task(what, report)
        self._told.add([Done(what.stream, what.low, what.high, report.rows, report.lost)])
        return found


def run_tasks(
    spark: SparkSession,
    task: Callable[[ReadRange, Report], Any],
    ranges: Sequence[ReadRange],
    watch: Watch | None,
) -> list[Any]:
    """Run a Spark task for each range, and return their results; `watch` is told of each finished one."""
    context = spark.sparkContext
    told = context.accumulator([], _Telling(watch.done if watch is not None else _nobody))
    found: list[Any] = context.parallelize(ranges, len(ranges)).map(_Counted(task, told)).collect()
    return found


def _nobody(what: Done) -> None:
    """Nobody watches."""

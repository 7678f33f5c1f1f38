"""Data source `jetstream-files`: the reader of `jetstream`, whose tasks write their ranges to files where they read.

    stream string, low bigint, high bigint, rows bigint, lost bigint, files string (JSON, one object for each file)

A row stands for a range [low, high) that is written; a table gets its files by the commit that follows. Rows that
passed through Spark to one of its own writers would be copied to the JVM and encoded there: three times the
processor time. It needs no SparkContext, so it works over Spark Connect too.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyjs_spark.lake.watch import Done, Watch
from pyjs_spark.read.ranges import ReadRange, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

NAME = "jetstream-files"
AT_ONCE = 16  # ranges of the first job; each job is one step of the progress that is shown
JOB_S = 10.0  # the next job gets more ranges if one took less
Task = Callable[[ReadRange, Report], list[Any]]  # returns dataclasses, one for each file


class FilesSource(DataSource):
    """Ranges of streams, written to files. The options `from` and `to` select among the planned ones."""

    task: Task
    planned: Sequence[ReadRange] = ()

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return "stream string, low bigint, high bigint, rows bigint, lost bigint, files string"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        low, high = int(self.options["from"]), int(self.options["to"])
        return FilesReader(type(self).task, self.planned[low:high])


class FilesReader(DataSourceReader):
    """Writes one range in each task. Pickled."""

    def __init__(self, task: Task, planned: Sequence[ReadRange]) -> None:
        self._task = task
        self._planned = planned

    def partitions(self) -> list[InputPartition]:
        """Return a task for each range."""
        return [InputPartition(what) for what in self._planned]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Read one range and write its files, in a worker."""
        what, report = partition.value, Report()
        files = [asdict(file) for file in self._task(what, report)]
        yield what.stream, what.low, what.high, report.rows, report.lost, json.dumps(files)


def register(spark: SparkSession, base: type[DataSource], **parts: Any) -> str:
    """Register a source with parts of its own, and return its name, which no other archive of the session has."""
    name = f"{base.name()}-{uuid.uuid4().hex}"
    parts |= {"name": classmethod(lambda cls: name)}
    spark.dataSource.register(type(base.__name__, (base,), parts))
    return name


def write_ranges(
    spark: SparkSession, task: Task, ranges: Sequence[ReadRange], watch: Watch | None
) -> list[list[dict[str, Any]]]:
    """Write all ranges by some Spark jobs; return the files of each. `watch` is called for each finished job."""
    name = register(spark, FilesSource, task=staticmethod(task), planned=tuple(ranges))
    found: list[list[dict[str, Any]]] = []
    size = AT_ONCE
    while len(found) < len(ranges):
        begun_s, end = time.monotonic(), min(len(ranges), len(found) + size)
        frame = spark.read.format(name).option("from", len(found)).option("to", end).load()
        rows = {(row.stream, row.low): row for row in frame.collect()}
        for what in ranges[len(found) : end]:
            row = rows[what.stream, what.low]
            found.append(json.loads(row.files))
            if watch is not None:
                watch.done(Done(row.stream, row.low, row.high, row.rows, row.lost))
        size *= 2 if time.monotonic() - begun_s < JOB_S else 1
    return found

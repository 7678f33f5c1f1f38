"""Data source `jetstream-files`: reads as `jetstream` does, but its tasks write their ranges directly to files.

    stream string, low bigint, high bigint, rows bigint, lost bigint, files string (JSON, one object for each file)

A row describes a written range [low, high); the commit that follows makes its files visible. Spark's own
writers are not used: they would first copy the messages to the JVM and encode them there, which takes three times
the processor time. The source needs no SparkContext, so it also works over Spark Connect.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyjs_spark.lake.archive import TableFile, range_of
from pyjs_spark.lake.tables.table import Lake
from pyjs_spark.lake.watch import Done, Watch
from pyjs_spark.options.reading import Options
from pyjs_spark.read.ranges import ReadRange, Report

NAME = "jetstream-files"
Task = Callable[[ReadRange, Report], list[TableFile]]
# Registered sources by session. Spark never removes a registered source from a session, so an archive that is
# written again uses the same source.
_names: WeakKeyDictionary[Any, dict[Hashable, str]] = WeakKeyDictionary()


class FilesSource(DataSource):
    """A data source whose tasks write ranges of streams to files.

    The option `ranges` is a JSON list. Each element is a list with the arguments of one call of `range_of`.
    """

    task: Task
    range_of: Callable[..., ReadRange]

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the rows that describe written ranges, in DDL."""
        return "stream string, low bigint, high bigint, rows bigint, lost bigint, files string"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader whose tasks write the ranges in the option `ranges`."""
        ranges = json.loads(self.options["ranges"])
        return FilesReader(type(self).task, [type(self).range_of(*each) for each in ranges])


class FilesReader(DataSourceReader):
    """A reader whose tasks write one range each; it is pickled."""

    def __init__(self, task: Task, planned: Sequence[ReadRange]) -> None:
        self._task = task
        self._planned = planned

    def partitions(self) -> list[InputPartition]:
        """Return a task for each range."""
        return [InputPartition(what) for what in self._planned]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Write the files of one range in a worker, and yield a row that describes them."""
        what, report = partition.value, Report()
        files = [asdict(file) for file in self._task(what, report)]
        yield what.stream, what.low, what.high, report.rows, report.lost, json.dumps(files)


def registered(spark: SparkSession, base: type[DataSource], lake: Lake, *key: Hashable, **parts: Any) -> str:
    """Return the name of a source that is registered in the session.

    The source is a subclass of `base` with the attributes `parts`. Calls with equal lakes and keys get the same
    source.
    """
    names = _names.setdefault(spark, {})
    key = (base.__name__, lake.root, lake.format, *sorted(lake.catalog.items()), *key)
    if key not in names:
        name = f"{base.name()}-{uuid.uuid4().hex}"
        parts |= {"name": classmethod(lambda cls: name)}
        spark.dataSource.register(type(base.__name__, (base,), parts))
        names[key] = name
    return names[key]


def write_ranges(
    spark: SparkSession,
    lake: Lake,
    options: Options,
    task: Task,
    ranges: Sequence[ReadRange],
    watch: Watch | None,
) -> list[list[TableFile]]:
    """Write all ranges in one Spark job, and return the files of each range.

    Afterwards, the ranges are reported to `watch`.
    """
    parts = {"task": staticmethod(task), "range_of": staticmethod(partial(range_of, options))}
    name = registered(spark, FilesSource, lake, options, **parts)
    planned = json.dumps([(each.stream, each.low, each.high, each.created) for each in ranges])
    rows = {
        (row.stream, row.low): row
        for row in spark.read.format(name).option("ranges", planned).load().collect()
    }
    found = []
    for what in ranges:
        row = rows[what.stream, what.low]
        found.append(files_in(row.files))
        if watch is not None:
            watch.done(Done(row.stream, row.low, row.high, row.rows, row.lost))
    return found


def files_in(said: str) -> list[TableFile]:
    """Return the files in the JSON text of a row's column `files`."""
    return [TableFile(**each) for each in json.loads(said)]

"""Archive as a streaming query. Each micro-batch writes the new messages; the query runs once, or at an interval.

    spark.readStream.format("jetstream-archive")    plans and reads as `jetstream` does; its tasks write the files
        .writeStream.foreachBatch(...)              commits them

The progress is in the archive itself, as for a run of `archive`: in the names of the files, or in the table's
last commit. So the query needs no checkpoint. If a query with a checkpoint repeats a batch after a kill, it
leaves out those ranges of the batch that are already in the archive. A commit succeeds only if the table ends
where the batch begins. The first batch fills the gaps left by a killed run. Only one query or run at a time may
write to an archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from pyjs_spark.datasource.readers import JetStreamStreamReader, RangeReader
from pyjs_spark.decode.schema import Projection
from pyjs_spark.lake import lakes
from pyjs_spark.lake.ranges_source import FilesReader, FilesSource, files_in, registered
from pyjs_spark.lake.tables.table import Lake
from pyjs_spark.options.reading import Options
from pyjs_spark.read import offsets
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.offsets import StreamOffset
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.ranges import ReadRange

NAME = "jetstream-archive"
FILES_PER_BATCH = 64  # approximate; after a kill, a query that writes a table repeats at most one batch


def start(
    spark: SparkSession,
    lake: Lake,
    options: Options,
    rows_per_file: int = 500_000,
    *,
    every: str = "",
    checkpoint: str = "",
) -> StreamingQuery:
    """Start the query, and return it.

    Without `every`, the query reads the present messages and ends. With `every`, such as "10 seconds", it continues,
    with one micro-batch in each interval.

    Raises:
        OptionError, DataLoss: as in lakes.archive; raised before the query starts. For the same reasons, a running
            query fails.
    """
    lakes.plan(lake, options, rows_per_file)
    limited = replace(options, max_rows_per_trigger=rows_per_file * FILES_PER_BATCH)
    reader_of = staticmethod(partial(ArchiveReader, lake, limited, rows_per_file))
    name = registered(spark, ArchiveSource, lake, limited, rows_per_file, reader_of=reader_of)
    rows = spark.readStream.format(name).load()
    writer = rows.writeStream.foreachBatch(partial(_commit, lake, options))
    writer = writer.option("checkpointLocation", checkpoint) if checkpoint else writer
    return writer.trigger(**({"processingTime": every} if every else {"availableNow": True})).start()


class ArchiveSource(FilesSource):
    """A data source whose tasks write new messages of streams to the files of an archive."""

    reader_of: Callable[[], ArchiveReader]

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return NAME

    def streamReader(self, schema: StructType) -> ArchiveReader:
        """Return the source of a streaming query."""
        return type(self).reader_of()


class ArchiveReader(JetStreamStreamReader):
    """The reader of a streaming query that begins at the end of the archive, and whose tasks write files."""

    def __init__(self, lake: Lake, options: Options, rows_per_file: int) -> None:
        reading = RangeReader(options, Projection((), (), ()))
        super().__init__(reading, Planner(options, api_of(options)))
        self._lake = lake
        self._options = options
        self._rows_per_file = rows_per_file
        self._files = FilesReader(lakes.task_of(lake, options), ())

    def initialOffset(self) -> dict[str, object]:
        """Return, for each stream, the first sequence that the archive lacks."""
        lacks = {each.stream: each.low for each in reversed(self._lacking())}
        found = lakes.look(self._lake, self._options)
        states = [(holding.state, max(holding.next, holding.state.first_seq)) for holding in found]
        begin = {state.name: StreamOffset(lacks.get(state.name, end), state.created) for state, end in states}
        return offsets.to_json(begin, self._planner.cut)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return a task for each range that the archive lacks up to the end of the batch."""
        ends = offsets.from_json(end)
        known = [(each, ends[each.stream].next) for each in self._lacking() if each.stream in ends]
        parts = [replace(each, high=min(each.high, stop)) for each, stop in known if each.low < stop]
        return [InputPartition(each) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Write the files of one range in a worker, and yield a row that describes them."""
        return self._files.read(partition) if partition.value is not None else iter(())

    def _lacking(self) -> list[ReadRange]:
        return lakes.plan(self._lake, self._options, self._rows_per_file)


def _commit(lake: Lake, options: Options, rows: DataFrame, batch: int) -> None:
    """Write the files of a batch, and add them to the archive."""
    done = sorted(rows.collect(), key=lambda row: (row.stream, row.low))
    if done:
        made = {(row.stream, row.low): files_in(row.files) for row in done}
        ranges = [ReadRange(row.stream, row.low, row.high) for row in done]
        lakes.write_parts(
            lambda _, part: [made[each.stream, each.low] for each in part], lake, options, ranges, len(ranges)
        )

"""Readers of `jetstream`: ranges in workers, and the plans of batches and of streaming queries.

A batch read is planned in a process beside the driver. A streaming read is planned in one process, which exists
as long as the query. In both cases, `read` runs in workers, on a pickled copy of the reader. So `read` may use
only attributes that never change.

No reader leaves anything on the server. The progress is in Spark's checkpoint, and `commit` does nothing:
Spark does not commit the last batch of a query that ends, so the server must not depend on commits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyjs_spark.decode.schema import Projection, pa_schema
from pyjs_spark.options.reading import Options
from pyjs_spark.read import offsets
from pyjs_spark.read.plan import Span
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.pushdown import Bounds, push
from pyjs_spark.read.ranges import LOG, ReadRange, Report, range_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class RangeReader:
    """The part of a reader that reads ranges of messages as Arrow batches, in workers.

    It is pickled, so its attributes must never change.
    """

    def __init__(self, options: Options, projection: Projection) -> None:
        self.options = options
        self.projection = projection

    def ranges(self, spans: list[Span], subjects: tuple[str, ...]) -> list[InputPartition]:
        """Return the tasks that read `spans`."""
        return [InputPartition(self.range_of(span, subjects)) for span in spans]

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task's range, with the column names of the user's schema.

        The value of `partition` is None if the plan is empty.
        """
        if partition.value is None:
            return iter(())
        return self._as_planned(self.messages(partition.value))

    def messages(self, what: ReadRange) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, with the column names of messages.

        The mode in `what` determines how the messages are read. With failOnDataLoss=false, lost messages are logged.
        """
        from pyjs_spark.read import modes  # imported lazily: not needed for planning

        report = Report()
        yield from modes.read_range(self.options.connect, what, report)
        if report.lost:
            LOG.warning(
                "stream %s: up to %d messages of %d to %d were lost after the read was planned; going on, as "
                "failOnDataLoss=false says",
                *(what.stream, report.lost, what.low, what.high - 1),
            )

    def _as_planned(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the column names and nullability of the user's schema.

        Spark refuses any difference.
        """
        import pyarrow as pa

        schema = pa_schema(self.projection, self.options.include_headers)
        for batch in batches:
            same = batch.schema.equals(schema)
            yield batch if same else pa.RecordBatch.from_arrays(batch.columns, schema=schema)

    def range_of(self, span: Span, subjects: tuple[str, ...]) -> ReadRange:
        """Return the range that a task reads for one span, with the options of this read."""
        return range_of(self.options, span, self.projection.columns, subjects)


class JetStreamReader(DataSourceReader):
    """The reader of a batch read of messages."""

    def __init__(self, reading: RangeReader, planner: Planner) -> None:
        self._reading = reading
        self._planner = planner
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """Request the states of the streams, and return the tasks that read them."""
        chosen = self._bounds.subjects
        subjects = self._reading.options.subjects if chosen is None else chosen
        return self._reading.ranges(self._planner.batch(self._bounds), subjects)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task's range; called in a worker."""
        return self._reading.rows(partition)


class FilteringReader(JetStreamReader):
    """The reader of a batch read whose plan uses the filters of the query."""

    def pushFilters(self, filters: list[Filter]) -> list[Any]:
        """Store the filters that the plan can use; return those that Spark must apply."""
        self._bounds, rest = push(filters, self._reading.options.subjects)
        return rest


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a streaming query."""

    def __init__(self, reading: RangeReader, planner: Planner) -> None:
        self._reading = reading
        self._planner = planner
        # with Trigger.AvailableNow: the offset at which the query ends
        self._target: offsets.Offsets | None = None
        self._last_batch_s = float("-inf")  # time of the last batch, for minRowsPerTrigger

    def initialOffset(self) -> dict[str, object]:
        """Return the first offset of a query without a checkpoint."""
        return offsets.to_json(self._planner.initial(), self._planner.cut)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits that the options set; `latestOffset` applies all of them.

        Spark accepts one limit and passes it to `latestOffset`. That method only checks whether there is a limit,
        so it does not matter which of the limits is returned.
        """
        options = self._reading.options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_rows_per_trigger is not None:
            return ReadMinRows(options.min_rows_per_trigger)
        return ReadAllAvailable()

    # Spark passes a limit only if `latestOffset` has a parameter for it.
    def latestOffset(
        self, start: dict[str, object] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, object]:
        """Return the end of the next batch, or `start` if there are no new messages."""
        planner = self._planner
        begin = offsets.from_json(start) if start is not None else planner.initial()
        is_limited = limit is not None and not isinstance(limit, ReadAllAvailable)
        now_s = time.monotonic()
        end = planner.latest(
            begin, is_limited=is_limited, waited_s=now_s - self._last_batch_s, target=self._target
        )
        if end != begin:
            self._last_batch_s = now_s
        return offsets.to_json(end, self._cut(start))

    def _cut(self, offset: dict[str, object] | None) -> offsets.Cut:
        """Return the rules in `offset` for cutting ranges into tasks.

        If `offset` has no rules, those of the options are returned.
        """
        found = None if offset is None else offsets.cut_in(offset)
        return found or self._planner.cut

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the current end of the streams, at which this query will end."""
        self._target = self._planner.newest()

    def reportLatestOffset(self) -> dict[str, object]:
        """Return the end of the streams and the numbers of lost messages, for the progress of the query."""
        newest = offsets.to_json(self._planner.newest(), self._planner.cut)
        lost = self._planner.losses.counts
        return {**newest, "lost": dict(lost)} if lost else newest

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        """Return the tasks that read the range between two offsets.

        After a crash, Spark passes the same two offsets again.
        """
        spans = self._planner.between(offsets.from_json(start), offsets.from_json(end), self._cut(end))
        return self._reading.ranges(spans, self._reading.options.subjects)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task's range; called in a worker."""
        return self._reading.rows(partition)

    def commit(self, end: dict[str, object]) -> None:
        """Do nothing: the checkpoint has the progress, and Spark does not commit the last batch of a query."""

    def stop(self) -> None:
        """Do nothing: the connection belongs to the process and ends with it."""

"""Writers of the data source `jetstream`: the classes that Spark's Python Data Source API calls.

This is a thin layer, like source.py. Rows, frames, acknowledgements and progress are handled in modules that know
nothing of Spark. For each batch, a writer is created beside the driver and pickled; `write` runs in a worker for
one partition. Spark does not pass the number of the batch to `write`, but sets the number and the query's id as
local properties of the task. These properties are not documented, so a streaming write with delivery=exactlyOnce
fails if one of them is missing.

Source: pyspark.sql.datasource and pyspark/sql/worker/write_into_data_source.py of 4.2 and 4.3; each pitfall has a
test in spark/tests/datasource/test_sink.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyjs_spark.decode.schema import SparkField
from pyjs_spark.errors import OptionError, SparkError
from pyjs_spark.nats.client import Client
from pyjs_spark.options.writing import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from pyjs_spark.write.columns import RowPlan, plan_rows
from pyjs_spark.write.delivery import Delivered, SinkPart, begin
from pyjs_spark.write.marker import Progress, new_attempt
from pyjs_spark.write.publish import patiently

LOG = logging.getLogger("pyjs_spark")
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class Committed(Delivered, WriterCommitMessage):
    """The result of one partition; it has only plain values, so that Spark can send it to the driver."""


def batch_writer(options: SinkOptions, fields: Sequence[SparkField], overwrite: bool) -> JetStreamWriter:
    """Return the writer of one batch.

    Raises:
        OptionError: `overwrite` is set.
        SchemaError: the columns cannot be written.
    """
    if overwrite:
        raise OptionError(
            "mode overwrite: a stream cannot be replaced by a write; use mode append, and purge the stream before if "
            "it shall be empty"
        )
    is_unnamed = options.delivery == EXACTLY_ONCE and not options.sink_id
    named = replace(options, sink_id=f"once-{new_attempt()}") if is_unnamed else options
    return JetStreamWriter(named, plan_rows(fields, options), is_unnamed)


def stream_writer(
    options: SinkOptions, fields: Sequence[SparkField], overwrite: bool
) -> JetStreamStreamWriter:
    """Return the writer of a streaming query.

    Raises:
        OptionError: `overwrite` is set.
        SchemaError: the columns cannot be written.
    """
    if overwrite:
        raise OptionError("output mode complete: a stream cannot be replaced; use append or update")
    return JetStreamStreamWriter(options, plan_rows(fields, options))


class PartitionWriter:
    """The common part of both writers, which writes partitions in the workers.

    It is pickled, so its attributes must never change.
    """

    def __init__(self, options: SinkOptions, plan: RowPlan) -> None:
        self.options = options
        self.plan = plan
        self.run = new_attempt()

    def write(self, batches: Iterator[pa.RecordBatch], sink_id: str, batch: int, part: int) -> Committed:
        """Write one partition over its own connection, and return the result."""
        place = SinkPart(sink_id, batch, part, self.run)
        with closing(
            patiently(self.options.retries, lambda: begin(self.options, self.plan, place))
        ) as delivery:
            return Committed(*astuple(delivery.write(batches)))

    def tell(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log how many messages the stream already had, if any."""
        done = [each for each in messages if isinstance(each, Committed)]
        duplicates = sum(each.duplicates for each in done)
        if duplicates:
            LOG.warning(
                "stream %s: %d of %d messages were not stored again: it had their ids already, from an earlier "
                "attempt or from another message with the same id",
                self.options.stream,
                duplicates,
                sum(each.sent for each in done),
            )


class JetStreamWriter(DataSourceArrowWriter):
    """The writer of a batch."""

    def __init__(self, options: SinkOptions, plan: RowPlan, is_unnamed: bool) -> None:
        """Create the writer of a batch; `is_unnamed` means that the user gave no sinkId.

        No later write can use the markers of an unnamed sink, so commit and abort remove them.
        """
        self.batch: int | None = None  # number of the batch, if the caller knows it
        # Called with the rows of a partition; yields them at a limited rate, if the caller sets one.
        self.pace: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] = iter
        self._writing = PartitionWriter(options, plan)
        self._is_unnamed = is_unnamed

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition in a worker, and return the result.

        The number of the batch is `batch` if that is set, otherwise the number of Spark's micro-batch. Outside a
        micro-batch, it is 0.
        """
        batch = int(_property(BATCH_ID) or 0) if self.batch is None else self.batch
        return self._writing.write(self.pace(iterator), self._writing.options.sink_id, batch, _partition())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the duplicates of a completed write, and remove its markers if the user gave no sinkId."""
        self._writing.tell(messages)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the markers of a failed write if the user gave no sinkId.

        Stored rows remain; a write with a sinkId can be repeated.
        """
        self._forget()

    def _forget(self) -> None:
        """Remove the markers of a write that cannot be repeated."""
        options = self._writing.options
        if not self._is_unnamed:
            return
        try:
            with closing(Client(options.connect)) as client:
                Progress(client, options, options.sink_id).forget()
        # the messages are stored; only a small key remains in the progress bucket
        except SparkError as error:
            LOG.warning("the progress of %s stays in the bucket: %s", options.sink_id, error)


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: SinkOptions, plan: RowPlan) -> None:
        self._writing = PartitionWriter(options, plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition of a micro-batch in a worker, and return the result.

        Raises:
            SparkError: delivery is exactlyOnce, and Spark has not set the two properties of the task.
        """
        options = self._writing.options
        batch, query = _property(BATCH_ID), _property(QUERY_ID)
        sink_id = options.sink_id or query
        if options.delivery == EXACTLY_ONCE and not (batch and sink_id):
            raise SparkError(
                f"this Spark does not tell its tasks the properties {BATCH_ID} and {QUERY_ID}, on which delivery="
                f"{EXACTLY_ONCE} rests; use pyspark 4.2 or 4.3, or set delivery={AT_LEAST_ONCE}"
            )
        return self._writing.write(iterator, sink_id, int(batch or 0), _partition())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log how many messages of the micro-batch the stream already had, if any."""
        self._writing.tell(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: a repetition of the batch finds the stored rows and does not write them again."""


def _property(name: str) -> str:
    context = TaskContext.get()
    return (context.getLocalProperty(name) or "") if context is not None else ""


def _partition() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0

"""Data source `jetstream-replay`: the sink, with two more options: `batch` (a number), `rate` (rows per second).

A repeated write is recognised by the number of its batch, as in a streaming query. The task that publishes
limits the rate, because Spark buffers thousands of rows before this task, and delivers them all at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage

from pyjs_spark.datasource.source import JetStreamSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PIECES_PER_S = 10


class ReplaySource(JetStreamSource):
    """A data source that writes one batch of a replay."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        self._batch = int(given.pop("batch"))
        self._rate = int(given.pop("rate", 0))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "jetstream-replay"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        writer = super().writer(schema, overwrite)
        writer.batch = self._batch
        return PacedWriter(writer, self._rate) if self._rate else writer


class PacedWriter(DataSourceArrowWriter):
    """The sink's writer, which gets its rows at a limited rate. Pickled."""

    def __init__(self, writer: DataSourceArrowWriter, rate: int) -> None:
        self._writer = writer
        self._rate = rate

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one partition, in a worker."""
        return self._writer.write(paced(iterator, self._rate))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Handle the end of all partitions of a batch."""
        self._writer.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Handle a partition that failed permanently."""
        self._writer.abort(messages)


def paced(batches: Iterator[pa.RecordBatch], rate: int) -> Iterator[pa.RecordBatch]:
    """Yield at most `rate` rows per second, in portions of a tenth of a second."""
    due_s, piece = time.monotonic(), max(1, rate // PIECES_PER_S)
    for batch in batches:
        for at in range(0, batch.num_rows, piece):
            time.sleep(max(0.0, due_s - time.monotonic()))
            part = batch.slice(at, piece)
            due_s = max(due_s, time.monotonic()) + part.num_rows / rate  # never faster, even after a delay
            yield part

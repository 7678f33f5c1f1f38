"""Data source `jetstream-replay`: the sink, with the additional options `batch` (a number) and `rate` (rows per s).

A repeated write is recognised by the number of its batch, as in a streaming query. The task that publishes
limits the rate, because Spark buffers thousands of rows before this task, and delivers them all at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, MutableMapping
from functools import partial

import pyarrow as pa
from pyspark.sql.types import StructType

from pyjs_spark.datasource.sink import JetStreamWriter
from pyjs_spark.datasource.source import JetStreamSource

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

    def writer(self, schema: StructType, overwrite: bool) -> JetStreamWriter:
        """Return the writer of one batch of the replay; the options give the batch's number and the rate."""
        writer = super().writer(schema, overwrite)
        writer.batch = self._batch
        if self._rate:
            writer.pace = partial(paced, rate=self._rate)
        return writer


def paced(batches: Iterator[pa.RecordBatch], rate: int) -> Iterator[pa.RecordBatch]:
    """Yield at most `rate` rows per second, in portions that last about a tenth of a second each."""
    due_s, piece = time.monotonic(), max(1, rate // PIECES_PER_S)
    for batch in batches:
        for at in range(0, batch.num_rows, piece):
            time.sleep(max(0.0, due_s - time.monotonic()))
            part = batch.slice(at, piece)
            due_s = max(due_s, time.monotonic()) + part.num_rows / rate  # never faster, even after a delay
            yield part

"""A sink without Spark, which tests kill. It writes consecutive batches of three partitions, as a query does.

A file `<folder>/<batch>` is written after each batch. The next process repeats each batch that has no such file, as
Spark does after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pyjs_spark.nats.client import Client
from pyjs_spark.options.writing import parse_sink_options
from pyjs_spark.write.columns import RowPlan
from pyjs_spark.write.delivery import Delivery, SinkPart
from pyjs_spark.write.marker import new_attempt

PARTITIONS = 3
ROWS = 700  # rows per partition
PIECE = 100


def rows(batch: int, part: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one partition: numbers that no other partition has."""
    first = (batch * PARTITIONS + part) * ROWS
    for low in range(first, first + ROWS, PIECE):
        yield pa.record_batch([pa.array([b"%d" % n for n in range(low, low + PIECE)])], ["data"])


def write(port: int, stream: str, commits: Path, batches: int) -> None:
    """Write the batches that are not committed."""
    options = parse_sink_options(
        {
            "servers": f"nats://127.0.0.1:{port}",
            "stream": stream,
            "subject": f"{stream.lower()}.x",
            "maxInFlight": "64",
        }
    )
    client = Client(options.connect)
    run = new_attempt()
    for batch in range(batches):
        if (commits / str(batch)).exists():
            continue
        for part in range(PARTITIONS):
            place = SinkPart(stream.lower(), batch, part, run)
            Delivery(client, options, RowPlan(0, -1, -1, -1), place).write(rows(batch, part))
        (commits / str(batch)).touch()

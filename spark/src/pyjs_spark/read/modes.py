"""The mode in which a range is read: from files, by bulk reads, by a consumer or by direct gets.

`auto` uses bulk reads if the server offers them and the stream allows direct gets. Otherwise it uses direct
gets for streams whose consumers remove messages, and an ephemeral consumer for all others. If the user has no
permission for bulk reads, the read uses another mode, so `auto` does not fail if any mode works.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pyjs_spark.errors import AccessDenied, BulkRefused
from pyjs_spark.nats.client import Client, connected
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.read import bulk, direct, pull
from pyjs_spark.read.ranges import ReadRange, Report

READERS = {"consumer": pull.read_range, "direct": direct.read_range, "bulk": bulk.read_range}


def read_range(
    settings: ConnectSettings, what: ReadRange, report: Report | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range in order, in its mode; see pull.read_range()."""
    if what.place is not None:
        # Imported lazily, since only reads of a store directory need it.
        from pyjs_spark.read import files

        return files.read_range(what.place, what, report)
    client = connected(settings)
    if what.mode == "auto":
        return _auto(client, what, report)
    return READERS[what.mode](client, what, report)


def _auto(client: Client, what: ReadRange, report: Report | None) -> Iterator[pa.RecordBatch]:
    if bulk.is_offered(client):
        batches = bulk.read_range(client, what, report)
        try:
            first = next(batches, None)
        except (BulkRefused, AccessDenied):  # raised before any message was read
            pass
        else:
            if first is not None:
                yield first
                yield from batches
            return
    yield from pull.read_range(client, what, report)

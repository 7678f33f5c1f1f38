"""Readers of the data source for tables stored in streams: key-value buckets and object stores.

A batch read of a bucket has the latest value of each key, with one task for each bucket; with includeHistory=true it
has every revision and is planned like a read of the stream. A streaming query of a bucket reads its stream, with its
offsets and limits. Messages leave a bucket by design (its history, its TTL), so missing messages are not data loss; a
bucket that was deleted and re-created is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from pyjs_spark.datasource.readers import JetStreamReader, JetStreamStreamReader, RangeReader
from pyjs_spark.decode.schema import Projection, SparkField, pick
from pyjs_spark.errors import StreamMissing, suggestion
from pyjs_spark.kv import entries as kv
from pyjs_spark.kv import objects
from pyjs_spark.nats import buckets
from pyjs_spark.nats.client import connected
from pyjs_spark.options.reading import Options
from pyjs_spark.read import lookup
from pyjs_spark.read.latest import read_latest
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.plan import Span, StreamState
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.ranges import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa


def ddl(options: Options) -> str:
    """Return the schema of a table for which the user gave none."""
    types, extra = (kv.TYPES, kv.EXTRA) if options.buckets else (objects.TYPES, objects.EXTRA)
    return ", ".join(f"{name} {kind}" for name, kind in types.items() if name not in extra)


def reader(options: Options, fields: Sequence[SparkField], parallelism: int) -> DataSourceReader:
    """Return the reader of a batch."""
    if options.object_store:
        return ObjectReader(options, pick(fields, objects.TYPES, objects.NULLABLE))
    if options.include_history:
        return JetStreamReader(*_every_revision(options, fields, parallelism))
    return LatestReader(options, pick(fields, kv.TYPES, kv.NULLABLE))


def stream_reader(options: Options, fields: Sequence[SparkField], parallelism: int) -> DataSourceStreamReader:
    """Return the reader of a streaming query."""
    return JetStreamStreamReader(*_every_revision(options, fields, parallelism))


def _every_revision(
    options: Options, fields: Sequence[SparkField], parallelism: int
) -> tuple[EntryRanges, TablePlanner]:
    """Return the reader and the planner for all revisions of buckets."""
    projection, has_deletes = pick(fields, kv.TYPES, kv.NULLABLE), options.include_deletes is not False
    reading = EntryRanges(options, projection, has_deletes=has_deletes)
    return reading, TablePlanner(reading.options, api_of(options), parallelism)


class TablePlanner(Planner):
    """Plans reads of buckets, whose messages disappear by design."""

    def names(self) -> list[str]:
        """Return the streams with messages. Raises StreamMissing."""
        return [name for name, state in self._named_states().items() if state.messages]

    def _states_of(self, names: Iterable[str]) -> dict[str, StreamState]:
        found = super()._states_of(names)
        return {name: replace(state, is_consumed=True) for name, state in found.items()}

    def _missing(self, name: str) -> StreamMissing:
        """Return the error for a bucket that does not exist."""
        is_store = bool(self.options.object_store)
        option, prefix = ("objectStore", buckets.OBJECT_PREFIX) if is_store else ("bucket", buckets.KV_PREFIX)
        there = lookup.stream_names(self._api, (f"{prefix}*",))
        asked, known = name.removeprefix(prefix), [each.removeprefix(prefix) for each in there]
        hint = suggestion(asked, known, "create it, or name another")
        return StreamMissing(f"option {option}={asked}: there is no such bucket (stream {name}); {hint}")


# -- key-value buckets ----------------------------------------------------------------------------------------------


class EntryRanges(RangeReader):
    """Reads ranges of buckets' streams as entries. Pickled; immutable."""

    def __init__(self, options: Options, projection: Projection, *, has_deletes: bool) -> None:
        subjects = kv.filters(options.keys) if options.keys else ()
        super().__init__(replace(options, subjects=subjects), projection)
        self._entries = kv.Entries(projection, has_deletes)

    def range_of(self, span: Span, subjects: tuple[str, ...]) -> ReadRange:
        """Return the range to read for one span of a bucket's stream."""
        return replace(
            super().range_of(span, subjects),
            columns=self._entries.columns,
            headers="map",
            keeps_all=False,
            has_bodies=self._entries.has_bodies,
        )

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's range."""
        if partition.value is None:
            return iter(())
        bucket = partition.value.stream.removeprefix(buckets.KV_PREFIX)
        return self._entries.rows(bucket, self.messages(partition.value))


class LatestRanges(EntryRanges):
    """Reads whole buckets, as the latest value of each key."""

    def messages(self, what: ReadRange) -> Iterator[pa.RecordBatch]:
        """Read the last message of each key."""
        return read_latest(connected(self.options.connect), what)


class LatestReader(DataSourceReader):
    """A batch with the latest value of each key."""

    def __init__(self, options: Options, projection: Projection) -> None:
        self._reading = LatestRanges(options, projection, has_deletes=bool(options.include_deletes))

    def partitions(self) -> list[InputPartition]:
        """Return a task for each bucket."""
        options = self._reading.options
        names = TablePlanner(options, api_of(options)).names()
        spans = [Span(name, 1, 1, "") for name in names]  # the whole bucket is read
        return self._reading.ranges(spans, kv.filters(options.keys))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one bucket, in a worker."""
        return self._reading.rows(partition)


# -- object stores --------------------------------------------------------------------------------------------------


class ObjectReader(DataSourceReader):
    """A batch with one row for each object of a store."""

    def __init__(self, options: Options, projection: Projection) -> None:
        self._options = options
        self._listing = objects.Listing(
            options.object_store,
            projection,
            bool(options.include_deletes),
            options.max_object_size,
            options.fail_on_data_loss,
        )

    def partitions(self) -> list[InputPartition]:
        """Return one task, or none if there is nothing to read."""
        options = self._options
        ranges = RangeReader(options, self._listing.projection)
        found = [
            ranges.range_of(Span(name, 1, 1, ""), objects.filters(options.objects))
            for name in TablePlanner(options, api_of(options)).names()
        ]
        return [InputPartition(replace(what, columns=self._listing.columns)) for what in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the store, in a worker."""
        if partition.value is None:
            return iter(())
        client = connected(self._options.connect)
        return self._listing.rows(client, partition.value, read_latest(client, partition.value))

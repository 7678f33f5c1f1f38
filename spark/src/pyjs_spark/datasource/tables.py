"""Readers of the data source for tables that are stored in streams: key-value buckets and object stores.

A batch read of a bucket has the latest value of each key, and one task per bucket. A batch read with
includeHistory=true has every revision, and is planned like a read of the bucket's stream. A streaming query of a
bucket reads this stream, with the offsets and limits of any streaming query. A bucket removes messages by design
(it limits the history of a key, and may have a TTL), so missing messages are not data loss. The deletion and
re-creation of a bucket is data loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
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
from pyjs_spark.read.ranges import ReadRange, range_of


def ddl(options: Options) -> str:
    """Return the schema of a table for which the user gave no schema, in DDL."""
    types, extra = (kv.TYPES, kv.EXTRA) if options.buckets else (objects.TYPES, objects.EXTRA)
    return ", ".join(f"{name} {kind}" for name, kind in types.items() if name not in extra)


def reader(options: Options, fields: Sequence[SparkField], parallelism: int) -> DataSourceReader:
    """Return the reader for a batch query on key-value buckets or on an object store."""
    has_deletes = bool(options.include_deletes)
    if options.object_store:
        projection = pick(fields, objects.TYPES, objects.NULLABLE)
        how = (has_deletes, options.max_object_size, options.fail_on_data_loss)
        return LatestReader(options, objects.Listing(options.object_store, projection, *how))
    if options.include_history:
        return JetStreamReader(*_every_revision(options, fields, parallelism))
    return LatestReader(options, kv.Entries(pick(fields, kv.TYPES, kv.NULLABLE), has_deletes))


def stream_reader(options: Options, fields: Sequence[SparkField], parallelism: int) -> DataSourceStreamReader:
    """Return the reader of a streaming query of buckets."""
    return JetStreamStreamReader(*_every_revision(options, fields, parallelism))


def _every_revision(
    options: Options, fields: Sequence[SparkField], parallelism: int
) -> tuple[EntryRanges, TablePlanner]:
    """Return the reader and the planner for all revisions of buckets."""
    projection, has_deletes = pick(fields, kv.TYPES, kv.NULLABLE), options.include_deletes is not False
    reading = EntryRanges(options, projection, has_deletes=has_deletes)
    return reading, TablePlanner(reading.options, api_of(options), parallelism)


class TablePlanner(Planner):
    """A planner of reads of buckets, whose messages disappear by design."""

    def names(self) -> list[str]:
        """Return the names of the streams that have messages.

        Raises:
            StreamMissing: a bucket or object store does not exist.
        """
        return [name for name, state in self.states().items() if state.messages]

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
    """A reader of ranges of buckets' streams, which yields the messages as entries of the bucket.

    It is pickled, so its attributes must never change.
    """

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
        """Yield the entries in one task's range."""
        if partition.value is None:
            return iter(())
        bucket = partition.value.stream.removeprefix(buckets.KV_PREFIX)
        return self._entries.rows(bucket, self.messages(partition.value))


# -- the latest value of each key or object -------------------------------------------------------------------------


class LatestReader(DataSourceReader):
    """The reader of a batch read that has the latest value of each key in buckets, or each object in a store."""

    def __init__(self, options: Options, query: kv.Entries | objects.Listing) -> None:
        self._options = options
        self._query = query

    def partitions(self) -> list[InputPartition]:
        """Return a task for each bucket or store that has messages."""
        options, query = self._options, self._query
        names = TablePlanner(options, api_of(options)).names()
        subjects = kv.filters(options.keys) if options.buckets else objects.filters(options.objects)
        whole = [range_of(options, Span(name, 1, 1, ""), query.columns, subjects) for name in names]
        return [InputPartition(replace(what, has_bodies=query.has_bodies)) for what in whole]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one bucket or object store; called in a worker."""
        what = partition.value
        if what is None:
            return iter(())
        client = connected(self._options.connect)
        found = read_latest(client, what)
        if isinstance(self._query, objects.Listing):
            return self._query.rows(client, what, found)
        return self._query.rows(what.stream.removeprefix(buckets.KV_PREFIX), found)

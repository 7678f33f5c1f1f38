"""Key-value buckets as rows: columns, names of streams and subjects, and the meaning of an entry.

A bucket is the stream KV_<bucket> with one subject for each key. A revision is a sequence number of the stream.
Headers distinguish values from deletions. KV-Operation is written by the client that deletes or purges a key.
Nats-Marker-Reason is written by a server when a key has expired, or was purged or removed by a request to the stream.

Subjects are `$KV.<bucket>.<key>`. If a bucket mirrors a bucket with another name, its messages have the subjects of
that other bucket. So the second token of a subject is ignored.

Source: ADR-8 (key-value stores), ADR-43 (markers); operations of markers as in nats.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from pyjs_spark.decode.schema import Projection, typed_schema

TYPES = {
    "bucket": "string",
    "key": "string",
    "value": "binary",
    "revision": "bigint",
    "created": "timestamp",
    "operation": "string",
    "created_ns": "bigint",
    "headers": "map<string,array<string>>",
    "size": "int",
}
NULLABLE = ("value", "headers")
EXTRA = ("created_ns", "headers", "size")  # columns that a read returns only if the user's schema has them
# The message column from which each column is computed. `operation` and `value` also need the headers, and so do
# all columns if deletions are left out.
SOURCES = {
    "key": "subject",
    "value": "data",
    "revision": "seq",
    "created": "ts",
    "created_ns": "ts_ns",
    "headers": "headers",
    "size": "size",
}


def filters(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the subjects of the given keys, which may have wildcards; () means all keys."""
    return tuple(f"$KV.*.{key}" for key in keys or (">",))


@dataclass(frozen=True, slots=True)
class Entries:
    """A query of buckets, and its translation to messages.

    It has only plain values, so it can be pickled.
    """

    projection: Projection
    has_deletes: bool  # whether deleted and purged keys have rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of messages that the query needs."""
        asked = {SOURCES[name] for name in self.projection.columns if name in SOURCES}
        asked |= {"subject"}  # keys are distinguished by the subject
        if not self.has_deletes or {"operation", "value"} & set(self.projection.columns):
            asked |= {"headers"}
        return tuple(sorted(asked))

    @property
    def has_bodies(self) -> bool:
        """Return whether the query needs payloads."""
        return bool({"value", "size", "headers"} & set(self.projection.columns))

    def rows(self, bucket: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a bucket from its messages."""
        schema = typed_schema(self.projection, TYPES)
        for batch in batches:
            made = self._rows(bucket, batch, schema)
            if made.num_rows:
                yield made

    def _rows(self, bucket: str, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        done = operations(batch) if "headers" in batch.schema.names else None
        if done is not None and not self.has_deletes:
            is_put = pc.equal(done, "PUT")
            batch, done = batch.filter(is_put), done.filter(is_put)
        arrays = [_array(name, bucket, batch, done) for name in self.projection.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(name: str, bucket: str, batch: pa.RecordBatch, done: pa.Array | None) -> pa.Array:
    if name == "bucket":
        return pa.repeat(pa.scalar(bucket, pa.string()), batch.num_rows)
    if name == "operation":
        return done
    if name == "key":
        return pc.replace_substring_regex(batch.column("subject"), r"^\$KV\.[^.]*\.", "", max_replacements=1)
    found = batch.column(SOURCES[name])
    if name == "value":
        return pc.if_else(pc.equal(done, "PUT"), found, pa.scalar(None, pa.binary()))
    return found


def operations(batch: pa.RecordBatch) -> pa.Array:
    """Return the operation (PUT, DEL or PURGE) of each message in `batch`; the headers must be maps."""
    headers = batch.column("headers")
    if headers.null_count == len(headers):
        return pa.repeat(pa.scalar("PUT"), len(headers))
    said, why = header(headers, "KV-Operation"), header(headers, "Nats-Marker-Reason")
    purged = pc.or_(_is_in(said, ("PURGE",)), pc.and_(pc.is_null(said), _is_in(why, ("MaxAge", "Purge"))))
    deleted = pc.or_(_is_in(said, ("DEL",)), pc.and_(pc.is_null(said), _is_in(why, ("Remove",))))
    return pc.if_else(purged, "PURGE", pc.if_else(deleted, "DEL", "PUT"))


def header(headers: pa.Array, name: str) -> pa.Array:
    """Return the first value of a header for each row of maps, or null for a row without this header."""
    lists = pc.map_lookup(headers, pa.scalar(name), "first")
    return pc.utf8_trim_whitespace(pc.list_element(lists, 0))


def _is_in(values: pa.Array, wanted: tuple[str, ...]) -> pa.Array:
    return pc.is_in(values, value_set=pa.array(wanted))

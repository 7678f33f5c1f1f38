"""Object stores as rows: one row per object, with its content if the schema has that column.

A store is the stream OBJ_<bucket>. The metadata of an object is the last message of $O.<bucket>.M.<name in
base64url>, in JSON. The object's content is cut into chunks, which are messages of $O.<bucket>.C.<nuid>; the nuid
changes with every put. The time of the metadata message is the object's time of modification.

Contents are checked: the number of chunks, the number of bytes and the SHA-256 must match the metadata. An object
that was put again during the read is read again.

Source: ADR-20 (object stores).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pyjs_spark import strict_json
from pyjs_spark.decode.schema import Projection, typed_schema
from pyjs_spark.decode.wire import SEQ_MAX
from pyjs_spark.errors import DataLoss, OptionError, ProtocolError
from pyjs_spark.nats.client import Client
from pyjs_spark.read import pull
from pyjs_spark.read.latest import read_latest
from pyjs_spark.read.ranges import BATCH_SIZE_MAX, LOG, ReadRange

TYPES = {
    "bucket": "string",
    "name": "string",
    "description": "string",
    "size": "bigint",
    "chunks": "bigint",
    "digest": "string",
    "modified": "timestamp",
    "headers": "map<string,array<string>>",
    "metadata": "map<string,string>",
    "link": "struct<bucket:string,name:string>",
    "nuid": "string",
    "deleted": "boolean",
    "revision": "bigint",
    "content": "binary",
}
NULLABLE = ("description", "digest", "headers", "metadata", "link", "content")
EXTRA = ("nuid", "deleted", "revision", "content")  # columns returned only if the user's schema has them
DIGEST = "SHA-256="
PUTS_MAX = 3  # attempts to read an object that is put again during each attempt


def filters(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the subjects of the metadata of the given objects; () means all objects."""
    return tuple(f"$O.*.M.{encoded(name)}" for name in names) or ("$O.*.M.>",)


def encoded(name: str) -> str:
    """Return the name of an object as the last token of its metadata subject."""
    return base64.urlsafe_b64encode(name.encode()).decode()


@dataclass(frozen=True, slots=True)
class Listing:
    """A query of an object store; it has only plain values, so it can be pickled."""

    bucket: str
    projection: Projection
    has_deletes: bool
    content_max: int  # bytes; the content of a larger object is not read
    fail_on_data_loss: bool = True

    columns = ("seq", "ts_ns", "subject", "data")  # the message columns that are needed
    has_bodies = True

    @property
    def wants_content(self) -> bool:
        """Return whether contents are read."""
        return "content" in self.projection.columns

    def rows(
        self, client: Client, what: ReadRange, found: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the objects whose metadata messages are in `found`.

        The metadata messages were read with the range `what`; contents are read over `client`.
        """
        schema = typed_schema(self.projection, TYPES)
        waiting: list[dict[str, Any]] = []
        size = 0
        for batch in found:
            for row in self._objects(batch):
                if self.wants_content:
                    row = ObjectContents(client, what, self).fill(row)
                    size += len(row.get("content") or b"")
                if self.has_deletes or not row["deleted"]:  # the object may have been deleted during the read
                    waiting.append(row)
                if size >= BATCH_SIZE_MAX or len(waiting) >= what.batch_rows:
                    yield self._batch(waiting, schema)
                    waiting, size = [], 0
        if waiting:
            yield self._batch(waiting, schema)

    def _objects(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        for message in batch.to_pylist():
            row = described(self.bucket, message)
            if self.has_deletes or not row["deleted"]:
                yield row

    def _batch(self, rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
        arrays = [
            pa.array([row.get(name) for row in rows], field.type)
            for name, field in zip(self.projection.columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def described(bucket: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of one object without its content.

    `message` has the columns seq, ts_ns, subject and data of the object's metadata message.

    Raises:
        ProtocolError: the message is not the JSON of an object.
    """
    try:
        said = strict_json.loads(message["data"])
        link = (said.get("options") or {}).get("link")
        if encoded(str(said["name"])).rstrip("=") != str(message["subject"]).rpartition(".")[2].rstrip("="):
            raise ValueError("its name is not that of its subject")
        return {
            "bucket": bucket,
            "name": str(said["name"]),
            "description": _text(said.get("description")),
            "size": _count(said.get("size")),
            "chunks": _count(said.get("chunks")),
            "digest": _text(said.get("digest")),
            "modified": message["ts_ns"] // 1000,
            "headers": _pairs(said.get("headers"), lambda value: [str(each) for each in value]),
            "metadata": _pairs(said.get("metadata"), str),
            "link": {name: _text(link.get(name)) for name in ("bucket", "name")} if link else None,
            "nuid": str(said.get("nuid") or ""),
            "deleted": bool(said.get("deleted")),
            "revision": message["seq"],
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as wrong:
        raise ProtocolError(
            f"object store {bucket}: message {message['seq']} on {message['subject']} describes no object "
            f"({wrong!r}); name the objects to read with the option objects, or remove that message"
        ) from None


def _count(said: Any) -> int:
    count = int(said or 0)
    if not 0 <= count <= SEQ_MAX:
        raise ValueError(f"{count} is no size")
    return count


def _text(said: Any) -> str | None:
    return str(said) if said else None


def _pairs(said: Any, value_of: Callable[[Any], object]) -> list[tuple[str, object]] | None:
    return [(name, value_of(value)) for name, value in said.items()] if said else None


@dataclass(frozen=True, slots=True)
class ObjectContents:
    """A reader of the contents of objects."""

    client: Client
    what: ReadRange
    listing: Listing

    def fill(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row of an object with its content.

        If the object was put again, the newer row is returned. The content of a link or a deleted object is null.

        Raises:
            OptionError: the object is larger than maxObjectSize.
            DataLoss: the content cannot be read, and failOnDataLoss is true.
        """
        for _ in range(PUTS_MAX):
            if row["deleted"] or row["link"] is not None:
                return {**row, "content": None}
            self._check_size(row)
            wrong, content = self._read(row)
            if not wrong:
                return {**row, "content": content}
            newer = self._again(row)
            if newer["nuid"] == row["nuid"] and not newer["deleted"]:
                return self._lost(row, wrong)
            row = newer
        return self._lost(row, "it is put again faster than it is read")

    def _check_size(self, row: Mapping[str, Any]) -> None:
        if row["size"] > self.listing.content_max:
            raise OptionError(
                f"object store {row['bucket']}: object {row['name']} has {row['size']} bytes, and maxObjectSize is "
                f"{self.listing.content_max}; raise it, name smaller objects with the option objects, or leave the "
                "column content out of the schema"
            )

    def _read(self, row: Mapping[str, Any]) -> tuple[str, bytes]:
        """Read the chunks of an object; return a description of what is wrong with them, and the content.

        The description is "" if nothing is wrong; otherwise the content is b"".
        """
        chunks = replace(
            self.what,
            low=1,
            high=max(2, row["revision"]),
            subjects=(f"$O.*.C.{row['nuid']}",),
            columns=("data",),
            keeps_all=False,
            has_bodies=True,
        )
        parts: list[bytes] = []
        size, has_chunks = 0, row["chunks"] > 0
        for batch in pull.read_range(self.client, chunks) if has_chunks else ():
            parts += batch.column("data").to_pylist()
            size += sum(map(len, parts[-batch.num_rows :]))
            if size > row["size"]:
                break  # more bytes than the metadata state: stop
        content = b"".join(parts)
        if (len(parts), len(content)) != (row["chunks"], row["size"]):
            return f"{len(parts)} chunks of {len(content)} bytes are there", b""
        if not is_digest_of(row["digest"], content):
            return "its digest is not that of its content", b""
        return "", content

    def _again(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the current row of an object; if the object no longer exists, return `row` marked as deleted."""
        what = replace(self.what, subjects=filters((row["name"],)), columns=Listing.columns)
        for batch in read_latest(self.client, what):
            for message in batch.to_pylist():
                return described(row["bucket"], message)
        return {**row, "deleted": True}

    def _lost(self, row: dict[str, Any], why: str) -> dict[str, Any]:
        text = (
            f"object store {row['bucket']}: object {row['name']} cannot be read: {why}; it should have "
            f"{row['chunks']} chunks of {row['size']} bytes"
        )
        if self.listing.fail_on_data_loss:
            raise DataLoss(f"{text}. Put it again, or set failOnDataLoss=false to read it as null")
        LOG.warning("%s; it is null, as failOnDataLoss=false says", text)
        return {**row, "content": None}


def is_digest_of(digest: str | None, content: bytes) -> bool:
    """Return whether the content has this digest; True if the object has no digest."""
    if not digest:
        return True
    try:
        said = base64.urlsafe_b64decode(digest.removeprefix(DIGEST) + "==")
    except (binascii.Error, ValueError):
        return False
    return said == hashlib.sha256(content).digest()

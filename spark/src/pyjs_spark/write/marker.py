"""The durable progress of a sink: one key for each partition, in a key-value bucket.

    bucket   pyjs-sinks (option progressBucket): the stream KV_pyjs-sinks, created by the first write that needs it
    key      <sinkId>.<partition>
    value    JSON: {"v": 1, "batch": 7, "state": "begun", "stream": "OUT", "created": "...", "after": 1234,
                    "first_run": "...", "attempt": "...", "rows": 0, "digest": "",
                    "duplicates": 0}

    key      <sinkId>.batch
    value    JSON: {"v": 1, "batch": 7, "run": "...", "stream": "OUT"}

The second key names the run of the query that began the newest batch. A task of that run reads only this key and the
marker of its partition; a task of another run reads all markers, since the partitions may have been different.

`begun` is written before the first row of a batch, with the stream's last sequence at that time: messages of the
batch come after it. `done` is written after the last acknowledgement. Every write names the revision
that it has read, so of two attempts at the same rows only one succeeds.

Markers are not in the target stream, since its consumers would receive them. They are in an ordinary bucket: `nats kv
get pyjs-sinks <key>` shows the progress, and `nats kv del` resets it.

Source: ADR-8 (key-value buckets), ADR-31 (multi_last).
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from pyjs_spark import strict_json
from pyjs_spark.decode.frames import PubAck
from pyjs_spark.errors import ApiError, NoResponders, PublishFailed, ReplayDiffers, SparkError, WriterReplaced
from pyjs_spark.nats import buckets
from pyjs_spark.nats.client import NOBODY, Client
from pyjs_spark.nats.stored import Stored, stored
from pyjs_spark.options.writing import SinkOptions
from pyjs_spark.read import pull
from pyjs_spark.read.direct import END_OF_BATCH, NOT_FOUND
from pyjs_spark.read.lookup import stream_info
from pyjs_spark.read.ranges import ReadRange
from pyjs_spark.write.publish import WRONG_LAST_SEQ, patiently, publish_one

VERSION = 1
BEGUN = "begun"
DONE = "done"
KEYS_MAX = 1024  # the most that a server returns in one answer
TOO_MANY = 413


@dataclass(frozen=True, slots=True)
class Marker:
    """Progress of one partition of a sink."""

    batch: int
    state: str  # BEGUN or DONE
    stream: str  # the target
    created: str  # of the target
    after: int  # its last sequence before the first attempt at this batch
    first_run: str  # the run of the query that began this batch
    attempt: str  # of the writer of this marker
    rows: int = 0  # DONE: of the batch in this partition
    digest: str = ""  # DONE: of their content
    duplicates: int = 0  # DONE: rows that the last attempt sent and the stream had already
    revision: int = 0  # of the key; not part of the value
    ts_ns: int = 0  # when it was written; not part of the value

    def to_json(self) -> bytes:
        """Return the value of the key."""
        value = {"v": VERSION, **asdict(self)}
        del value["revision"], value["ts_ns"]
        return json.dumps(value).encode()


@dataclass(frozen=True, slots=True)
class BatchMark:
    """The newest batch of a sink, and the attempt that began it."""

    batch: int
    run: str
    stream: str  # the target
    revision: int = 0  # of the key; not part of the value

    def to_json(self) -> bytes:
        """Return the value of the key."""
        return json.dumps(
            {"v": VERSION, "batch": self.batch, "run": self.run, "stream": self.stream}
        ).encode()


def new_attempt() -> str:
    """Return a unique name for one attempt at a partition, or for one run."""
    return f"{random.getrandbits(64):016x}"


class Progress:
    """The markers of one sink."""

    def __init__(self, client: Client, options: SinkOptions, sink_id: str) -> None:
        self._client = client
        self._bucket = bucket = options.progress_bucket
        self._stream = buckets.kv_stream(bucket)
        self._prefix = f"$KV.{bucket}.{sink_id}."
        self._batch_subject = f"{self._prefix}batch"
        self._retries = options.retries
        self._deleted: dict[int, int] = {}  # partitions whose key was deleted -> revision of that

    def read(self) -> dict[int, Marker]:
        """Return the marker of every partition that has one."""
        return self._markers(self._last((f"{self._prefix}*",)))

    def read_own(self, part: int) -> tuple[Marker | None, BatchMark | None]:
        """Return the marker of a partition, and that of the newest batch."""
        found = self._last((f"{self._prefix}{part}", self._batch_subject))
        return self._markers(found).get(part), self._batch_in(found)

    def begin(self, mark: BatchMark) -> BatchMark:
        """Replace the mark of a batch at its revision; return the current one."""
        headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % mark.revision
        said = publish_one(self._client, self._batch_subject, mark.to_json(), headers, self._retries)
        if said.err_code == WRONG_LAST_SEQ:  # another task was first, or our own write was repeated
            found = patiently(
                self._retries, lambda: self._batch_in(self._last((self._batch_subject,))), self._client
            )
            return found or mark
        self._check(said)
        return replace(mark, revision=said.seq)

    def _batch_in(self, messages: list[Stored]) -> BatchMark | None:
        for message in messages:
            if message.subject.decode() == self._batch_subject:
                if not message.payload:  # deleted
                    return BatchMark(-1, "", "", message.seq)
                value = self._value(message)
                return BatchMark(int(value["batch"]), str(value["run"]), str(value["stream"]), message.seq)
        return None

    def _last(self, subjects: tuple[str, ...]) -> list[Stored]:
        """Return the last messages of some subjects."""
        request = {"multi_last": subjects, "batch": KEYS_MAX}
        subject = f"{self._client.settings.api_prefix}.DIRECT.GET.{self._stream}"
        wait_s = self._client.settings.timeout_s
        *some, end = self._client.request_many(subject, json.dumps(request).encode(), KEYS_MAX, wait_s)
        if end.status == END_OF_BATCH:
            return [stored(answer) for answer in some]
        if end.status == NOT_FOUND:
            return []
        return self._read_long_way(subjects, end.status, end.description)

    def write(self, part: int, marker: Marker) -> Marker:
        """Replace a marker at its revision; return it with the new revision.

        Raises:
            WriterReplaced: the key has a newer revision.
        """
        subject = self._prefix + str(part)
        revision = marker.revision or self._deleted.get(part, 0)
        headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % revision
        said = publish_one(self._client, subject, marker.to_json(), headers, self._retries)
        if said.err_code == WRONG_LAST_SEQ:
            return self._written_before(part, marker)
        self._check(said)
        return replace(marker, revision=said.seq)

    def _check(self, said: PubAck) -> None:
        if said.code:
            raise PublishFailed(
                f"progressBucket {self._bucket}: {said.text} (code {said.code}, err_code {said.err_code})"
            )

    def forget(self) -> None:
        """Remove all markers of this sink."""
        if stream_info(self._client, self._stream) is not None:
            self._client.api(f"STREAM.PURGE.{self._stream}", {"filter": self._prefix + ">"})

    def make_bucket(self, replicas: int) -> None:
        """Create the bucket if it does not exist."""
        patiently(self._retries, lambda: self._make_bucket(replicas), self._client)

    def _make_bucket(self, replicas: int) -> None:
        if stream_info(self._client, self._stream) is not None:
            return
        config = buckets.kv_config(
            self._bucket, description="progress of pyjs_spark sinks", num_replicas=replicas
        )
        try:
            self._client.api(f"STREAM.CREATE.{self._stream}", config)
        except ApiError as error:
            if stream_info(self._client, self._stream) is not None:
                return  # another task created it, with its own number of replicas
            raise PublishFailed(
                f"progressBucket {self._bucket}: the bucket, in which a sink keeps its progress, is not there and "
                f"cannot be made: {error}. Make it (nats kv add {self._bucket}), or set delivery=atLeastOnce"
            ) from error

    def _written_before(self, part: int, marker: Marker) -> Marker:
        """Return the stored marker if this attempt wrote it and only the answer was lost. Raises WriterReplaced."""
        last = patiently(self._retries, self.read, self._client).get(part)
        if last is not None and last.attempt == marker.attempt and last.state == marker.state:
            return last
        raise WriterReplaced(
            f"partition {part} of batch {marker.batch}: another attempt writes these rows as well and goes on; this "
            "one ends. Two queries with one sinkId look like this too"
        )

    def _markers(self, messages: list[Stored]) -> dict[int, Marker]:
        found = {}
        for message in messages:
            part = message.subject.decode().removeprefix(self._prefix)
            if message.payload and part.isdigit():
                found[int(part)] = Marker(**self._value(message), revision=message.seq, ts_ns=message.ts_ns)
            elif part.isdigit():
                self._deleted[int(part)] = message.seq
        return found

    def _value(self, message: Stored) -> dict[str, Any]:
        """Return the value of a key. Raises ReplayDiffers if it is unreadable."""
        value = strict_json.an_object(message.payload)
        if value.pop("v", None) != VERSION:
            key = message.subject.decode()
            raise ReplayDiffers(f"{key} was written by another version of this package: {value!r:.100}")
        return value

    def _read_long_way(self, subjects: tuple[str, ...], status: int, why: str) -> list[Stored]:
        """Read more keys than fit in one answer, in portions; also find out whether the bucket is missing."""
        info = stream_info(self._client, self._stream)
        if info is None:
            return []
        if status == NOBODY and info["config"].get("allow_direct"):  # another task has created it since
            raise NoResponders(f"{self._client.address}: the bucket {self._bucket} answered not yet")
        if status != TOO_MANY and info["config"].get("allow_direct"):
            raise SparkError(f"{self._client.address}: the bucket {self._bucket} answered {status} {why}")
        what = ReadRange(
            self._stream,
            max(1, int(info["state"]["first_seq"])),
            int(info["state"]["last_seq"]) + 1,
            subjects,
            columns=("seq", "ts_ns", "subject", "data"),
            fail_on_data_loss=False,  # a rewritten key moves to another sequence
        )
        return [
            Stored(row["seq"], row["ts_ns"], row["subject"].encode(), b"", row["data"])
            for batch in pull.read_range(self._client, what)
            for row in batch.to_pylist()
        ]

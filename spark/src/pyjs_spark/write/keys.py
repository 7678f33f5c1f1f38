"""Keys of the progress bucket; a value, which is JSON, is replaced only if the key has the expected revision.

    bucket   pyjs-sinks (option progressBucket): the stream KV_pyjs-sinks, created by the first write that needs it

If two writers read the same revision, only one of them succeeds. If the answer to a write is lost, the write is
repeated, and may then conflict with itself; the caller finds out by comparing the value.

Markers are not stored in the target, where its consumers would receive them. Their bucket is an ordinary one: the
command `nats kv get pyjs-sinks <key>` shows the progress, and `nats kv del` resets it.

Source: ADR-8 (key-value buckets), ADR-31 (multi_last).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyjs_spark import strict_json
from pyjs_spark.errors import ApiError, NoResponders, PublishFailed, ReplayDiffers, SparkError
from pyjs_spark.nats import buckets
from pyjs_spark.nats.client import NOBODY, Client
from pyjs_spark.options.writing import SinkOptions
from pyjs_spark.read import pull
from pyjs_spark.read.direct import END_OF_BATCH, NOT_FOUND, Stored, stored
from pyjs_spark.read.lookup import stream_info
from pyjs_spark.read.ranges import ReadRange
from pyjs_spark.write.publish import WRONG_LAST_SEQ, patiently, publish_one

VERSION = 1
KEYS_MAX = 1024  # maximum number of messages that a server returns in one answer
TOO_MANY = 413


@dataclass(frozen=True, slots=True)
class KeyValue:
    """The newest value of a key."""

    value: Mapping[str, Any] | None  # None: the key was deleted
    revision: int
    ts_ns: int  # time of the write, in ns since 1970


class Keys:
    """The keys of the progress bucket."""

    def __init__(self, client: Client, options: SinkOptions) -> None:
        self._client = client
        self._bucket = options.progress_bucket
        self._stream = buckets.kv_stream(self._bucket)
        self._prefix = f"$KV.{self._bucket}."
        self._retries = options.retries

    def read(self, *keys: str) -> dict[str, KeyValue]:
        """Return the values of keys, which may be patterns; a key that was never written is absent."""
        found = {}
        for message in self._last([self._prefix + key for key in keys]):
            key = message.subject.decode().removeprefix(self._prefix)
            value = _value(key, message.payload) if message.payload else None
            found[key] = KeyValue(value, message.seq, message.ts_ns)
        return found

    def read_patiently(self, *keys: str) -> dict[str, KeyValue]:
        """Read as `read` does, and repeat the request after temporary failures."""
        return patiently(self._retries, lambda: self.read(*keys), self._client)

    def write(self, key: str, value: Mapping[str, Any], revision: int) -> int | None:
        """Replace the value of a key that has `revision`, and return the new revision.

        The result is None if the key has another revision. Revision 0 means that the key is new.

        Raises:
            PublishFailed: the server refused the value, or did not acknowledge it.
        """
        payload = json.dumps({"v": VERSION, **value}).encode()
        headers = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: %d\r\n\r\n" % revision
        said = publish_one(self._client, self._prefix + key, payload, headers, self._retries)
        if said.err_code == WRONG_LAST_SEQ:
            return None
        if said.code:
            raise PublishFailed(
                f"progressBucket {self._bucket}: {said.text} (code {said.code}, err_code {said.err_code})"
            )
        return said.seq

    def forget(self, pattern: str) -> None:
        """Remove all keys that match a pattern."""
        if stream_info(self._client, self._stream) is not None:
            self._client.api(f"STREAM.PURGE.{self._stream}", {"filter": self._prefix + pattern})

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
                return  # another task has created the bucket, with another number of replicas
            raise PublishFailed(
                f"progressBucket {self._bucket}: the bucket, in which a sink keeps its progress, is not there and "
                f"cannot be made: {error}. Make it (nats kv add {self._bucket}), or set delivery=atLeastOnce"
            ) from error

    def _last(self, subjects: list[str]) -> list[Stored]:
        """Return the last message of each subject that `subjects` match."""
        request = {"multi_last": subjects, "batch": KEYS_MAX}
        subject = f"{self._client.settings.api_prefix}.DIRECT.GET.{self._stream}"
        wait_s = self._client.settings.timeout_s
        *some, end = self._client.request_many(subject, json.dumps(request).encode(), KEYS_MAX, wait_s)
        if end.status == END_OF_BATCH:
            return [stored(answer) for answer in some]
        if end.status == NOT_FOUND:
            return []
        return self._read_long_way(subjects, end.status, end.description)

    def _read_long_way(self, subjects: list[str], status: int, why: str) -> list[Stored]:
        """Return the last messages of keys whose values do not fit in one answer.

        The list is empty if the bucket does not exist.

        Raises:
            NoResponders: the bucket has just been created, and does not answer yet.
            SparkError: the bucket answered with an error.
        """
        info = stream_info(self._client, self._stream)
        if info is None:
            return []
        # another task has just created the bucket
        if status == NOBODY and info["config"].get("allow_direct"):
            raise NoResponders(f"{self._client.address}: the bucket {self._bucket} answered not yet")
        if status != TOO_MANY and info["config"].get("allow_direct"):
            raise SparkError(f"{self._client.address}: the bucket {self._bucket} answered {status} {why}")
        what = ReadRange(
            self._stream,
            max(1, int(info["state"]["first_seq"])),
            int(info["state"]["last_seq"]) + 1,
            tuple(subjects),
            columns=("seq", "ts_ns", "subject", "data"),
            fail_on_data_loss=False,  # a key that is written again during the read gets a new sequence
        )
        return [
            Stored(row["seq"], row["ts_ns"], row["subject"].encode(), b"", row["data"])
            for batch in pull.read_range(self._client, what)
            for row in batch.to_pylist()
        ]


def _value(key: str, payload: bytes) -> dict[str, Any]:
    """Decode `payload`, the value of a key; return its fields without the format version.

    Raises:
        ReplayDiffers: another version of this package wrote the value.
        ValueError: the value is not a JSON object.
    """
    value = strict_json.an_object(payload)
    if value.pop("v", None) != VERSION:
        raise ReplayDiffers(f"{key} was written by another version of this package: {payload!r:.100}")
    return value

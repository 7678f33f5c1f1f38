"""Reads the messages of one range by direct get, for streams whose consumers remove the messages that they read.

On a workqueue or interest stream, a consumer for the read would take messages away from other consumers, or
would be refused. A direct get of a message by its sequence removes nothing. With `allow_direct`, one request gets
many messages; without it, each request gets one message (STREAM.MSG.GET). Messages of such a stream may be removed
during the read, so only a re-created stream counts as data loss. A limits stream can be read by direct get too; then
the rules about losses are those of pull.py.

A direct get may be answered by a mirror (`mirror_direct`), which may lack messages, or by a replica that lags
behind. So answers from a mirror are discarded, and if a replica has no more messages, the read requests the next
message from the leader.

A batched answer appends headers in this order: Nats-Stream, Nats-Subject, Nats-Sequence, Nats-Time-Stamp,
Nats-Num-Pending, Nats-Last-Sequence. The function `stored` removes these headers.

Source: ADR-31 (direct get and its batches); both servers' behaviour is checked in spark/tests/read/test_direct.py.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from pyjs_spark.decode.wire import SEQ_MAX, Rows
from pyjs_spark.errors import ApiError, ProtocolError, SparkError
from pyjs_spark.nats.client import Client, Reply
from pyjs_spark.read.batches import BatchMaker, decoded_columns
from pyjs_spark.read.lookup import NO_MESSAGE, stream_info
from pyjs_spark.read.ranges import BATCH_SIZE_MAX, Losses, Patience, ReadRange, Report
from pyjs_spark.subjects import filters_of, is_any
from pyjs_spark.times import parse_rfc3339

ANSWER_SIZE = 4 << 20  # bytes requested for one batched answer
ANSWER_COUNT = 1000
TRIES = 4  # attempts at a direct get that mirrors answer; after that, the leader is asked for one message
END_OF_BATCH = 204
NOT_FOUND = 404
NO_RESOURCES = 500  # status: pyjs-server lacks file descriptors or memory for the read
LATER = 503  # status of an error after which another attempt may succeed


class Stored(NamedTuple):
    """One message of a stream."""

    seq: int
    ts_ns: int
    subject: bytes
    headers: bytes
    payload: bytes


def stored(answer: Reply) -> Stored:
    """Return the stored message in one part of a batched answer.

    Raises:
        ProtocolError: a header that describes the message is missing or invalid.
    """
    own, _, added = answer.headers.rpartition(b"\r\nNats-Stream:")
    named = dict(line.split(b": ", 1) for line in added.split(b"\r\n")[1:] if b": " in line)
    try:
        seq, ts = int(named[b"Nats-Sequence"]), parse_rfc3339(named[b"Nats-Time-Stamp"].decode())
        subject = named[b"Nats-Subject"]
        if not 0 < seq <= SEQ_MAX:
            raise ValueError(seq)
    except (KeyError, ValueError):
        raise ProtocolError(f"a direct get was answered with the headers {answer.headers[:200]!r}") from None
    headers = own + b"\r\n\r\n" if own != b"NATS/1.0" else b""
    return Stored(seq, ts, subject, headers, answer.payload)


def read_range(client: Client, what: ReadRange, report: Report | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range in order; see pull.read_range()."""
    report = report or Report()
    read = _Read(client, what, report)
    maker = BatchMaker(what)
    rows = Rows(decoded_columns(what.columns), what.headers)
    for message in read.messages():
        size = len(message.subject) + len(message.headers) + len(message.payload)
        if rows.count >= what.batch_rows or (rows.count and rows.size + size > BATCH_SIZE_MAX):
            report.rows += rows.count
            yield maker.make(rows.take())
        rows.add(*message)
    if rows.count:
        report.rows += rows.count
        yield maker.make(rows.take())


class _Read:
    """One read of a range by direct gets."""

    def __init__(self, client: Client, what: ReadRange, report: Report) -> None:
        self._client = client
        self._what = what
        self._losses = Losses(what, report)
        self._patience = Patience(client, report)
        self._next_seq = what.low
        # The server filters by one subject. If there are several, all messages are requested, and selected
        # here.
        self._filter = what.subjects[0] if len(what.subjects) == 1 else ">"
        self._chosen = filters_of(what.subjects) if len(what.subjects) > 1 else []

    def messages(self) -> Iterator[Stored]:
        """Yield the messages of the range that still exist."""
        has_more = self._next_seq < self._what.high
        while has_more:
            try:
                has_more, some = self._get()
            except SparkError as error:
                self._patience.bear(error)
                continue
            self._patience.progress()
            if some:
                self._next_seq = some[-1].seq + 1
            has_more = has_more and self._next_seq < self._what.high
            for message in some:
                is_chosen = not self._chosen or is_any(message.subject, self._chosen)
                if is_chosen and message.seq < self._what.high:
                    yield message

    def _get(self) -> tuple[bool, list[Stored]]:
        """Return whether more messages may follow, and the next messages."""
        info = stream_info(self._client, self._what.stream)
        if not self._is_same(info):
            return False, []
        assert info is not None
        is_kept = info["config"]["retention"] == "limits"
        if is_kept:
            self._losses.of_stream(info, self._next_seq)
        some = (self._many() if info["config"].get("allow_direct") else []) or self._one()
        # Requested after the answer: only if the stream still exists now, the answer came from it.
        info = stream_info(self._client, self._what.stream)
        if not self._is_same(info):
            return False, []
        if is_kept:
            self._check_gaps(info, [message.seq for message in some])
        return bool(some), some

    def _check_gaps(self, info: dict[str, Any] | None, seqs: list[int]) -> None:
        """Count or report a loss if the sequences without a message were trimmed at the beginning of the stream."""
        low, high = self._next_seq, min(seqs[-1] + 1 if seqs else self._what.high, self._what.high)
        missing = high - low - sum(seq < high for seq in seqs)
        if missing:
            self._losses.of_batch(info, low, high, missing)

    def _is_same(self, info: dict[str, Any] | None) -> bool:
        """Return whether the stream of the plan still exists.

        Raises:
            DataLoss: the stream no longer exists, and failOnDataLoss is set.
        """
        created = self._what.created
        if info is not None and created in ("", info["created"]):
            return True
        return self._losses.of_stream(info, self._next_seq)

    def _many(self) -> list[Stored]:
        """Return the messages of the next batched answer.

        The list is empty if there are no more messages, or if only mirrors have answered.

        Raises:
            ApiError: the answer ends with the status of an error.
        """
        count = min(self._what.fetch_batch, ANSWER_COUNT, self._what.high - self._next_seq)
        body = {"seq": self._next_seq, "next_by_subj": self._filter, "batch": count, "max_bytes": ANSWER_SIZE}
        subject = f"{self._client.settings.api_prefix}.DIRECT.GET.{self._what.stream}"
        wait_s = self._client.settings.timeout_s
        for _ in range(TRIES):
            *answers, end = self._client.request_many(subject, json.dumps(body).encode(), count, wait_s)
            if end.status not in (END_OF_BATCH, NOT_FOUND):
                text = f"{self._client.address}: {subject} answered {end.status} {end.description}"
                raise ApiError(LATER if end.status == NO_RESOURCES else end.status, 0, text)
            if all(answer.header(b"Nats-Stream") == self._what.stream.encode() for answer in answers):
                return [stored(answer) for answer in answers]
        return []

    def _one(self) -> list[Stored]:
        body = {"seq": self._next_seq, "next_by_subj": self._filter}
        try:
            found = self._client.api(f"STREAM.MSG.GET.{self._what.stream}", body)["message"]
        except ApiError as error:
            if error.err_code == NO_MESSAGE:
                return []
            raise
        headers, data = (base64.b64decode(found.get(name) or "") for name in ("hdrs", "data"))
        return [Stored(found["seq"], parse_rfc3339(found["time"]), found["subject"].encode(), headers, data)]

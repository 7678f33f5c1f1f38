"""The range that a task reads, its losses, and its retries.

A range is [low, high) of one stream's sequences, planned before the task runs. Messages may be removed between the
plan and the read. Deletions of single messages are allowed. It is data loss if messages are removed at the beginning
of the stream ("trimmed"), or if the stream is re-created and so has another creation time (`created`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyjs_spark.decode.schema import DEFAULT_COLUMNS
from pyjs_spark.decode.wire import SEQ_MAX
from pyjs_spark.errors import (
    ApiError,
    DataLoss,
    NoResponders,
    SeqTooLarge,
    ServerUnreachable,
    SparkError,
    StreamMissing,
    is_passing,
)
from pyjs_spark.nats import retry
from pyjs_spark.nats.client import Client
from pyjs_spark.options.reading import Options
from pyjs_spark.read.lookup import stream_info
from pyjs_spark.read.plan import Span
from pyjs_spark.store.place import StoreDirectory

LOG = logging.getLogger("pyjs_spark")
BATCH_SIZE_MAX = 32 << 20  # maximum bytes of subjects, headers and payloads in one batch
BATCH_ROWS, BULK_BATCH_ROWS = 10_000, 65_536
# maximum number of consecutive failures without a message in between; their pauses last about 12 s
FAILURES_MAX = 6


@dataclass(frozen=True)
class ReadRange:
    """The range of one task. It has only plain values, so that Spark can send it to a worker."""

    stream: str
    low: int
    high: int  # the sequence after the last one to read
    subjects: tuple[str, ...] = ()  # filter; empty: all
    created: str = ""  # creation time of the stream in the plan; "": not checked
    columns: tuple[str, ...] = DEFAULT_COLUMNS  # the columns to fill, in this order
    headers: str = "map"  # map, raw or false
    mode: str = "auto"  # value of the option readMode
    place: StoreDirectory | None = None  # a store directory, which is read without a server
    batch_rows: int = BATCH_ROWS  # for a consumer or direct get
    bulk_batch_rows: int = BULK_BATCH_ROWS  # for bulk reads and store directories
    fetch_batch: int = 10_000
    fetch_expires_s: float = 5.0
    idle_timeout_s: float = 30.0
    fail_on_data_loss: bool = True
    # False: the stream's first messages are removed by design (buckets), which is no loss
    keeps_all: bool = True
    has_bodies: bool = True  # False: the server omits payloads; not allowed with the columns data and size

    def __post_init__(self) -> None:
        """Raise SeqTooLarge if a sequence of the range does not fit into a column."""
        if self.high - 1 > SEQ_MAX:
            raise SeqTooLarge(
                f"stream {self.stream}: sequence {self.high - 1} is above 2^63-1, the largest that Spark holds"
            )


def range_of(options: Options, span: Span, columns: tuple[str, ...], subjects: tuple[str, ...]) -> ReadRange:
    """Return the range for reading some columns of a span, with these options."""
    return ReadRange(
        stream=span.stream,
        low=span.low,
        high=span.high,
        subjects=subjects,
        created=span.created,
        columns=columns,
        headers=options.include_headers,
        mode=options.read_mode,
        place=options.place,
        batch_rows=options.arrow_batch_rows or BATCH_ROWS,
        bulk_batch_rows=options.arrow_batch_rows or BULK_BATCH_ROWS,
        fetch_batch=options.fetch_batch,
        fetch_expires_s=options.fetch_expires_s,
        idle_timeout_s=options.idle_timeout_s,
        fail_on_data_loss=options.fail_on_data_loss,
    )


@dataclass
class Report:
    """Counters of a read."""

    rows: int = 0
    # Maximum number of lost sequences: some may have had no message, or one that was not requested.
    lost: int = 0
    failures: int = 0  # number of errors after which the read waited, connected again, or gave up


class Losses:
    """The check of one range for data loss, which raises DataLoss or counts the lost messages."""

    def __init__(self, what: ReadRange, report: Report) -> None:
        self._what = what
        self._report = report
        self._first_seq = 0  # the stream's first sequence; losses below it are already counted
        self._is_end_known = False  # whether a loss at the end of the range is already counted

    def of_stream(self, info: dict[str, Any] | None, next_seq: int) -> bool:
        """Check the stream before the read continues at `next_seq`; return False if nothing is left to read.

        `info` is the answer to STREAM.INFO, or None if there is no such stream.

        Raises:
            StreamMissing: the stream does not exist, and the range has no creation time.
            DataLoss: messages are lost, and failOnDataLoss is set.
        """
        what = self._what
        if info is None:
            if not what.created:
                raise StreamMissing(f"stream {what.stream}: there is no such stream; check the option stream")
            return self._gone(next_seq, "it was deleted since the read was planned")
        if what.created and info["created"] != what.created:
            made = f"it was made at {info['created']}, and the read was planned for the one of {what.created}"
            return self._gone(next_seq, f"another stream has its name by now: {made}")
        last_seq = int(info["state"]["last_seq"])
        if last_seq < what.high - 1 and what.created and not self._is_end_known:
            self._is_end_known = True
            self._lose(max(next_seq, last_seq + 1), what.high, f"the stream ends at {last_seq}")
        self._trimmed(next_seq, int(info["state"]["first_seq"]), what.high - next_seq)
        return True

    def of_batch(self, info: dict[str, Any] | None, low: int, high: int, missing: int) -> bool:
        """Check the stream after a read of [low, high) in which `missing` sequences had no message.

        Returns False if the read must end.

        Raises:
            DataLoss: messages were trimmed, or the stream is another one, and failOnDataLoss is set.
        """
        if info is None or (self._what.created and info["created"] != self._what.created):
            return self.of_stream(info, high)
        self._trimmed(low, min(int(info["state"]["first_seq"]), high), missing)
        return True

    def of_chunk(self, info: dict[str, Any], low: int, high: int, rows: int) -> None:
        """Check a chunk of the planned stream, which has `rows` messages in [low, high).

        `info` is the answer to STREAM.INFO at the moment of the chunk.
        """
        self._trimmed(low, min(int(info["state"]["first_seq"]), high), high - low - rows)
        if high < self._what.high and int(info["state"]["last_seq"]) < high:
            self.of_stream(info, high)

    def damaged(self, low: int, high: int, why: str) -> None:
        """Count the messages of [low, high) in this range as lost, because they are damaged.

        Raises:
            DataLoss: failOnDataLoss is set.
        """
        low, high = max(low, self._what.low), min(high, self._what.high)
        self._lose(low, high, why)
        if low < high:
            LOG.warning("stream %s: messages %d to %d: %s", self._what.stream, low, high - 1, why)

    def _trimmed(self, low: int, first_seq: int, missing: int) -> None:
        """Count the messages from `low` to below `first_seq` as lost, but at most `missing`; the others were read."""
        if not self._what.keeps_all:
            return
        low, first_seq = max(low, self._first_seq), min(first_seq, self._what.high)
        if first_seq > low:
            self._first_seq = first_seq
            why = f"the stream begins at {first_seq} by now: it was purged, or its limits removed them"
            self._lose(low, min(first_seq, low + missing), why)

    def _gone(self, next_seq: int, why: str) -> bool:
        self._lose(next_seq, self._what.high, why)
        return False

    def _lose(self, low: int, high: int, why: str) -> None:
        if high <= low:
            return
        if self._what.fail_on_data_loss:
            raise DataLoss(
                f"stream {self._what.stream}: up to {high - low} messages from sequence {low} on are lost; {why}. "
                "Set failOnDataLoss=false to go on without them"
            )
        self._report.lost += high - low


class Patience:
    """A retry policy that tolerates several consecutive failures, with growing pauses and new connections."""

    def __init__(self, client: Client, report: Report) -> None:
        self._client = client
        self._report = report
        self._failures = 0  # number of failures since the last progress

    def progress(self) -> None:
        """Reset the count of failures, because a message was read."""
        self._failures = 0

    def api(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request that changes nothing, and repeat it after temporary failures.

        Raises:
            ApiError: the answer is an error that is not temporary.
            SparkError: too many failures, or another permanent error.
        """
        while True:
            try:
                return self._client.api(name, body)
            except SparkError as error:
                if isinstance(error, ApiError) and not is_passing(error):
                    raise
                self.bear(error)

    def stream_info(self, stream: str) -> dict[str, Any] | None:
        """Return the answer to STREAM.INFO, or None if there is no such stream."""
        return stream_info(self, stream)

    def bear(self, error: SparkError) -> None:
        """Wait after a temporary failure, and connect again if necessary.

        Raises:
            SparkError: `error` itself, if it is permanent or the latest of too many failures.
        """
        self._failures += 1
        self._report.failures += 1
        if not is_passing(error) or self._failures > FAILURES_MAX:
            raise error
        if self._failures > 1:
            retry.pause(self._failures - 2)
        if isinstance(error, ApiError | NoResponders):
            return
        try:
            self._client.reconnect()
        except ServerUnreachable as worse:
            self.bear(worse)

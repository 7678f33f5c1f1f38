"""The last message of each subject as Arrow batches; key-value buckets and object stores are read this way.

A consumer with deliver policy last_per_subject selects the messages on the server. So a bucket of a million
keys is read in one pass with bounded memory: batches, plus 8 bytes per subject (its hash). Direct get can
return last messages too (multi_last), but only for up to 1024 subjects, and only if the stream allows it.

Messages may be replaced during the read. For every subject that exists during the whole read, the result has
one message, which was the subject's last message at some moment of the read. If a message is replaced before its
delivery, the replacement is delivered later, since sequences rise. If it is replaced after its delivery, the
replacement is recognised by the hash of its subject and dropped. At the end, the consumer's pending count is
unreliable. So the read requests the next message after the last delivered one. If this message was stored before the
consumer was created, the consumer has omitted it, and the read starts again.

Source: ADR-8 (watchers read buckets the same way); both servers' behaviour is checked in spark/tests/kv/test_kv.py.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyjs_spark.decode.wire import SEQ_MAX
from pyjs_spark.errors import ApiError, ReadStalled, StreamMissing
from pyjs_spark.nats.client import Client
from pyjs_spark.read import lookup, pull
from pyjs_spark.read.plan import StreamState, state_of
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.subjects import overlaps

# number of requests without a message, after which the state of the stream is checked
EMPTY_BEFORE_A_LOOK = 32
ROUNDS_MAX = 5  # maximum number of passes, if consumers omit messages


def read_latest(client: Client, what: ReadRange, report: Report | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the last message of each subject that `what.subjects` match; each subject occurs once.

    `low`, `high`, `created` and `keeps_all` of the range are ignored. `subject` must be one of its columns. A
    message that was stored during the read may be among the rows. Sequences ascend within one pass of a consumer.

    Raises:
        StreamMissing: the stream does not exist.
        ReadStalled, ServerUnreachable and other SparkErrors: the server makes no progress.
    """
    assert "subject" in what.columns
    assert what.subjects
    whole = replace(what, low=1, high=SEQ_MAX, created="", keeps_all=False)
    seen = Seen()
    for subjects in apart(what.subjects):
        read = LatestRead(client, replace(whole, subjects=subjects), report or Report(), seen)
        yield from _read(client, read, report)


def apart(subjects: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return groups of subjects that do not overlap, since one consumer may not have filters that overlap."""
    groups: list[tuple[str, ...]] = []
    for subject in subjects:
        fits = (group for group in groups if not any(overlaps(subject, other) for other in group))
        group = next(fits, ())
        if group:
            groups.remove(group)
        groups.append((*group, subject))
    return groups


def _read(client: Client, read: LatestRead, report: Report | None) -> Iterator[pa.RecordBatch]:
    what = read.what
    try:
        for _ in range(ROUNDS_MAX):
            yield from read.batches()
            if (last_seq := read.end()) is not None:
                break
        else:
            raise ReadStalled(
                f"stream {what.stream}: {ROUNDS_MAX} consumers ended before the last messages of all subjects came; "
                "look at the server"
            )
    finally:
        read.close()
    rest = replace(what, low=read.last_seq + 1, high=last_seq + 1)
    for batch in pull.read_range(client, rest, report):
        yield from read.unseen(batch)


class LatestRead(pull.PullRead):
    """One read of the last message of each subject."""

    def __init__(self, client: Client, what: ReadRange, report: Report, seen: Seen) -> None:
        super().__init__(client, what, report)
        self.what = what
        self._seen = seen
        # Up to this sequence, the first consumer delivers each subject once. -1: no consumer yet; 0: unknown.
        self._snapshot_seq = -1 if seen.is_empty else 0
        # the stream's last sequence, read when the consumer was created or a little later
        self._created_seq = 0
        self._empty = 0  # number of consecutive requests without a message
        self._empty_at = 0  # the sequence after the last message before these requests
        self.last_seq = 0  # the last sequence that the consumer of this pass delivered

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the deliveries of one consumer after another, until no messages are pending."""
        self.close()
        has_more = True
        while has_more:
            has_more = self._fill()
            self.last_seq = self._decoder.last_seq
            if self._decoder.rows:
                yield from self.unseen(self._maker.make(self._decoder.take()))
                self._heard_at_s = time.monotonic()

    def unseen(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the batch without rows of subjects that were delivered before."""
        is_first = self.last_seq <= self._snapshot_seq
        kept = self._seen.unseen(batch, is_new=is_first)
        if kept.num_rows:
            self._report.rows += kept.num_rows
            yield kept

    def end(self) -> int | None:
        """Return the stream's last sequence if the consumer has delivered all messages, otherwise None."""
        self._snapshot_seq = 0  # from now on, any subject may have been delivered before
        state = self._state()
        if state.last_seq <= self.last_seq:
            return self.last_seq
        following = lookup.next_seq(self._patience, state, self.last_seq + 1, self._what.subjects)
        return state.last_seq if following > self._created_seq else None

    def _open(self) -> bool:
        """Create a consumer, and return False if no subject has a message.

        Raises:
            StreamMissing: the stream does not exist.
        """
        is_first = self._snapshot_seq < 0
        before = self._state()
        made = self._create({"deliver_policy": "last_per_subject"})
        if made is None:
            raise _missing(self._what.stream)
        self._snapshot_seq = before.last_seq if is_first else 0
        self._created_seq = self._state().last_seq
        self._decoder.listen(made.sid, self._what.high, 1)
        return made.pending > 0

    def _is_pending(self) -> bool:
        """Return whether any message is left, after a request that found none.

        Each request makes nats-server (2.15.1) skip at most one message that was removed since the consumer was
        created. So the request is repeated at once, at most as often as there may be removed messages before the
        next existing message.
        """
        at = self._decoder.last_seq + 1
        self._empty = self._empty + 1 if at == self._empty_at else 1
        self._empty_at = at
        if self._empty % EMPTY_BEFORE_A_LOOK:
            return True
        following = lookup.next_seq(self._patience, self._state(), at, self._what.subjects)
        if following > self._created_seq:
            return False  # the consumer has no more messages to deliver
        return self._empty < following - at + EMPTY_BEFORE_A_LOOK or self._has_pending()

    def _has_pending(self) -> bool:
        """Return whether the consumer reports more messages.

        From now on, requests wait for a message.

        Raises:
            Broken: the consumer is gone.
            ReadStalled: messages are pending, and none has arrived within the idle timeout.
        """
        assert self._consumer is not None
        try:
            info = self._client.api(f"CONSUMER.INFO.{self._what.stream}.{self._consumer.name}")
        except ApiError as error:
            if error.err_code in pull.CONSUMER_GONE:
                raise pull.Broken("the consumer is gone") from error
            raise
        if info["num_pending"]:
            self._check_idle(f"{info['num_pending']} are pending")
        self._waits = True
        return bool(info["num_pending"])

    def _is_reached(self) -> bool:
        """Return True, because end() checks whether a consumer without pending messages has omitted a message."""
        return True

    def _state(self) -> StreamState:
        info = self._patience.stream_info(self._what.stream)
        if info is None:
            raise _missing(self._what.stream)
        return state_of(info)


def _missing(stream: str) -> StreamMissing:
    return StreamMissing(f"stream {stream}: there is no such stream (any more)")


class Seen:
    """Hashes of the subjects seen so far, 8 bytes each."""

    def __init__(self) -> None:
        self._hashes = array("q")

    @property
    def is_empty(self) -> bool:
        """Return whether no subject has been seen yet."""
        return not self._hashes

    def unseen(self, batch: pa.RecordBatch, *, is_new: bool) -> pa.RecordBatch:
        """Return the rows whose subjects were not seen before.

        With `is_new`, the caller guarantees that all subjects are new.
        """
        hashes = [hash(subject) for subject in batch.column("subject").to_pylist()]
        if not is_new:
            known = pa.array(np.array(self._hashes))
            came = set(known.filter(pc.is_in(known, value_set=pa.array(hashes, pa.int64()))).to_pylist())
            first = {each: row for row, each in reversed(list(enumerate(hashes))) if each not in came}
            batch, hashes = batch.take(pa.array(sorted(first.values()), pa.int64())), list(first)
        self._hashes.extend(hashes)
        return batch

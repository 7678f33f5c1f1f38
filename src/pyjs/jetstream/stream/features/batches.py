"""Atomic batches: messages staged in memory until the last one commits all of them, or none.

A batch is open from its message 1 to its commit, an error, or the end of its idle time; only then its messages are
checked (batch_checks.py) and stored. Staged bytes are bounded for the server, so a batch can be refused for its size
before its number of messages reaches the limit.

Knows nothing of stores. Source: ADR-50; order of checks and texts probed on nats-server 2.15.1
(tests/conformance/scenarios/atomic).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.jetstream import errcodes
from pyjs.jetstream.config.level import needs_higher_level
from pyjs.jetstream.stream.features.headers import added, value_of, value_or_none, without

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyjs.base.timers import Timer, Timers
    from pyjs.config.options import BatchLimits
    from pyjs.jetstream.errcodes import ApiError

ID, SEQUENCE, COMMIT, LEVEL = (
    b"Nats-Batch-Id",
    b"Nats-Batch-Sequence",
    b"Nats-Batch-Commit",
    b"Nats-Required-Api-Level",
)
ID_SIZE_MAX = 64
STAGED_BYTES_MAX = 64 << 20  # of all open batches of the server
SEQUENCE_DIGITS_MAX = 20
TIMEOUT, LARGE, INCOMPLETE, UNSUPPORTED = "timeout", "large", "incomplete", "unsupported"  # reasons of an end


@dataclass(eq=False, repr=False, slots=True)
class Staged:
    """One message of a batch."""

    subject: bytes
    headers: bytes
    payload: bytes

    @property
    def size(self) -> int:
        """The bytes of subject, headers and payload."""
        return len(self.subject) + len(self.headers) + len(self.payload)


class BatchUsage:
    """The open batches of all streams of the server."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.fast_count = 0  # of fast batches, which hold no messages


@dataclass(eq=False, repr=False, slots=True)
class _Batch:
    deadline_ns: int
    timer: Timer | None = None
    messages: list[Staged] = field(default_factory=list)
    bytes: int = 0


class AtomicBatches:
    """The open batches of one stream."""

    def __init__(
        self, limits: BatchLimits, usage: BatchUsage, timers: Timers, tell: Callable[[bytes, str], None]
    ) -> None:
        self._limits = limits
        self._usage = usage
        self._timers = timers
        self._tell = tell  # called with the id and the reason of each abandoned batch
        self._open: dict[bytes, _Batch] = {}

    def add(self, message: Staged, now_ns: int) -> list[Staged] | None:
        """Stage a message; return all messages of the batch if this one commits it, otherwise None.

        Raises:
            ApiError: the message is refused, and its batch is abandoned.
        """
        batch_id = value_of(message.headers, ID)
        errcodes.ATOMIC_PUBLISH_INVALID_BATCH_ID.raise_if(len(batch_id) > ID_SIZE_MAX)
        digits = value_of(message.headers, SEQUENCE)
        errcodes.ATOMIC_PUBLISH_MISSING_SEQ.raise_if(
            not digits.isdigit() or len(digits) > SEQUENCE_DIGITS_MAX
        )
        seq = int(digits)
        commit = value_or_none(message.headers, COMMIT)
        is_end = commit == b"eob"
        size = seq - is_end
        batch = self._open.get(batch_id)
        if batch is None:
            batch = self._begin(batch_id, seq, size, now_ns)
        if commit not in (None, b"1", b"eob"):
            self._close(batch_id)
            raise errcodes.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT.error()
        if value_of(message.headers, LEVEL):
            if needs_higher_level(message.headers):
                raise self._abandoned(batch_id, UNSUPPORTED, errcodes.REQUIRED_API_LEVEL.error())
            message = Staged(message.subject, without(message.headers, LEVEL), message.payload)
        batch.deadline_ns = now_ns + self._limits.timeout_ns
        if seq != len(batch.messages) + 1 or (seq == 1 and is_end):
            raise self._abandoned(batch_id, INCOMPLETE, errcodes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error())
        if size > self._limits.max_msgs or self._usage.bytes + message.size > STAGED_BYTES_MAX:
            raise self._abandoned(batch_id, LARGE, self._too_large())
        batch.messages.append(message)
        batch.bytes += message.size
        self._usage.bytes += message.size
        return None if commit is None else self._committed(batch_id, batch, is_end)

    def drop_all(self) -> None:
        """Forget every open batch, without advisories."""
        for batch_id in list(self._open):
            self._close(batch_id)

    def _too_large(self) -> ApiError:
        return errcodes.ATOMIC_PUBLISH_TOO_LARGE_BATCH.error(size=self._limits.max_msgs)

    def _begin(self, batch_id: bytes, seq: int, size: int, now_ns: int) -> _Batch:
        if seq != 1:
            if size > self._limits.max_msgs:
                raise self._too_large()
            raise errcodes.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error()
        if (
            len(self._open) >= self._limits.max_inflight_per_stream
            or self._usage.count >= self._limits.max_inflight_total
        ):
            raise errcodes.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.error()
        batch = _Batch(now_ns + self._limits.timeout_ns)
        self._open[batch_id] = batch
        self._usage.count += 1
        self._arm(batch_id, batch)
        return batch

    def _committed(self, batch_id: bytes, batch: _Batch, is_end: bool) -> list[Staged]:
        """Close a complete batch and return its messages; the mark of its end is no message."""
        self._close(batch_id)
        if not is_end:
            return batch.messages
        last = batch.messages[-2]
        return [*batch.messages[:-2], Staged(last.subject, added(last.headers, COMMIT, b"1"), last.payload)]

    def _arm(self, batch_id: bytes, batch: _Batch) -> None:
        batch.timer = self._timers.at(batch.deadline_ns, lambda: self._idle(batch_id, batch), self)

    def _idle(self, batch_id: bytes, batch: _Batch) -> None:
        """Abandon the batch, unless a message has come since its timer was set."""
        assert batch.timer is not None
        if batch.deadline_ns > batch.timer.deadline_ns:
            self._arm(batch_id, batch)
            return
        self._close(batch_id)
        self._tell(batch_id, TIMEOUT)

    def _abandoned(self, batch_id: bytes, reason: str, error: ApiError) -> ApiError:
        self._close(batch_id)
        self._tell(batch_id, reason)
        return error

    def _close(self, batch_id: bytes) -> None:
        batch = self._open.pop(batch_id)
        self._usage.count -= 1
        self._usage.bytes -= batch.bytes
        if batch.timer is not None:
            batch.timer.cancel()

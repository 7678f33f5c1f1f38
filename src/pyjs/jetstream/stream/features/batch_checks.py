"""The checks of an atomic batch when it is committed: each message is checked as if those before it were stored.

If a message fails a check, the batch is refused with the error of the first such message. The messages are stored as
they were published, except for counters, schedules, and TTLs that are too short.

Source: ADR-50; order and error messages probed on nats-server 2.15.1 (tests/conformance/scenarios/atomic).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.jetstream import errcodes
from pyjs.jetstream.stream.features.checks import later_refusal
from pyjs.jetstream.stream.features.counting import increment_error
from pyjs.jetstream.stream.features.headers import value_of
from pyjs.jetstream.stream.features.schedule import with_rollup
from pyjs.jetstream.stream.message_ttl import parse_ttl_ns, with_least_ttl
from pyjs.jetstream.stream.publish_errors import rollup_error

if TYPE_CHECKING:
    from typing import Protocol

    from pyjs.jetstream.config.stream import StreamConfig

    class State(Protocol):
        """The part of a stream that the checks read."""

        config: StreamConfig

        def is_known_id(self, msg_id: bytes) -> bool:
            """Return whether the duplicate window has the id `msg_id`."""

        def last_seq_of(self, subject: bytes) -> int:
            """Return the last sequence of a subject, which may have wildcards, or 0 if there is none."""

        def wall_ns(self) -> int:
            """Return the wall time in ns."""

        def last_headers(self, subject: bytes) -> bytes | None:
            """Return the header block of the last message of a subject, or None if there is none."""

        def totals(self) -> tuple[int, int, int]:
            """Return the last sequence, the number of messages and the number of bytes of the stream."""

        def count_of(self, subject: bytes) -> int:
            """Return the number of messages of a subject."""

        def stored_size(self, subject: bytes, headers: bytes, payload: bytes) -> int:
            """Return the bytes that a message counts towards limits when it is stored."""

        def add_up_after(
            self, headers: bytes, last: tuple[bytes, bytes] | None, subject: bytes
        ) -> tuple[bytes, bytes, bytes]:
            """Add the increment in `headers` to the counter of the subject; return headers, payload and new value.

            `last` is the headers and the payload of the counter's preceding message; None: use the last stored one.
            """


HEADERS_SIZE_MAX = 65535
_LAST_SEQ, _SUBJECT_SEQ = b"Nats-Expected-Last-Sequence", b"Nats-Expected-Last-Subject-Sequence"
_SEQ_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"
_LAST_ID = b"Nats-Expected-Last-Msg-Id"


class Staged(NamedTuple):
    """One message of a batch."""

    subject: bytes
    headers: bytes
    payload: bytes


class BatchChecks:
    """The checks of the messages of one batch, in their order."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._config = state.config
        self._last_seq, self._msgs, self._bytes = state.totals()
        self._ids: set[bytes] = set()
        self._counts: dict[bytes, int] = {}  # by subject: number of messages in this batch
        self._expected: dict[bytes, int] = {}  # subject of a condition -> its last sequence before the batch
        # in a stream with schedules: subject -> headers of its last message in this batch
        self._last: dict[bytes, bytes] = {}
        self._sums: dict[
            bytes, tuple[bytes, bytes]
        ] = {}  # subject of a counter -> (headers, payload) of its last message in this batch

    def checked(self, message: Staged) -> Staged:
        """Return the next message as it will be stored.

        Raises:
            ApiError: the message, and so the batch, is refused.
        """
        if value_of(message.headers, _LAST_ID):
            raise errcodes.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH.error(header=_LAST_ID.decode())
        return self.accepted(message)

    def plain(self, message: Staged) -> Staged:
        """Check a message whose headers need only a check of their size, and return it. Raises ApiError."""
        errcodes.STREAM_HEADER_EXCEEDS_MAXIMUM.raise_if(len(message.headers) > HEADERS_SIZE_MAX)
        self._count(message)
        self._last_seq += 1
        return message

    def accepted(self, message: Staged) -> Staged:
        """Return the message as `checked` does, but ignore Nats-Expected-Last-Msg-Id. Raises ApiError."""
        headers, subject = message.headers, message.subject
        self._check_alone(headers, len(message.payload))
        if self._config.allow_msg_counter:
            headers, payload, _ = self._state.add_up_after(headers, self._sums.get(subject), subject)
            self._sums[subject] = headers, payload
            message = Staged(subject, headers, payload)
            size_max = self._config.max_msg_size
            errcodes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.raise_if(0 <= size_max < len(headers) + len(payload))
        self._check_sequences(headers, subject)
        if error := later_refusal(2, self._config, headers, len(message.payload), subject, self):
            raise error
        if self._config.allow_msg_schedules:
            headers = with_rollup(headers)
            message = Staged(subject, headers, message.payload)
            self._last[subject] = headers
        self._check_rollup(headers, subject)
        self._count(message)
        self._last_seq += 1
        return self._with_least_ttl(message)

    def wall_ns(self) -> int:
        """Return the wall time in ns."""
        return self._state.wall_ns()

    def last_headers(self, subject: bytes) -> bytes | None:
        """Return the headers of the last message of a subject, which is in this batch or stored, or None."""
        return self._last[subject] if subject in self._last else self._state.last_headers(subject)

    def _check_alone(self, headers: bytes, payload_size: int) -> None:
        """Check the message id, and the headers whose validity does not depend on other messages. Raises ApiError."""
        errcodes.STREAM_HEADER_EXCEEDS_MAXIMUM.raise_if(len(headers) > HEADERS_SIZE_MAX)
        if error := increment_error(headers, payload_size, self._config.allow_msg_counter):
            raise error
        wanted = value_of(headers, b"Nats-Expected-Stream")
        errcodes.STREAM_NOT_MATCH.raise_if(wanted and wanted != self._config.name.encode())
        ttl = value_of(headers, b"Nats-TTL")
        if ttl and parse_ttl_ns(ttl) != 0:
            errcodes.MESSAGE_TTL_DISABLED.raise_if(not self._config.allow_msg_ttl)
            errcodes.MESSAGE_TTL_INVALID.raise_if(parse_ttl_ns(ttl) is None)
        msg_id = value_of(headers, b"Nats-Msg-Id")
        if msg_id and (msg_id in self._ids or self._state.is_known_id(msg_id)):
            raise errcodes.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE.error()
        self._ids.add(msg_id)
        errcodes.MESSAGE_SOURCE_HDR_NOT_ALLOWED.raise_if(value_of(headers, b"Nats-Stream-Source"))

    def _check_sequences(self, headers: bytes, subject: bytes) -> None:
        last = value_of(headers, _LAST_SEQ)
        if last:
            errcodes.STREAM_WRONG_LAST_SEQUENCE.raise_if(_number(last) != self._last_seq, seq=self._last_seq)
            errcodes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.raise_if(self._counts)
        wanted, other = value_of(headers, _SUBJECT_SEQ), value_of(headers, _SEQ_SUBJECT)
        if not wanted:
            errcodes.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID.raise_if(other)
            return
        subject = other or subject
        errcodes.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.raise_if(subject in self._counts)
        if subject not in self._expected:
            self._expected[subject] = self._state.last_seq_of(subject)
        found = self._expected[subject]
        errcodes.STREAM_WRONG_LAST_SEQUENCE.raise_if(_number(wanted) != found, seq=found)

    def _check_rollup(self, headers: bytes, subject: bytes) -> None:
        rollup = value_of(headers, b"Nats-Rollup").lower()
        if not rollup:
            return
        if error := rollup_error(rollup, self._config.allow_rollup_hdrs and not self._config.deny_purge):
            raise error
        if rollup == b"sub":
            errcodes.STREAM_ROLLUP_FAILED.raise_if(subject in self._counts, err="batch rollup sub invalid")
        else:
            errcodes.STREAM_ROLLUP_FAILED.raise_if(self._counts, err="batch rollup all invalid")

    def _count(self, message: Staged) -> None:
        """Count the message, and check the limits that apply with discard policy new. Raises ApiError."""
        config, subject = self._config, message.subject
        self._counts[subject] = self._counts.get(subject, 0) + 1
        self._msgs += 1
        self._bytes += self._state.stored_size(subject, message.headers, message.payload)
        if config.discard != "new":
            return
        reached = ""
        if 0 < config.max_msgs < self._msgs:
            reached = "maximum messages exceeded"
        elif 0 < config.max_bytes < self._bytes:
            reached = "maximum bytes exceeded"
        elif config.discard_new_per_subject and not value_of(message.headers, b"Nats-Rollup"):
            count = self._state.count_of(subject) + self._counts[subject]
            reached = "maximum messages per subject exceeded" if count > config.max_msgs_per_subject else ""
        errcodes.STREAM_STORE_FAILED.raise_if(reached, err=reached)

    def _with_least_ttl(self, message: Staged) -> Staged:
        least_ns = self._config.subject_delete_marker_ttl_ns
        if (
            not least_ns
            or self._config.max_msgs_per_subject == 1
            or not value_of(message.headers, b"Nats-TTL")
        ):
            return message
        raised = with_least_ttl(message.headers, least_ns)
        return message if raised is None else Staged(message.subject, raised, message.payload)


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= 18 else -1

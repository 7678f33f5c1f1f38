"""Dead letters: how a letter is made from a message, and how a replay makes the message from the letter.

This module works only on bytes. The headers of a message keep their order and their values. Header names that begin
with `Nats-` or `Dead-Letter-` get a prefix. Without it, these headers would act on the letter, or be mistaken for
headers of the letter itself. A replay removes the prefix.

Grammar of the headers that are added:

    Dead-Letter-Reason: max_deliver | term | term: <text of the client>
    Dead-Letter-Stream, -Consumer, -Subject, -Sequence, -Deliveries, -Time
    Nats-Msg-Id: dead-letter:<stream>:<created>:<consumer>:<created>:<sequence>:<time of the message>    (ns)

The creation times in the id distinguish incarnations of the stream and of the consumer. The time of the message
distinguishes it from an earlier message that had the same sequence and was lost.

Source: docs/dead-letters.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.gotext import time_text
from pyjs.subjects.tokens import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyjs.store.store import StoredMessage

REASON_SIZE_MAX = 1024  # bytes of the text of a client
MAX_DELIVER = b"max_deliver"
_FIRST = b"NATS/1.0"
_END = b"\r\n"
_OWN = b"Dead-Letter-"
_ORIGINAL = b"Dead-Letter-Original-"
_RENAMED = (b"nats-", b"dead-letter-")  # in lower case
# Headers that a replay does not restore, since they act on the publish or on other messages; in lower case.
_NOT_RESTORED = (
    b"nats-expected-", b"nats-rollup", b"nats-batch-", b"nats-schedule", b"nats-incr", b"nats-msg-id",
    b"nats-trace-", b"nats-stream-source", b"nats-required-api-level",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Origin:
    """A consumer that gives up messages, and its stream."""

    stream: str
    stream_created_ns: int
    consumer: str
    consumer_created_ns: int

    def id_of(self, message: StoredMessage) -> bytes:
        """Return the message id of the letter for `message`.

        The id is the same in each attempt to store the letter.
        """
        stream = f"{self.stream}:{self.stream_created_ns}"
        consumer = f"{self.consumer}:{self.consumer_created_ns}"
        return f"dead-letter:{stream}:{consumer}:{message.seq}:{message.ts}".encode()

    def subject_of(self, prefix: str, message: StoredMessage) -> bytes:
        """Return the subject of the letter for `message`.

        It consists of `prefix`, the names of stream and consumer, and the sequence and the subject of the message.
        """
        return f"{prefix}.{self.stream}.{self.consumer}.{message.seq}.".encode() + message.subject

    def headers_of(
        self, message: StoredMessage, reason: bytes, deliveries: int, to: str, last_seq: int
    ) -> bytes:
        """Return the header block of the letter for `message`, which is to be stored in the stream `to`.

        With these headers, that stream stores the letter only if `last_seq` is the last sequence of the letter's
        subject.
        """
        lines = [
            _FIRST,
            *(_renamed(line) for line in _lines(message.headers)),
            b"Nats-Msg-Id: " + self.id_of(message),
            f"Nats-Expected-Stream: {to}".encode(),
            b"Nats-Expected-Last-Subject-Sequence: %d" % last_seq,
            b"Dead-Letter-Reason: " + reason,
            f"Dead-Letter-Stream: {self.stream}".encode(),
            f"Dead-Letter-Consumer: {self.consumer}".encode(),
            b"Dead-Letter-Subject: " + message.subject,
            b"Dead-Letter-Sequence: %d" % message.seq,
            b"Dead-Letter-Deliveries: %d" % deliveries,
            f"Dead-Letter-Time: {time_text(message.ts)}".encode(),
        ]
        return _END.join([*lines, b"", b""])


@dataclass(frozen=True, slots=True)
class Letter:
    """The fields of a stored letter that a replay uses."""

    stream: bytes
    consumer: bytes
    subject: bytes
    reason: bytes
    headers: bytes  # of the original message, without those that a replay does not restore


def read_letter(headers: bytes) -> Letter | None:
    """Return the fields in the header block of a letter, or None if the block is not that of a letter."""
    own: dict[bytes, bytes] = {}
    original = []
    for line in _lines(headers):
        name, value = _parts(line)
        if name.startswith(_ORIGINAL):
            restored = line[len(_ORIGINAL) :]
            if not restored.lower().startswith(_NOT_RESTORED):
                original.append(restored)
        elif name.startswith(_OWN):
            own.setdefault(name, value)
        elif not name.lower().startswith(_RENAMED):
            original.append(line)
    stream, subject = own.get(b"Dead-Letter-Stream", b""), own.get(b"Dead-Letter-Subject", b"")
    if not stream or not is_valid_literal(subject):
        return None
    block = _END.join([*original, b""]) if original else b""
    consumer, reason = own.get(b"Dead-Letter-Consumer", b""), own.get(b"Dead-Letter-Reason", b"")
    return Letter(stream, consumer, subject, reason, block)


def replay_headers(letter: Letter, letters: str, created_ns: int, seq: int) -> bytes:
    """Return the header block for the replay of a letter.

    The letter has the sequence `seq` in the stream `letters`, which was created at `created_ns`.
    """
    name = letters.encode()
    return b"%b\r\n%bNats-Msg-Id: dead-letter-replay:%b:%d:%d\r\nNats-Expected-Stream: %b\r\n%b\r\n\r\n" % (
        _FIRST,
        letter.headers,
        name,
        created_ns,
        seq,
        letter.stream,
        b"Dead-Letter-Replay: %b %d %b" % (name, seq, letter.consumer),
    )


def reason_of_term(text: str) -> bytes:
    """Return the reason text of a client's +TERM as one line of UTF-8, cut to at most REASON_SIZE_MAX bytes."""
    line = " ".join(text.split()).encode("utf-8", "replace")[:REASON_SIZE_MAX]
    return line.decode("utf-8", "ignore").encode()


def reason_line(term: bytes | None) -> bytes:
    """Return the value of the header Dead-Letter-Reason.

    `term` is the reason text of a client's +TERM, or None if the message was given up because of max_deliver.
    """
    if term is None:
        return MAX_DELIVER
    return b"term: " + term if term else b"term"


def has_id(headers: bytes, message_id: bytes) -> bool:
    """Return whether a header block has the header Nats-Msg-Id with the value `message_id`."""
    return any(line == b"Nats-Msg-Id: " + message_id for line in _lines(headers))


def _renamed(line: bytes) -> bytes:
    return _ORIGINAL + line if line.lower().startswith(_RENAMED) else line


def _lines(headers: bytes) -> Iterator[bytes]:
    """Yield the lines of a header block, without its first line and without empty lines."""
    return (line for line in headers.split(_END)[1:] if line)


def _parts(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.strip(), value.strip()

"""The messages that two replicas exchange while one of them copies from the other.

A batch begins like those of the consensus (consensus/batch.py), with other kinds. All numbers are little-endian.

    0       1     version, 1
    1       1     kind, see below
    2       6     0
    8       8     group
    16      4     number of the question
    20      …     the body

| kind | body |
|---|---|
| 16 ask | have u64: send the messages after this sequence |
| 17 part, 18 end | place u32, count u32, upto u64, checksum u64, data |
| 19 not now, 20 gone, 21 behind | |
| 22 ask these | seq u64 of each message that is damaged in the asking replica, ascending |
| 23 ask ids | the same, for removed messages whose ids still count as duplicates |

The answer to kind 22 is a `part` with the requested messages that exist and are undamaged. The answer to kind 23 is a
`part` with messages that have no payload, and only the id in their headers. Both are complete up to `upto`.

An answer has `count` pieces of one kind, each with its place; it contains the messages up to the sequence `upto`. The
checksum is XXH3 (64 bits) of everything before it and of the data. The data of all pieces of a `part` is a list of
records; that of an `end` is the size of a state (u32), the state, and the last records. An `end` is consistent: with
it, the copy equals a replica that has just applied the entry `index` of the state.

    record = size u32  0 u16  subject_len u16  header_len u32  seq u64  ts i64  subject  headers  payload

The state is a msgpack list, see State.
"""

from __future__ import annotations

from array import array
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgpack
from xxhash import xxh3_64

from pyjs.store.clock_steps import ClockSteps
from pyjs.store.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = 1
PIECE_SIZE = 1 << 20  # bytes of data in one batch
PIECES_MAX = 1 << 12
SEQS_MAX = 512  # maximum number of sequences in one question
_HEADER = Struct("<BBHIQI")
_ASK = Struct("<Q")
_PLACE = Struct("<IIQ")
_CHECKSUM = Struct("<Q")
_HEAD_SIZE = _HEADER.size + _PLACE.size
_RECORD = Struct("<IHHIQq")
_SIZE = Struct("<I")
_SEQ_MAX = (1 << 64) - 2
# "I have everything": a replica that is neither behind nor copying answers with a part without records.
ALL = _SEQ_MAX
# "Are you undamaged?": an undamaged replica answers with a part without records, any other one with `behind`.
WHOLE = _SEQ_MAX - 1


class Kind(IntEnum):
    """The kind of a batch, which is its second byte."""

    ASK = 16
    PART = 17
    END = 18
    NOT_NOW = 19
    GONE = 20
    BEHIND = 21
    ASK_THESE = 22
    ASK_IDS = 23


FIRST_KIND = bytes([Kind.ASK])  # a batch of a copy, not of the consensus, if its second byte is not smaller


class BadCopy(ValueError):
    """Raised for a damaged batch, of which no part may be used. The exception's message names the invalid field."""


class Ask(NamedTuple):
    """A request for the messages after sequence `have`."""

    group: int
    number: int
    have: int


class AskThese(NamedTuple):
    """A request for the messages with the sequences `seqs`, or for their message ids."""

    group: int
    number: int
    seqs: tuple[int, ...]
    ids: bool  # True: the messages were removed, and only their ids are requested


class Piece(NamedTuple):
    """A piece of an answer. An answer of a kind other than PART and END is one piece without data."""

    kind: Kind
    group: int
    number: int
    place: int
    pieces: int
    upto: int
    data: bytes


@dataclass(frozen=True, slots=True)
class State:
    """The state of the answering replica at the end of a copy, without the messages."""

    index: int  # index of the last applied entry
    term: int
    time_ns: int
    last_id: bytes
    ids_from: int  # time in ns; earlier ids no longer count
    steps: bytes  # steps of the clock that matter for the ids, see ClockSteps.encode
    last_seq: int
    first_seq: int
    msgs: int
    size: int  # total bytes of the messages
    config: dict[str, Any]
    deleted: bytes  # sequences between the first and the last one without a message, u64 each
    kept: bytes  # sequences of removed messages whose ids still count, u64 each, ascending
    # sequences of messages that the answering replica has lost, u64 each; the copying replica does not remove them
    lost: bytes
    ids: bytes  # of a memory stream: a dump of its message ids, see Dedupe.dump
    ids_count: int
    consumers: bytes  # a dump of the consumers, see ReplicatedConsumers.dump

    def encode(self) -> bytes:
        """Return the state as a msgpack list."""
        packed: bytes = msgpack.packb(astuple(self))
        return packed


Batch: TypeAlias = Ask | AskThese | Piece


def ask(group: int, number: int, have: int) -> list[bytes]:
    """Return a batch that requests the messages after sequence `have`; `number` identifies the question."""
    return [_HEADER.pack(VERSION, Kind.ASK, 0, 0, group, number), _ASK.pack(have)]


def ask_these(group: int, number: int, seqs: Sequence[int], *, ids: bool = False) -> list[bytes]:
    """Return a batch that requests the messages `seqs`, or only their ids; `number` identifies the question.

    `seqs` has at most SEQS_MAX sequences, in ascending order.
    """
    kind = Kind.ASK_IDS if ids else Kind.ASK_THESE
    return [_HEADER.pack(VERSION, kind, 0, 0, group, number), array("Q", seqs).tobytes()]


def refusal(kind: Kind, group: int, number: int) -> list[bytes]:
    """Return the batch that answers the question `number` without messages; `kind` is NOT_NOW, BEHIND or GONE."""
    return [_HEADER.pack(VERSION, kind, 0, 0, group, number)]


def answer(group: int, number: int, upto: int, records: bytes, state: State | None) -> list[list[bytes]]:
    """Return the batches that answer the question `number`. If `state` is not None, the answer ends the copy."""
    kind, data = Kind.PART, records
    if state is not None:
        packed = state.encode()
        kind, data = Kind.END, b"".join((_SIZE.pack(len(packed)), packed, records))
    count = max(1, -(-len(data) // PIECE_SIZE))
    batches = []
    header = _HEADER.pack(VERSION, kind, 0, 0, group, number)
    for place in range(count):
        head = header + _PLACE.pack(place, count, upto)
        part = data[place * PIECE_SIZE : (place + 1) * PIECE_SIZE]
        batches.append([head, _CHECKSUM.pack(_checksum(head, part)), part])
    return batches


def is_end(batches: list[list[bytes]]) -> bool:
    """Return whether the batches of an answer end a copy."""
    return bool(batches) and batches[0][0][1] == Kind.END


def _checksum(head: bytes, part: bytes) -> int:
    digest = xxh3_64(head)
    digest.update(part)
    return digest.intdigest()


def read(data: bytes) -> Batch:
    """Return the content of a batch.

    Raises:
        BadCopy: the batch is damaged; no part of it may be used.
    """
    if len(data) < _HEADER.size:
        raise BadCopy(f"size: a batch of {len(data)} bytes")
    version, kind, spare, more, group, number = _HEADER.unpack_from(data)
    if version != VERSION or spare or more:
        raise BadCopy(f"version: {version}, {VERSION} is known")
    if kind not in tuple(Kind):
        raise BadCopy(f"kind: {kind} is not known")
    body = data[_HEADER.size :]
    if kind in (Kind.ASK_THESE, Kind.ASK_IDS):
        return AskThese(group, number, _asked(body), ids=kind == Kind.ASK_IDS)
    if kind not in (Kind.PART, Kind.END):
        if len(body) != (_ASK.size if kind == Kind.ASK else 0):
            raise BadCopy(f"size: {len(data)} bytes in a batch of kind {kind}")
        if kind == Kind.ASK:
            return Ask(group, number, *_ASK.unpack(body))
        return Piece(Kind(kind), group, number, 0, 1, 0, b"")
    return _piece(data, Kind(kind), group, number)


def _asked(body: bytes) -> tuple[int, ...]:
    """Return the sequences in the body of a request for single messages. Raises BadCopy."""
    if len(body) % 8 or not 0 < len(body) <= 8 * SEQS_MAX:
        raise BadCopy(f"size: {len(body)} bytes of sequences")
    seqs = tuple(sequences(body))
    if seqs[0] == 0 or seqs[-1] > _SEQ_MAX or any(a >= b for a, b in pairwise(seqs)):
        raise BadCopy("sequences: they do not ascend")
    return seqs


def _piece(data: bytes, kind: Kind, group: int, number: int) -> Piece:
    """Return the piece of an answer that a batch contains. Raises BadCopy."""
    begin = _HEAD_SIZE + _CHECKSUM.size
    if len(data) < begin:
        raise BadCopy(f"size: {len(data)} bytes in a batch of kind {kind}")
    place, count, upto = _PLACE.unpack_from(data, _HEADER.size)
    if not place < count <= PIECES_MAX:
        raise BadCopy(f"place: {place} of {count} pieces")
    body = data[begin:]
    if _CHECKSUM.unpack_from(data, _HEAD_SIZE)[0] != _checksum(data[:_HEAD_SIZE], body):
        raise BadCopy(f"checksum: of {len(body)} bytes of data")
    return Piece(kind, group, number, place, count, upto, body)


# -- records and state ------------------------------------------------------------------------------------------


def encode_record(message: StoredMessage) -> bytes:
    """Return a message as a record."""
    subject, headers, payload = message.subject, message.headers, message.payload
    size = _RECORD.size + len(subject) + len(headers) + len(payload)
    head = _RECORD.pack(size, 0, len(subject), len(headers), message.seq, message.ts)
    return b"".join((head, subject, headers, payload))


def records_of(data: bytes) -> Iterator[StoredMessage]:
    """Yield the messages in a list of records.

    Raises:
        BadCopy: the next record is invalid, or its sequence is not higher than that of the previous record.
    """
    at = last = 0
    while at < len(data):
        if len(data) - at < _RECORD.size:
            raise BadCopy(f"record: {len(data) - at} bytes")
        size, spare, subject_len, header_len, seq, ts = _RECORD.unpack_from(data, at)
        headers_at = at + _RECORD.size + subject_len
        payload_at, end = headers_at + header_len, at + size
        if not payload_at <= end <= len(data) or not subject_len or spare:
            raise BadCopy(f"record: sizes {size}, {subject_len} and {header_len} of {len(data) - at} bytes")
        if not last < seq <= _SEQ_MAX:
            raise BadCopy(f"record: sequence {seq} after {last}")
        subject, headers = data[at + _RECORD.size : headers_at], data[headers_at:payload_at]
        yield StoredMessage(seq, ts, subject, headers, data[payload_at:end])
        at, last = end, seq


def end_of(data: bytes) -> tuple[State, bytes]:
    """Return the state and the records in the data of an answer of kind END.

    Raises:
        BadCopy: the data does not begin with a valid state.
    """
    size = _SIZE.unpack_from(data)[0] if len(data) >= _SIZE.size else len(data)
    if size > len(data) - _SIZE.size:
        raise BadCopy(f"state: {size} of {len(data)} bytes")
    try:
        values = msgpack.unpackb(data[_SIZE.size : _SIZE.size + size])
        state = State(*values)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadCopy(f"state: {error}") from None
    names = [each.name for each in fields(State) if not _is_kind(getattr(state, each.name), str(each.type))]
    if names or any(len(each) % 8 for each in (state.deleted, state.kept, state.lost)):
        raise BadCopy(f"state: {names or ['deleted']} has another kind")
    try:
        ClockSteps().load(state.steps, state.time_ns)
    except (ValueError, OverflowError) as error:
        raise BadCopy(f"state: {error}") from None
    return state, data[_SIZE.size + size :]


def records_in(kind: Kind, upto: int, data: bytes) -> bytes:
    """Return the records in the data of an answer.

    Raises:
        BadCopy: `kind` is END, and the data does not begin with a valid state.
    """
    return end_of(data)[1] if kind is Kind.END else data


def _is_kind(value: object, kind: str) -> bool:
    if kind == "int":
        return isinstance(value, int) and 0 <= value <= (1 << 64) - 1
    return isinstance(value, bytes if kind == "bytes" else dict)


def sequences(packed: bytes) -> memoryview[int]:
    """Return packed sequences (u64 each) as a view of integers on the same memory."""
    return memoryview(packed).cast("Q")

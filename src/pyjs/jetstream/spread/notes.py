"""Notes: the messages between the workers of a server about their streams.

    note = "S", msgpack list: kind u8, the fields of its kind

Notes from one worker to another arrive in order, or their connection is lost. After it is connected again, a worker
reports all its streams. A `Passed` note with `is_first` is sent on the connection that carries messages. All other
notes are sent on a separate connection. Notes that do not begin with "S" are those of jetstream/member.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from pyjs.jetstream.cluster.assignments import StoredConfig, take_config
from pyjs.jetstream.cluster.fields import Row, pack, unpack

if TYPE_CHECKING:
    from typing import Any, Self

HEAD = b"S"
NOTE_SIZE_MAX = 128 << 20  # bytes
WORKER_MAX = 64
ROWS_MAX = 1 << 24


class Kind(IntEnum):
    """The kinds of notes, with their numbers on the wire."""

    HOLDINGS = 1
    PASSED = 2
    SETTLED = 3
    STREAMS = 4
    USED = 5
    TURN = 6


class Streams(IntEnum):
    """An event that concerns all streams of a worker."""

    OPENED = 1  # it has opened them while it was connected, and asks for the streams of the others
    CLOSED = 2  # it stops, and has sent their last messages


@dataclass(frozen=True, slots=True)
class Holding:
    """A stream of one worker, as it is reported to the other workers."""

    account: str
    stored: StoredConfig
    created_ns: int

    def row(self) -> list[Any]:
        """Return the fields of the stream, in their order on the wire."""
        return [self.account, self.created_ns, self.stored.values]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the stream that is packed in `row`, or raise BadRow if a field is missing or invalid."""
        account, created_ns = row.text("account"), row.signed("created")
        stored = take_config(row)
        row.end()
        return cls(account, stored, created_ns)


@dataclass(frozen=True, slots=True)
class Holdings:
    """The streams of a worker: all of them (`is_whole`), or those that are new, changed or removed."""

    worker: int
    is_whole: bool
    streams: tuple[Holding, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()  # account and name

    def fields(self) -> list[Any]:
        """Return the fields of the note, in their order on the wire."""
        rows, gone = [each.row() for each in self.streams], [list(each) for each in self.gone]
        return [self.worker, self.is_whole, rows, gone]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`, or raise BadRow if a field is missing or invalid."""
        worker, is_whole = row.number("worker", 1, WORKER_MAX), row.flag("is_whole")
        streams = tuple(Holding.take(each) for each in row.rows("streams", ROWS_MAX))
        gone = tuple((each.text("account"), each.text("name")) for each in row.rows("gone", ROWS_MAX))
        return cls(worker, is_whole, streams, gone)


@dataclass(frozen=True, slots=True)
class Passed:
    """A client request that one worker passes on to another one.

    If `number` is not 0, the first worker has sent the note, and the receiver sends a `Settled` with this number when
    it has handled the request. If `is_first` is True, the sender is the worker of the client, and the note arrives
    after the client's earlier messages.
    """

    number: int
    is_first: bool
    account: str
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    client: dict[str, Any]  # fields for advisories; empty: the server itself

    def fields(self) -> list[Any]:
        """Return the fields of the note, in their order on the wire."""
        message = [self.subject, self.reply, self.headers, self.payload]
        return [self.number, self.is_first, self.account, *message, self.client]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`, or raise BadRow if a field is missing or invalid."""
        number, is_first, account = row.number("number"), row.flag("is_first"), row.text("account")
        subject, reply = row.data("subject", NOTE_SIZE_MAX), row.data("reply", NOTE_SIZE_MAX)
        headers, payload = row.data("headers", NOTE_SIZE_MAX), row.data("payload", NOTE_SIZE_MAX)
        return cls(number, is_first, account, subject, reply, headers, payload, row.values("client"))


@dataclass(frozen=True, slots=True)
class Settled:
    """A worker's report about a request that was passed on to it.

    `is_answered` is False if the worker does not know the account of the request.
    """

    number: int
    is_answered: bool = True

    def fields(self) -> list[Any]:
        """Return the fields of the note, in their order on the wire."""
        return [self.number, self.is_answered]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`, or raise BadRow if a field is missing or invalid."""
        return cls(row.number("number"), row.flag("is_answered"))


class Stage(IntEnum):
    """The stages of a worker's turn to change the streams of an account by itself."""

    WANTED = 1
    GIVEN = 2  # by the first worker
    OVER = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """A note about a worker's turn to add a restored stream.

    The worker asks the first worker for a turn, the first worker grants it, and the worker reports that it is over.
    """

    number: int
    account: str
    stage: Stage

    def fields(self) -> list[Any]:
        """Return the fields of the note, in their order on the wire."""
        return [self.number, self.account, int(self.stage)]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`, or raise BadRow if a field is missing or invalid."""
        number, account = row.number("number"), row.text("account")
        return cls(number, account, Stage(row.number("stage", Stage.WANTED, Stage.OVER)))


@dataclass(frozen=True, slots=True)
class Did:
    """A note in which a worker reports that it has opened or closed all its streams."""

    streams: Streams

    def fields(self) -> list[Any]:
        """Return the fields of the note, in their order on the wire."""
        return [int(self.streams)]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`, or raise BadRow if a field is missing or invalid."""
        return cls(Streams(row.number("streams", Streams.OPENED, Streams.CLOSED)))


@dataclass(frozen=True, slots=True)
class Used:
    """The bytes that the streams of one worker use, in memory and in files."""

    memory: int
    storage: int

    def fields(self) -> list[Any]:
        """Return the fields of the note, in their order on the wire."""
        return [self.memory, self.storage]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`, or raise BadRow if a field is missing or invalid."""
        return cls(row.signed("memory"), row.signed("storage"))


Note: TypeAlias = Holdings | Passed | Settled | Did | Turn | Used
_KINDS: dict[type, Kind] = {
    Holdings: Kind.HOLDINGS,
    Passed: Kind.PASSED,
    Settled: Kind.SETTLED,
    Did: Kind.STREAMS,
    Turn: Kind.TURN,
    Used: Kind.USED,
}
_TYPES: dict[int, type[Note]] = {kind: made for made, kind in _KINDS.items()}


def encode(note: Note) -> bytes:
    """Return a note as bytes: HEAD, and a msgpack list of its kind and its fields."""
    return HEAD + pack([int(_KINDS[type(note)]), *note.fields()])


def decode(data: bytes) -> Note:
    """Return the note in `data`, which must begin with HEAD.

    Raises:
        BadRow: the note is damaged, or its kind is unknown.
    """
    row = unpack(data[len(HEAD) :], "a note of another worker", NOTE_SIZE_MAX)
    made = _TYPES.get(kind := row.number("kind"))
    if made is None:
        raise row.wrong("kind", kind, "a known kind")
    note = made.take(row)
    row.end()
    return note

"""Notes: the messages between the workers of a server about their streams.

    note = "S", msgpack list: kind u8, the fields of its kind

Notes from one worker to another arrive in order, or their connection is lost; a worker that reconnects sends all its
streams. Notes that do not begin with "S" are those of jetstream/member.
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
    """The kinds of notes."""

    HOLDINGS = 1
    PASSED = 2
    SETTLED = 3
    STREAMS = 4
    USED = 5
    CLAIM = 6
    CLAIMED = 7
    TURN = 8


class Streams(IntEnum):
    """An event that concerns all streams of a worker."""

    OPENED = 1  # it has opened them while it was connected, and asks for the streams of the others
    CLOSED = 2  # it stops, and has sent their last messages


@dataclass(frozen=True, slots=True)
class Holding:
    """A stream of one worker."""

    account: str
    stored: StoredConfig
    created_ns: int

    def row(self) -> list[Any]:
        """Return the values to pack."""
        return [self.account, self.created_ns, self.stored.values]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the stream in a row. Raises BadRow."""
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
        """Return the values to pack."""
        rows, gone = [each.row() for each in self.streams], [list(each) for each in self.gone]
        return [self.worker, self.is_whole, rows, gone]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        worker, is_whole = row.number("worker", 1, WORKER_MAX), row.flag("is_whole")
        streams = tuple(Holding.take(each) for each in row.rows("streams", ROWS_MAX))
        gone = tuple((each.text("account"), each.text("name")) for each in row.rows("gone", ROWS_MAX))
        return cls(worker, is_whole, streams, gone)


@dataclass(frozen=True, slots=True)
class Passed:
    """A client request that the first worker passes on; with a `number`, the answer must be followed by `Settled`."""

    number: int
    account: str
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    client: dict[str, Any]  # fields for advisories; empty: the server itself

    def fields(self) -> list[Any]:
        """Return the values to pack."""
        message = [self.subject, self.reply, self.headers, self.payload]
        return [self.number, self.account, *message, self.client]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        number, account = row.number("number"), row.text("account")
        subject, reply = row.data("subject", NOTE_SIZE_MAX), row.data("reply", NOTE_SIZE_MAX)
        headers, payload = row.data("headers", NOTE_SIZE_MAX), row.data("payload", NOTE_SIZE_MAX)
        return cls(number, account, subject, reply, headers, payload, row.values("client"))


@dataclass(frozen=True, slots=True)
class Settled:
    """A note from a worker that it has answered a request passed on to it, or does not know the account."""

    number: int
    is_answered: bool = True

    def fields(self) -> list[Any]:
        """Return the values to pack."""
        return [self.number, self.is_answered]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        return cls(row.number("number"), row.flag("is_answered"))


class Stage(IntEnum):
    """The stages of a worker's turn to change the streams of an account by itself."""

    WANTED = 1
    GIVEN = 2  # by the first worker
    OVER = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """A note about a worker's turn to add a restored stream.

    The worker asks the first worker for a turn, the first worker gives the turn, and the worker reports its end.
    """

    number: int
    account: str
    stage: Stage

    def fields(self) -> list[Any]:
        """Return the values to pack."""
        return [self.number, self.account, int(self.stage)]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        number, account = row.number("number"), row.text("account")
        return cls(number, account, Stage(row.number("stage", Stage.WANTED, Stage.OVER)))


@dataclass(frozen=True, slots=True)
class Claim:
    """A question from the first worker: has the other worker answered this request? If not, it must not do so."""

    number: int
    subject: bytes
    reply: bytes

    def fields(self) -> list[Any]:
        """Return the values to pack."""
        return [self.number, self.subject, self.reply]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        return cls(row.number("number"), row.data("subject", NOTE_SIZE_MAX), row.data("reply", NOTE_SIZE_MAX))


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a `Claim`: whether the worker has answered the request."""

    number: int
    is_taken: bool

    def fields(self) -> list[Any]:
        """Return the values to pack."""
        return [self.number, self.is_taken]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        return cls(row.number("number"), row.flag("is_taken"))


@dataclass(frozen=True, slots=True)
class Did:
    """A note from a worker that it has opened or closed all its streams."""

    streams: Streams

    def fields(self) -> list[Any]:
        """Return the values to pack."""
        return [int(self.streams)]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        return cls(Streams(row.number("streams", Streams.OPENED, Streams.CLOSED)))


@dataclass(frozen=True, slots=True)
class Used:
    """A report from a worker on the bytes that its streams use."""

    memory: int
    storage: int

    def fields(self) -> list[Any]:
        """Return the values to pack."""
        return [self.memory, self.storage]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note that is packed in `row`. Raises BadRow."""
        return cls(row.signed("memory"), row.signed("storage"))


Note: TypeAlias = Holdings | Passed | Settled | Claim | Claimed | Did | Turn | Used
_KINDS: dict[type, Kind] = {
    Holdings: Kind.HOLDINGS,
    Passed: Kind.PASSED,
    Settled: Kind.SETTLED,
    Claim: Kind.CLAIM,
    Claimed: Kind.CLAIMED,
    Did: Kind.STREAMS,
    Turn: Kind.TURN,
    Used: Kind.USED,
}
_TYPES: dict[int, type[Note]] = {kind: made for made, kind in _KINDS.items()}


def encode(note: Note) -> bytes:
    """Return the bytes of a note."""
    return HEAD + pack([int(_KINDS[type(note)]), *note.fields()])


def decode(data: bytes) -> Note:
    """Return the note in `data`, which begins with HEAD. Raises BadRow."""
    row = unpack(data[len(HEAD) :], "a note of another worker", NOTE_SIZE_MAX)
    made = _TYPES.get(kind := row.number("kind"))
    if made is None:
        raise row.wrong("kind", kind, "a known kind")
    note = made.take(row)
    row.end()
    return note

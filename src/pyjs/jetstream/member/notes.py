"""Notes are the messages between servers of a cluster that are not batches of their groups.

    note = msgpack list: kind u8, the fields of its kind

Notes arrive in the order in which they were sent, and may be lost with their connection. So code that waits for an
answer has a time limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from pyjs.jetstream.cluster.assignments import (
    GROUP_MAX,
    INDEX_MAX,
    REPLICAS_MAX,
    StoredConfig,
    take_config,
)
from pyjs.jetstream.cluster.bootstrap import WORD_SIZE_MAX, Word, decode_word
from pyjs.jetstream.cluster.fields import Row, pack, unpack
from pyjs.jetstream.cluster.servers import INCARNATION_MAX, NODE_MAX, Server, take_server

if TYPE_CHECKING:
    from typing import Any, Self

NOTE_SIZE_MAX = 64 << 20  # bytes


class Kind(IntEnum):
    """The kinds of notes; a number is never reused."""

    SAYING = 1
    DESCRIPTION = 2
    ORDER = 3
    QUESTION = 4
    REPLY = 5
    WELCOME = 6
    ANSWERED = 7
    LOSS = 8
    ENDED = 9
    RESTORED = 10
    REFUSED = 11
    OPENED = 12
    FORWARDED = 13


@dataclass(frozen=True, slots=True)
class Saying:
    """A word of a server during the agreement on the first members (jetstream/cluster/bootstrap)."""

    word: Word

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.word.encode()]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(decode_word(row.data("word", WORD_SIZE_MAX)))


@dataclass(frozen=True, slots=True)
class Description:
    """A server's description of itself, sent to the leader of the metadata."""

    server: Server

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.server.to_row()]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(take_server(row.row("server")))


@dataclass(frozen=True, slots=True)
class Order:
    """An order to another server to answer a client's request.

    In an order from the leader of the metadata, `index` is that of the entry to apply before the answer, or 0 if
    nothing was changed. In a request that a server of the stream passes on, `index` counts how often the request has
    been passed on.
    """

    account: str
    words: str  # of the endpoint
    stream: str
    group: int
    index: int
    replicas: int  # of the stream; if several, the leader answers
    subject: str
    reply: bytes
    payload: bytes
    number: int  # of the request (core.sink.Request)

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [
            self.account,
            self.words,
            self.stream,
            self.group,
            self.index,
            self.replicas,
            self.subject,
            self.reply,
            self.payload,
            self.number,
        ]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(
            row.text("account"),
            row.text("words"),
            row.text("stream"),
            row.number("group", 1, GROUP_MAX),
            row.number("index", 0, INDEX_MAX),
            row.number("replicas", 1, REPLICAS_MAX),
            row.text("subject"),
            row.data("reply", NOTE_SIZE_MAX),
            row.data("payload", NOTE_SIZE_MAX),
            row.number("number"),
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A question to another server about streams or, if `names` is empty, about an account's usage.

    A marker in place of the first name denotes another question; see `questions.py`.
    """

    number: int
    account: str
    names: tuple[str, ...]

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.number, self.account, list(self.names)]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(row.number("number"), row.text("account"), row.texts("names"))


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the question `number`; `data` is JSON."""

    number: int
    data: bytes

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.number, self.data]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(row.number("number"), row.data("data", NOTE_SIZE_MAX))


@dataclass(frozen=True, slots=True)
class Welcome:
    """The incarnation that the leader of the metadata assigns to a server that joins its group."""

    incarnation: int

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.incarnation]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(row.number("incarnation", 1, INCARNATION_MAX))


@dataclass(frozen=True, slots=True)
class Answered:
    """A note that a server sends to the other servers of a stream when it answers an order."""

    account: str
    stream: str
    number: int  # of the request (core.sink.Request)
    index: int  # as in the order

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.account, self.stream, self.number, self.index]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        account, stream = row.text("account"), row.text("stream")
        return cls(account, stream, row.number("number"), row.number("index", 0, INDEX_MAX))


@dataclass(frozen=True, slots=True)
class Loss:
    """A report to the metadata leader that a replica may have lost votes or entries; see `entries.ReplicaLost`."""

    account: str
    stream: str
    group: int
    revision: int
    node: int

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.account, self.stream, self.group, self.revision, self.node]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(
            row.text("account"),
            row.text("stream"),
            row.number("group", 1, GROUP_MAX),
            row.number("revision", 1, INDEX_MAX),
            row.number("node", 1, NODE_MAX),
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """A report to the leader of the metadata that a stream no longer needs its group; see `entries.GroupEnded`."""

    account: str
    stream: str
    group: int
    revision: int

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.account, self.stream, self.group, self.revision]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        return cls(
            row.text("account"),
            row.text("stream"),
            row.number("group", 1, GROUP_MAX),
            row.number("revision", 1, INDEX_MAX),
        )


@dataclass(frozen=True, slots=True)
class Restored:
    """A report to the leader of the metadata that the server `node` has built a stream from an archive."""

    account: str
    stored: StoredConfig
    node: int
    created_ns: int

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.account, self.stored.values, self.node, self.created_ns]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        account, stored = row.text("account"), take_config(row)
        return cls(account, stored, row.number("node", 1, NODE_MAX), row.signed("created"))


@dataclass(frozen=True, slots=True)
class Refused:
    """The refusal of a stream that was built from an archive, sent by the leader of the metadata."""

    account: str
    stream: str
    created_ns: int
    code: int
    err_code: int
    description: str

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.account, self.stream, self.created_ns, self.code, self.err_code, self.description]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        account, stream, created_ns = row.text("account"), row.text("stream"), row.signed("created")
        code, err_code = row.number("code", 100, 999), row.number("err_code", 1, 99999)
        return cls(account, stream, created_ns, code, err_code, row.text("description"))


@dataclass(frozen=True, slots=True)
class Opened:
    """A report to the metadata leader on whether a stream from an archive is open; see `entries.StreamOpened`."""

    account: str
    stream: str
    group: int
    is_there: bool

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.account, self.stream, self.group, self.is_there]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        account, stream, group = row.text("account"), row.text("stream"), row.number("group", 1, GROUP_MAX)
        return cls(account, stream, group, row.flag("is_there"))


@dataclass(frozen=True, slots=True)
class Forwarded:
    """A request of a client, forwarded to a server that has not received the request as a message."""

    account: str
    subject: str
    reply: bytes
    headers: bytes
    payload: bytes
    number: int  # of the request (core.sink.Request)

    def fields(self) -> list[Any]:
        """Return the fields of the note, in the order in which they are sent."""
        return [self.account, self.subject, self.reply, self.headers, self.payload, self.number]

    @classmethod
    def take(cls, row: Row) -> Self:
        """Return the note whose fields are in `row`. Raises BadRow."""
        account, subject, reply = row.text("account"), row.text("subject"), row.data("reply", NOTE_SIZE_MAX)
        headers, payload = row.data("headers", NOTE_SIZE_MAX), row.data("payload", NOTE_SIZE_MAX)
        return cls(account, subject, reply, headers, payload, row.number("number"))


Note: TypeAlias = (
    Saying
    | Description
    | Order
    | Question
    | Reply
    | Welcome
    | Answered
    | Loss
    | Ended
    | Restored
    | Refused
    | Opened
    | Forwarded
)
_KINDS: dict[type, Kind] = {
    Saying: Kind.SAYING,
    Description: Kind.DESCRIPTION,
    Order: Kind.ORDER,
    Question: Kind.QUESTION,
    Reply: Kind.REPLY,
    Welcome: Kind.WELCOME,
    Answered: Kind.ANSWERED,
    Loss: Kind.LOSS,
    Ended: Kind.ENDED,
    Restored: Kind.RESTORED,
    Refused: Kind.REFUSED,
    Opened: Kind.OPENED,
    Forwarded: Kind.FORWARDED,
}
_TYPES: dict[int, type[Note]] = {kind: made for made, kind in _KINDS.items()}


def encode(note: Note) -> bytes:
    """Return the bytes of a note."""
    return pack([int(_KINDS[type(note)]), *note.fields()])


def decode(data: bytes) -> Note | None:
    """Return the note in `data`, or None if a newer server has sent a note of an unknown kind. Raises BadRow."""
    row = unpack(data, "a note of another server", NOTE_SIZE_MAX)
    made = _TYPES.get(row.number("kind"))
    if made is None:
        return None
    note = made.take(row)
    row.end()
    return note

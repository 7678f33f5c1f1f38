"""Notes between servers: encoding and decoding of each kind, and invalid notes."""

from __future__ import annotations

import pytest

from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.cluster.bootstrap import Member, Membership, Word
from pyjs.jetstream.cluster.fields import BadRow, pack
from pyjs.jetstream.cluster.servers import Server
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.member.notes import (
    Answered,
    Description,
    Ended,
    Forwarded,
    Loss,
    Note,
    Opened,
    Order,
    Question,
    Refused,
    Reply,
    Restored,
    Saying,
    Welcome,
    decode,
    encode,
)

SERVER = Server(7, "a", "EAST", ("ssd",), 9, "0.1.0", 1, -1, 1 << 30)
NOTES: list[Note] = [
    Saying(Word(7, 9, 3, Membership((Member(7, 9),)), is_running=True)),
    Description(SERVER),
    Order("$G", "STREAM.CREATE", "S", 5, 12, 3, "$JS.API.STREAM.CREATE.S", b"_INBOX.\xff", b"{}", 2**63),
    Question(3, "$G", ("S", "T")),
    Question(4, "$G", ()),
    Reply(3, b"{}"),
    Welcome(2),
    Answered("$G", "S", 2**63, 12),
    Loss("$G", "S", 5, 12, 7),
    Ended("$G", "S", 5, 12),
    Restored("$G", stored_config(StreamConfig(name="S")), 7, 12),
    Refused("$G", "S", 12, 400, 10130, "it is there"),
    Opened("$G", "S", 5, True),
    Forwarded("$G", "$JS.API.STREAM.INFO.S", b"_INBOX.\xff", b"NATS/1.0\r\n\r\n", b"{}", 2**63),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_arrives_as_it_was_sent(note: Note) -> None:
    assert decode(encode(note)) == note


def test_a_note_of_a_newer_server_has_no_meaning() -> None:
    assert decode(pack([99, "?"])) is None


@pytest.mark.parametrize(
    "data", [b"", b"x", pack([]), pack(["1"]), pack([1]), pack([5, 1, "text"]), pack([6, 2, 3])]
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BadRow):
        decode(data)


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_cut_note_is_refused(note: Note) -> None:
    data = encode(note)
    for size in range(len(data)):
        with pytest.raises(BadRow):
            decode(data[:size])

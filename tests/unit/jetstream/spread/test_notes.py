"""Notes between workers: encoding and decoding of each kind, and invalid notes."""

from __future__ import annotations

import pytest

from pyjs.jetstream.cluster.assignments import stored_config
from pyjs.jetstream.cluster.fields import BadRow, pack
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.spread.notes import (
    HEAD,
    Did,
    Holding,
    Holdings,
    Note,
    Passed,
    Settled,
    Stage,
    Streams,
    Turn,
    Used,
    decode,
    encode,
)

HOLDING = Holding("$G", stored_config(StreamConfig(name="S", subjects=("s.>",))), 12)
NOTES: list[Note] = [
    Holdings(2, True, streams=(HOLDING,)),
    Holdings(2, False, gone=(("$G", "S"),)),
    Passed(
        1, False, "$G", b"$JS.API.STREAM.CREATE.S", b"_INBOX.\xff", b"NATS/1.0\r\n\r\n", b"{}", {"name": "c"}
    ),
    Passed(0, True, "$G", b"$JS.API.STREAM.INFO.S", b"_INBOX.1", b"", b"", {}),
    Settled(7),
    Settled(7, False),
    Turn(9, "$G", Stage.GIVEN),
    Did(Streams.OPENED),
    Did(Streams.CLOSED),
    Used(1 << 40, -1),
]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: type(note).__name__)
def test_a_note_arrives_as_it_was_sent(note: Note) -> None:
    assert encode(note).startswith(HEAD)
    assert decode(encode(note)) == note


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["1"],
        [99],
        [1],
        [3, 1, 2],
        [4, 0],
        [4, 3],
        [6, 1, "$G", 4],
        [1, 0, True, [], []],
        [1, 2, True, [[]], []],
    ],
)
def test_anything_else_is_refused(values: list[object]) -> None:
    with pytest.raises(BadRow):
        decode(HEAD + pack(values))

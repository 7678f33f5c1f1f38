"""The batches in which a store is copied: packed batches are decoded, and damaged ones are refused as a whole."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

import pytest

from pyjs.jetstream.replication import copy_batch
from pyjs.jetstream.replication.copy_batch import Ask, AskThese, BadCopy, Kind, Piece, State
from pyjs.store.store import StoredMessage

STATE = State(
    7, 2, 99, b"id", 120, b"", 5, 1, 3, 90, {"name": "S"}, bytes(16), bytes(8), bytes(8), b"", 0, b""
)
MESSAGES = [
    StoredMessage(1, 5, b"s.a", b"NATS/1.0\r\n\r\n", b"x" * 10),
    StoredMessage(4, 6, b"s.b", b"", b""),
]
RECORDS = b"".join(copy_batch.encode_record(each) for each in MESSAGES)


def joined(batches: list[list[bytes]]) -> list[Piece]:
    pieces = [copy_batch.read(b"".join(batch)) for batch in batches]
    assert all(isinstance(piece, Piece) for piece in pieces)
    return [piece for piece in pieces if isinstance(piece, Piece)]


def test_questions_are_read() -> None:
    assert copy_batch.read(b"".join(copy_batch.ask(5, 2, 44))) == Ask(5, 2, 44)
    assert b"".join(copy_batch.ask(5, 2, 44))[1:2] >= copy_batch.FIRST_KIND
    (refusal,) = joined([copy_batch.refusal(Kind.NOT_NOW, 5, 2)])
    assert (refusal.kind, refusal.group, refusal.number, refusal.pieces) == (Kind.NOT_NOW, 5, 2, 1)


@pytest.mark.parametrize("ids", [False, True])
def test_a_question_for_some_messages_is_read(ids: bool) -> None:
    data = b"".join(copy_batch.ask_these(5, 2, [3, 4, 900], ids=ids))
    assert copy_batch.read(data) == AskThese(5, 2, (3, 4, 900), ids)
    assert data[1:2] >= copy_batch.FIRST_KIND
    for wrong in (data[:-1], data[:-24], data + data[-8:], data + bytes(8 * copy_batch.SEQS_MAX)):
        with pytest.raises(BadCopy):
            copy_batch.read(wrong)


def test_an_end_has_its_state_and_its_records() -> None:
    (piece,) = joined(copy_batch.answer(5, 2, 4, RECORDS, STATE))
    state, records = copy_batch.end_of(piece.data)
    assert (piece.kind, piece.upto, state) == (Kind.END, 4, STATE)
    found = list(copy_batch.records_of(records))
    assert [each.seq for each in found] == [1, 4]
    assert found[0].payload == b"x" * 10


def test_a_long_answer_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_batch, "PIECE_SIZE", 10)
    pieces = joined(copy_batch.answer(5, 2, 4, RECORDS, None))
    assert [piece.place for piece in pieces] == list(range(len(pieces)))
    assert b"".join(piece.data for piece in pieces) == RECORDS


def test_a_damaged_batch_is_refused() -> None:
    whole = b"".join(copy_batch.answer(5, 2, 4, RECORDS, STATE)[0])
    rng = Random(5)
    for _ in range(2000):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        cut = bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.2 else bytes(data)
        try:
            read = copy_batch.read(cut)
        except BadCopy:
            continue
        assert not isinstance(read, Piece) or read.kind not in (Kind.PART, Kind.END)


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",
        RECORDS[:-1],
        RECORDS + RECORDS,
        copy_batch.encode_record(StoredMessage(0, 5, b"s", b"", b"")),
        copy_batch.encode_record(StoredMessage(1, 5, b"", b"", b"")),
    ],
)
def test_damaged_records_are_refused(data: bytes) -> None:
    with pytest.raises(BadCopy, match="record"):
        list(copy_batch.records_of(data))


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", b"\x01\x00\x00\x00\x90"])
def test_a_damaged_state_is_refused(data: bytes) -> None:
    with pytest.raises(BadCopy, match="state"):
        copy_batch.end_of(data)


@pytest.mark.parametrize(
    ("time_ns", "steps"),
    [
        (99, bytes(15)),
        (99, struct.pack("<qq", 100, 1)),
        (99, struct.pack("<qq", 90, -1)),
        (99, struct.pack("<qq", 90, 1) * 9),
        (1 << 63, b""),
    ],
)
def test_a_state_with_impossible_clock_steps_is_refused(time_ns: int, steps: bytes) -> None:
    packed = replace(STATE, time_ns=time_ns, steps=steps).encode()
    with pytest.raises(BadCopy, match="state"):
        copy_batch.end_of(struct.pack("<I", len(packed)) + packed)


def test_a_state_has_its_clock_steps() -> None:
    packed = replace(STATE, steps=struct.pack("<qqqq", 90, 1, 99, 9)).encode()
    assert copy_batch.end_of(struct.pack("<I", len(packed)) + packed)[0].steps == struct.pack(
        "<qqqq", 90, 1, 99, 9
    )

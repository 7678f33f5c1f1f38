"""Records of message blocks: whole, damaged, cut, and impossible ones."""

from __future__ import annotations

import pytest
from tests.support.nats_stores import block_record

from pyjs.archive.blocks import BadBlock, BlockReader

STREAM, NUMBER = "S", 1


def record(seq: int, payload: bytes = b"payload", headers: bytes = b"") -> bytes:
    return block_record(STREAM, NUMBER, seq, payload, headers)


def damaged(seq: int, payload: bytes = b"payload") -> bytes:
    """Return a record with a changed check."""
    whole = record(seq, payload)
    return whole[:-1] + bytes([whole[-1] ^ 1])


@pytest.fixture
def reader() -> BlockReader:
    return BlockReader(STREAM, NUMBER)


def test_records_are_read_from_any_pieces(reader: BlockReader) -> None:
    data = record(1) + record(2, b"", b"NATS/1.0\r\nA: b\r\n\r\n")
    found = []
    for at in range(len(data)):
        reader.add(data[at : at + 1])
        found += reader.next(10)
    assert [(each.seq, each.name, each.payload) for each in found] == [
        (1, b"jobs.1", b"payload"),
        (2, b"jobs.2", b""),
    ]
    assert found[1].headers == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert reader.left == 0


def test_a_damaged_record_is_passed_by_when_the_next_one_fits(reader: BlockReader) -> None:
    reader.add(record(1) + damaged(2))
    assert [each.seq for each in reader.next(10)] == [1]
    assert reader.next(10) == []
    reader.add(record(3)[:30])
    assert reader.next(10) == []
    reader.add(record(3)[30:])
    assert [each.seq for each in reader.next(10)] == [3]
    assert reader.passed_by == [len(record(1))]


@pytest.mark.parametrize("rest", [bytes(22), b"\xff" * 22, damaged(3)], ids=["zeros", "ones", "damaged too"])
def test_a_damaged_record_before_no_record_is_the_end(reader: BlockReader, rest: bytes) -> None:
    reader.add(damaged(2) + rest)
    with pytest.raises(BadBlock, match="the record at 0 does not fit its checksum"):
        reader.next(10)


def test_what_cannot_be_a_record_is_not_held(reader: BlockReader) -> None:
    reader.add(damaged(2))
    assert reader.next(10) == []
    reader.add(bytes(1 << 20))
    with pytest.raises(BadBlock):
        reader.next(10)

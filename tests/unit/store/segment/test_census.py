"""Which messages of a segment exist given the known removals, and whether an index file matches its segment."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.unit.store.file_state import open_store
from tests.unit.store.segment_files import message_record, resealed, segment_of

from pyjs.store.segment.census import agrees, body_of, live_in, next_named, removals_of, sorted_seqs
from pyjs.store.segment.contents import SegmentContents
from pyjs.store.segment.index_file import decode_index
from pyjs.store.segment.scan import scan_segment


def seqs(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    store = open_store(tmp_path / "msgs")
    for number in range(8):
        store.store(
            b"s.%d" % (number % 3), b"NATS/1.0\r\n\r\n" if number == 2 else b"", b"12345", 1000 + number
        )
    store.drop_seq(5)
    store.drop_seq(2)
    store.drop_seq(7, erase=True)
    store.close()
    return tmp_path / "msgs"


def contents(directory: Path) -> SegmentContents:
    return scan_segment((directory / "00000001.seg").read_bytes())


def test_removals_are_those_of_the_deletes_records(directory: Path) -> None:
    assert sorted_seqs(removals_of(contents(directory))) == seqs(2, 5, 7)


def test_the_next_of_sorted_sequences_is_found() -> None:
    found = [next_named(seqs(2, 5, 7), seq) for seq in (0, 2, 3, 7, 8)]
    assert found == [2, 2, 5, 7, 0]
    assert next_named(b"", 1) == 0


def test_the_body_of_a_message_begins_after_its_subject() -> None:
    first = message_record(1, 1000, b"s", b"", b"body")
    second = message_record(2, 1000, b"s", b"", b"body", term=bytes(16))
    segment = segment_of(1, first, second)
    for seq in (1, 2):
        at, size = body_of(scan_segment(segment), seq)
        assert segment[at : at + size] == b"body"


def test_what_is_removed_or_below_the_floor_is_not_there(directory: Path) -> None:
    assert live_in(contents(directory), 3, seqs(2, 5, 7)) == (4, 4 * 8 + 12, 1, 3, [])


def test_an_overwritten_message_that_nobody_removed_is_told(directory: Path) -> None:
    messages, size, with_headers, first, overwritten = live_in(contents(directory), 0, b"")
    assert (messages, size, with_headers, first, overwritten) == (7, 7 * 8 + 12, 1, 1, [7])


def test_an_index_file_that_is_of_its_segment_agrees(directory: Path) -> None:
    assert agrees(decode_index((directory / "00000001.idx").read_bytes()), contents(directory))


@pytest.mark.parametrize("at", [56, 64, 72, 128 + 8, 128 + 16, -16])
def test_an_index_file_that_says_something_else_does_not(directory: Path, at: int) -> None:
    data = bytearray((directory / "00000001.idx").read_bytes())
    data[at] ^= 1
    assert not agrees(decode_index(resealed(bytes(data))), contents(directory))

"""Entries of an archive are read from pieces of any size, and invalid ones are refused."""

from __future__ import annotations

import pytest

from pyjs.archive.entries import END, MAGIC, ArchiveEntry, encode
from pyjs.archive.entry_reader import EntryReader
from pyjs.archive.frames import BadArchive

ENTRIES = [
    ArchiveEntry(b"state.json", 1_700_000_000_000_000_000, 0, b"", b"{}"),
    ArchiveEntry(b"orders.new", -1, 1, b"NATS/1.0\r\n\r\n", b"bread"),
    ArchiveEntry(b"orders.new", -(1 << 63), (1 << 63) - 1, b"", b"x" * 300),
    ArchiveEntry(b"orders.new", (1 << 63) - 1, 0, b"", b""),
    END,
]


def read(reader: EntryReader, data: bytes) -> list[ArchiveEntry]:
    reader.add(data)
    return list(iter(reader.next, None))


@pytest.mark.parametrize("piece", [1, 5, 1000])
def test_what_was_written_is_read(piece: int) -> None:
    # given
    data = MAGIC + b"".join(encode(e.name, e.ts, e.seq, e.headers, e.payload) for e in ENTRIES)
    reader = EntryReader(1000)
    # when
    found = [entry for at in range(0, len(data), piece) for entry in read(reader, data[at : at + piece])]
    # then
    assert found == ENTRIES
    assert reader.is_between
    assert [entry.is_end for entry in found] == [False, False, False, False, True]


def test_part_of_an_entry_is_no_end() -> None:
    reader = EntryReader(1000)
    reader.add(MAGIC + encode(b"s", 3, 300, b"", b"ab")[:-1])
    assert reader.next() is None
    assert not reader.is_between


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"NATSARC2", "magic"),
        (MAGIC + b"\xff\xff\x7f\0\0\0\0", "a name of"),
        (MAGIC + b"\x01\x02\x01\x00\xe9\x07s", "1001 bytes"),
        (MAGIC + b"\x01\x02\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01s", "18446744073709551616 bytes"),
        (MAGIC + b"\x80" * 11, "more than ten bytes"),
        (MAGIC + b"\xff" * 9 + b"\x7f\0\0\0\0", "more than 64 bits"),
        (MAGIC + encode(b"s", 1, 1 << 63, b"", b""), "the sequence 9223372036854775808"),
    ],
)
def test_an_invalid_entry_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(BadArchive, match=text):
        read(EntryReader(1000), data)

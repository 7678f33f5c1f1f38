"""Entries of an archive: written and read back, in any pieces."""

from __future__ import annotations

import pytest

from pyjs.archive.entries import END, MAGIC, ArchiveEntry, EntryReader, encode
from pyjs.archive.frames import BadArchive

ENTRIES = [
    ArchiveEntry(b"state.json", 1_700_000_000_000_000_000, 0, b"", b"{}"),
    ArchiveEntry(b"orders.new", -1, 1, b"NATS/1.0\r\n\r\n", b"bread"),
    ArchiveEntry(b"orders.new", 0, (1 << 63) - 1, b"", b"x" * 300),
    END,
]


def test_an_entry_has_these_bytes() -> None:
    # name size 1, time 3 (zigzag 6), sequence 300, no headers, payload of 2 bytes
    assert encode(b"s", 3, 300, b"", b"ab") == b"\x01\x06\xac\x02\x00\x02sab"


@pytest.mark.parametrize("piece", [1, 5, 1000])
def test_what_was_written_is_read(piece: int) -> None:
    # given
    data = MAGIC + b"".join(encode(e.name, e.ts, e.seq, e.headers, e.payload) for e in ENTRIES)
    reader = EntryReader(1000)
    # when
    found = [entry for at in range(0, len(data), piece) for entry in reader.add(data[at : at + piece])]
    # then
    assert found == ENTRIES
    assert reader.is_between
    assert [entry.is_end for entry in found] == [False, False, False, True]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"NATSARC2", "magic"),
        (MAGIC + b"\xff\xff\x7f\0\0\0\0", "a name of"),
        (MAGIC + b"\x01\x02\x01\x00\xe9\x07s", "1001 bytes"),
        (MAGIC + b"\x80" * 11, "more than ten bytes"),
        (MAGIC + b"\xff" * 9 + b"\x7f\0\0\0\0", "more than 64 bits"),
    ],
)
def test_an_invalid_entry_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(BadArchive, match=text):
        list(EntryReader(1000).add(data))

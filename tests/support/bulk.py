"""A reader of bulk chunks, written from docs/bulk-read.md alone: slow and simple, with all possible checks."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise

HEADER = struct.Struct("<4sHHQQQQIIIIQ")
ENTRY = struct.Struct("<QqIIIHHII")
RECORD = struct.Struct("<IBBHQqII")
LAST, END, ENTRIES_ONLY = 1, 2, 4


@dataclass(frozen=True)
class Entry:
    """One entry of a chunk, with the fields of the format."""

    seq: int
    ts: int
    offset: int
    size: int
    header_len: int
    subject_len: int
    flags: int
    subject_id: int
    prev: int


@dataclass(frozen=True)
class Message:
    """One message, as stored in a record."""

    seq: int
    ts: int
    subject: bytes
    headers: bytes
    payload: bytes


@dataclass(frozen=True)
class Chunk:
    """One chunk, decoded."""

    flags: int
    first: int
    next: int
    stream_first_seq: int
    stream_last_seq: int
    segment: int
    lost: int
    incarnation: int
    entries: tuple[Entry, ...]
    data: bytes

    @property
    def is_last(self) -> bool:
        return bool(self.flags & LAST)

    @property
    def is_end(self) -> bool:
        return bool(self.flags & END)

    def messages(self) -> list[Message]:
        """Return the messages of the records."""
        return [message_at(self.data, entry) for entry in self.entries]


def decode(payload: bytes) -> Chunk:
    """Parse a chunk; inconsistent contents are an error."""
    magic, version, flags, first, next_seq, low, high, n, size, segment, lost, made = HEADER.unpack_from(
        payload
    )
    assert (magic, version) == (b"PYJB", 1)
    data_at = HEADER.size + n * ENTRY.size
    assert len(payload) == data_at + size
    entries = tuple(
        Entry(*fields) for fields in ENTRY.iter_unpack(payload[HEADER.size : HEADER.size + n * ENTRY.size])
    )
    assert all(a.seq < b.seq for a, b in pairwise(entries))
    assert all(first <= entry.seq < next_seq for entry in entries)
    assert all(entry.flags & 1 and entry.prev == 0 for entry in entries)
    data = payload[data_at:]
    if not flags & ENTRIES_ONLY:
        ends = [entry.offset + record_size(entry) for entry in entries]
        assert [0, *ends][: len(entries)] == [entry.offset for entry in entries]
        assert (ends or [0])[-1] == size
    return Chunk(flags, first, next_seq, low, high, segment, lost, made, entries, data)


def record_size(entry: Entry) -> int:
    """Return the size in bytes of an entry's record."""
    return 40 + (16 if entry.flags & 2 else 0) + entry.subject_len + entry.size


def message_at(data: bytes, entry: Entry) -> Message:
    """Read the record of an entry."""
    at = entry.offset
    length, kind, flags, subject_len, seq, ts, header_len, _ = RECORD.unpack_from(data, at)
    assert (length, kind, seq, ts) == (record_size(entry), 1, entry.seq, entry.ts)
    assert (subject_len, header_len) == (entry.subject_len, entry.header_len)
    assert bool(flags & 1) == bool(entry.flags & 2)
    assert not flags & 2, "an erased message"
    body = at + 32 + (16 if flags & 1 else 0)
    headers = body + subject_len
    payload = headers + header_len
    end = headers + entry.size
    assert end + 8 == at + length
    return Message(seq, ts, data[body:headers], data[headers:payload], data[payload:end])

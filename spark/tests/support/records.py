"""Records, entries and segments composed for tests, as docs/storage-format.md defines them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from pyjs_spark.decode.hashing import xxh64

HEADER = struct.Struct("<8sHBBIQ8sIIQ8s")
RECORD = struct.Struct("<IBBHQqI")
ENTRY = struct.Struct("<QqIIIHHII")
NOW = 1_790_000_000_123_456_789
MSG, STATE, DELETES, FOOTER, META = 1, 2, 3, 4, 5


@dataclass
class Stored:
    """One message of a stream."""

    seq: int
    subject: bytes = b"orders.new"
    headers: bytes = b""
    payload: bytes = b""
    ts: int = NOW
    is_extended: bool = False
    flags: int = 0

    def record(self, before: int) -> bytes:
        """Return the record of this message, chained to a record with the checksum `before`."""
        extra = bytes(16) if self.is_extended else b""
        body = extra + self.subject + self.headers + self.payload
        flags = self.flags | (1 if self.is_extended else 0)
        fields = (flags, len(self.subject), self.seq, self.ts, len(self.headers))
        return made(MSG, *fields, body, before)

    def entry(self, offset: int) -> bytes:
        """Return the entry for a record at `offset`."""
        size = len(self.headers) + len(self.payload)
        flags = 3 if self.is_extended else 1
        places = (offset, size, len(self.headers), len(self.subject), flags, 0, 0)
        return ENTRY.pack(self.seq, self.ts, *places)


def made(
    kind: int,
    flags: int,
    subject_len: int,
    seq: int,
    ts: int,
    header_len: int,
    body: bytes,
    before: int,
) -> bytes:
    """Return a record of any kind."""
    head = RECORD.pack(40 + len(body), kind, flags, subject_len, seq, ts, header_len)
    own = xxh64(body, xxh64(head, 0))
    checksum = xxh64(own.to_bytes(8, "little"), before).to_bytes(8, "little")
    return head + ((own & 0xFFFFFFFF) or 1).to_bytes(4, "little") + body + checksum


def other(kind: int, seq: int, numbers: Iterable[int], before: int, flags: int = 0, ts: int = NOW) -> bytes:
    """Return a record other than a message; its body consists of numbers."""
    body = b"".join(number.to_bytes(8, "little") for number in numbers)
    return made(kind, flags, 0, seq, ts, 0, body, before)


def header(base_seq: int, number: int = 1, incarnation: int = 7, version: int = 3) -> bytes:
    """Return the header of a plain segment of format `version`."""
    data = HEADER.pack(b"PYJSSEG\n", version, 0, 1, 0, base_seq, bytes(8), number, 0, incarnation, bytes(8))
    return data + xxh64(data, 0).to_bytes(8, "little")


def tail(data: bytes) -> int:
    """Return the checksum at the end of `data`; the next record is chained to it."""
    return int.from_bytes(data[-8:], "little")


def piece(messages: Iterable[Stored], front: bytes = bytes(8)) -> tuple[bytes, bytes]:
    """Return entries and records of consecutive messages; the records begin after `front`."""
    entries, data = b"", front
    for message in messages:
        entries += message.entry(len(data))
        data += message.record(tail(data))
    return entries, data

"""Entries of an archive of version 2: a name, a time, a sequence, headers and payload.

    archive = magic { entry }
    entry   = name size uvarint | time varint | sequence uvarint | header size uvarint | payload size uvarint
              | name | headers | payload

The first entry is `state.json`, then `consumers/<name>` for each consumer, then the messages by sequence: the name is
the subject. An entry whose fields are all zero ends the archive; an archive without it is incomplete.

Source: ADR-63 of NATS; the bytes as nats-server 2.15 writes them, tests/conformance/test_archives.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.archive.frames import BadArchive

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"NATSARC1"
STATE_NAME = b"state.json"
CONSUMER_PREFIX = b"consumers/"
NAME_MAX = 64 * 1024
VARINT_MAX = 10
HEAD_MAX = 5 * VARINT_MAX
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One entry."""

    name: bytes
    ts: int  # ns since the epoch
    seq: int  # 0: not a message
    headers: bytes
    payload: bytes

    @property
    def is_end(self) -> bool:
        """Whether this is the end of the archive."""
        return not (self.seq or self.ts or self.headers or self.payload)


END = ArchiveEntry(b"", 0, 0, b"", b"")


def uvarint(value: int) -> bytes:
    """Return an unsigned number as a varint: seven bits a byte, lowest first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(name: bytes, ts: int, seq: int, headers: bytes, payload: bytes) -> bytes:
    """Return the bytes of one entry."""
    time = uvarint(ts << 1 if ts >= 0 else ~ts << 1 | 1)
    sizes = uvarint(len(headers)) + uvarint(len(payload))
    return b"".join((uvarint(len(name)), time, uvarint(seq), sizes, name, headers, payload))


class EntryReader:
    """Reads entries from pieces of any size."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max  # maximum size in bytes of the headers and payload of one entry
        self._held = bytearray()
        self._at = 0
        self._seen_magic = False

    @property
    def is_between(self) -> bool:
        """Whether the bytes so far end at the end of an entry."""
        return self._at == len(self._held)

    def add(self, data: bytes) -> Iterator[ArchiveEntry]:
        """Yield the entries that `data` completes.

        Raises:
            BadArchive: the bytes are not an archive, or an entry is too large.
        """
        del self._held[: self._at]
        self._at = 0
        self._held += data
        if not self._seen_magic:
            if len(self._held) < len(MAGIC):
                return
            if not self._held.startswith(MAGIC):
                raise BadArchive("no magic bytes of version 2")
            self._seen_magic, self._at = True, len(MAGIC)
        while (entry := self._next()) is not None:
            yield entry

    def _next(self) -> ArchiveEntry | None:
        head = self._head()
        if head is None:
            return None
        at, (name_size, time, seq, header_size, payload_size) = head
        if name_size > NAME_MAX:
            raise BadArchive(f"an entry claims a name of {name_size} bytes")
        if header_size + payload_size > self._size_max:
            raise BadArchive(
                f"an entry claims {header_size + payload_size} bytes, {self._size_max} are the most"
            )
        if seq > INT64_MAX:
            raise BadArchive(f"an entry claims the sequence {seq}")
        end = at + name_size + header_size + payload_size
        if end > len(self._held):
            return None
        name, body = bytes(self._held[at : at + name_size]), bytes(self._held[at + name_size : end])
        self._at = end
        ts = time >> 1 if not time & 1 else ~(time >> 1)
        return ArchiveEntry(name, ts, seq, body[:header_size], body[header_size:])

    def _head(self) -> tuple[int, list[int]] | None:
        """Return the end of the five numbers at the current position, and the numbers, or None if incomplete."""
        held, at, numbers = self._held, self._at, []
        end = len(held)
        for _ in range(5):
            value = shift = 0
            while True:
                if at == end:
                    return None
                byte = held[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 63:
                    raise BadArchive("an entry has a number of more than ten bytes")
            if value >> 64:
                raise BadArchive("an entry has a number of more than 64 bits")
            numbers.append(value)
        return at, numbers

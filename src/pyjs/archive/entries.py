"""Entries of an archive of version 2: a name, a time, a sequence, headers and payload.

    archive = magic { entry }
    entry   = name size uvarint | time varint | sequence uvarint | header size uvarint | payload size uvarint
              | name | headers | payload

entry_reader.pyx reads entries; jetstream/transfer/messages.pyx writes the messages of a snapshot.

The first entry is `state.json`, followed by `consumers/<name>` for each consumer, and by the messages in order of
sequence. The name of a message is its subject. An entry whose fields are all zero ends the archive; without it, the
archive is incomplete.

Source: ADR-63 of NATS; the bytes as nats-server 2.15 writes them, tests/conformance/test_archives.py.
"""

from __future__ import annotations

from dataclasses import dataclass

MAGIC = b"NATSARC1"
STATE_NAME = b"state.json"
CONSUMER_PREFIX = b"consumers/"
VARINT_MAX = 10
INT64_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One entry of an archive."""

    name: bytes
    ts: int  # ns since the epoch
    seq: int  # 0: not a message
    headers: bytes
    payload: bytes

    @property
    def is_end(self) -> bool:
        """Whether this entry marks the end of the archive."""
        return not (self.seq or self.ts or self.headers or self.payload)


END = ArchiveEntry(b"", 0, 0, b"", b"")


def uvarint(value: int) -> bytes:
    """Return an unsigned number as a varint: seven bits per byte, lowest bits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(name: bytes, ts: int, seq: int, headers: bytes, payload: bytes) -> bytes:
    """Return the encoded bytes of one entry; `ts` is in ns since the epoch."""
    time = uvarint(ts << 1 if ts >= 0 else ~ts << 1 | 1)
    sizes = uvarint(len(headers)) + uvarint(len(payload))
    return b"".join((uvarint(len(name)), time, uvarint(seq), sizes, name, headers, payload))

"""Segments and their index files in plain Python, written from docs/storage-format.md alone, for comparisons."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import xxhash

MSG, STATE, DELETES, FOOTER, META = 1, 2, 3, 4, 5
NO_SUBJECT = 0xFFFFFFFF


def records(segment: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (offset, kind, whole record) of an undamaged segment."""
    at = 64
    while at < len(segment) and (length := struct.unpack_from("<I", segment, at)[0]):
        kind = segment[at + 4]
        yield at, kind, segment[at : at + length]
        at += length
        if kind == FOOTER:
            return


def segment_of(base_seq: int, *bodies: bytes, number: int = 1, incarnation: int = 7) -> bytes:
    """Return a segment of the records, whose checks and checksums are added."""
    header = struct.pack("<8sHBBIQqIIQQ", b"PYJSSEG\n", 3, 0, 1, 0, base_seq, 0, number, 0, incarnation, 0)
    data = header + struct.pack("<Q", xxhash.xxh64_intdigest(header))
    for body in bodies:
        data += sealed(body, data[-8:])
    return data


def sealed(body: bytes, before: bytes) -> bytes:
    """Return a record with its check and checksum, after a record or header that ends with `before`."""
    own = xxhash.xxh64_intdigest(body[32:], xxhash.xxh64_intdigest(body[:28]))
    checksum = xxhash.xxh64_intdigest(struct.pack("<Q", own), struct.unpack("<Q", before)[0])
    return body[:28] + struct.pack("<I", own & 0xFFFFFFFF or 1) + body[32:] + struct.pack("<Q", checksum)


def message_record(
    seq: int, ts: int, subject: bytes, headers: bytes, payload: bytes, term: bytes = b"", flags: int = 0
) -> bytes:
    """Return a MSG record without its check and checksum; `term` is 16 bytes of term and index."""
    body = term + subject + headers + payload
    flags |= 1 if term else 0
    return struct.pack("<IBBHQqII", 40 + len(body), MSG, flags, len(subject), seq, ts, len(headers), 0) + body


def resealed(index: bytes) -> bytes:
    """Return a changed index file with a matching checksum."""
    return index[:-8] + struct.pack("<Q", xxhash.xxh64_intdigest(index[:-8]))


def without_erasures(index: bytes) -> bytes:
    """Return an index file without the marks of overwritten messages, which may have been overwritten later."""
    data = bytearray(index)
    for at in range(128 + 30, 128 + 40 * struct.unpack_from("<I", index, 92)[0], 40):
        data[at] &= ~4
    return resealed(bytes(data))


class IndexWriter:
    """Writes the index file of one undamaged segment."""

    def __init__(self, segment: bytes) -> None:
        self.segment = segment
        self.base_seq, self.number, self.incarnation = (
            struct.unpack_from("<Q", segment, 16)[0],
            struct.unpack_from("<I", segment, 32)[0],
            struct.unpack_from("<Q", segment, 40)[0],
        )
        self.end, self.sealed, self.first_seq, self.first_ts, self.last_ts = 64, 0, 0, 0, 0
        self.entries: list[bytes] = []
        self.subjects: dict[bytes, list[int]] = {}
        self.removals: list[int] = []
        self.messages = self.with_headers = self.message_bytes = 0
        for at, kind, record in records(segment):
            self._take(at, kind, record)
            self.end = at + len(record)

    def _take(self, at: int, kind: int, record: bytes) -> None:
        flags, seq = record[5], struct.unpack_from("<Q", record, 8)[0]
        self._gaps_before(seq if kind == MSG else seq + 1)
        if kind == MSG:
            self._message(at, record)
        elif kind == STATE:
            first_seq, last_ts = struct.unpack_from("<Qq", record, 32)
            self.first_seq, self.last_ts = max(self.first_seq, first_seq), max(self.last_ts, last_ts)
        elif kind == DELETES:
            seqs = struct.unpack(f"<{(len(record) - 40) // 8}Q", record[32:-8])
            self.removals += [seq | (1 << 63 if flags & 2 else 0) for seq in seqs]
        elif kind == FOOTER:
            self.sealed = 1

    def _gaps_before(self, seq: int) -> None:
        while (at := self.base_seq + len(self.entries)) < seq:
            self.entries.append(struct.pack("<QqIIIHHII", at, self.last_ts, 0, 0, 0, 0, 0, NO_SUBJECT, 0))

    def _message(self, at: int, record: bytes) -> None:
        _, _, record_flags, subject_len, seq, ts, header_len, _ = struct.unpack_from("<IBBHQqII", record)
        fixed = 48 if record_flags & 1 else 32
        subject = record[fixed : fixed + subject_len]
        size = len(record) - fixed - subject_len - 8
        flags = 1 | (2 if record_flags & 1 else 0) | (4 if record_flags & 2 else 0)
        number = len(self.entries)
        row = self.subjects.setdefault(subject, [0, number, number, len(self.subjects)])
        prev = number - row[2] if row[0] else 0
        row[0], row[2] = row[0] + 1, number
        self.entries.append(
            struct.pack("<QqIIIHHII", seq, ts, at, size, header_len, subject_len, flags, row[3], prev)
        )
        self.first_ts = ts if self.messages == 0 else self.first_ts
        self.last_ts = ts
        self.messages += 1
        self.with_headers += header_len > 0
        self.message_bytes += subject_len + size

    def data(self) -> bytes:
        """Return the bytes of the file."""
        names = b"".join(self.subjects)
        rows, name_at = b"", 0
        for name, (count, first, last, _) in self.subjects.items():
            rows += struct.pack("<IIIIII", count, first, last, name_at, len(name), 0)
            name_at += len(name)
        file = struct.pack(
            "<8sIIQIIQQQQqqQIIIIIIIIQ", b"PYJSIDX\n", 1, 0, self.base_seq, self.number, self.sealed,
            self.incarnation, self.end, struct.unpack_from("<Q", self.segment, self.end - 8)[0],
            self.first_seq, self.first_ts, self.last_ts, self.message_bytes, 40, len(self.entries),
            self.messages, self.with_headers, 24, len(self.subjects), len(names), len(self.removals), 0,
        )  # fmt: skip
        file += b"".join(self.entries) + rows + struct.pack(f"<{len(self.removals)}Q", *self.removals)
        file += names + bytes(-len(names) % 8)
        return resealed(file + bytes(8))


def index_of(segment: bytes) -> bytes:
    """Return the index file of an undamaged segment."""
    return IndexWriter(segment).data()

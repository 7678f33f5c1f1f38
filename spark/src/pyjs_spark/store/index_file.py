"""Index files, each of which has the entries of a segment, without payloads.

An index file is a cache: it is used only if it is intact and fits the segment.

    index = header (128)  entry* (40)  subject* (24)  removal* (8)  names  padding  checksum

Source: docs/storage-format.md, "Index files".
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from pyjs_spark.decode.entries import (
    ENTRY,
    ENTRY_SIZE,
    EXTENDED,
    KIND_MESSAGE,
    MESSAGE,
    RECORD,
    RECORD_SIZE_MIN,
    is_sendable,
    is_whole,
)
from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.store.contents import DELETES, FOOTER, META, STATE, Contents
from pyjs_spark.store.image import HEADER_SIZE, Image, header_in
from pyjs_spark.store.keys import BLOCK_SIZES, StreamKey

HEADER = struct.Struct("<8sIIQIIQQQQqqQIIIIIIIIQ")
MAGIC = b"PYJSIDX\n"
VERSION = 1
OUTER_SIZE = 32  # bytes of the header of an encrypted file
SUBJECT = np.dtype([(name, "<u4") for name in ("count", "first", "last", "name_at", "name_size", "spare")])
SUBJECT_SIZE = 24
FOOTER_SIZE = RECORD_SIZE_MIN + 48
REMOVED_SEQ = (1 << 63) - 1  # mask that clears the bit for an overwritten message


def index_in(data: bytes, key: StreamKey | None) -> Contents | None:
    """Return the contents of an index file.

    The result is None if the file is damaged, has another version, or is encrypted with another key.
    """
    plain = _decrypted(data, key)
    if len(plain) < HEADER.size + 8 or not plain.startswith(MAGIC):
        return None
    if xxh64(memoryview(plain)[:-8], 0) != int.from_bytes(plain[-8:], "little"):
        return None
    _, version, flags, base_seq, number, sealed, incarnation, end, chain, floor, *rest = HEADER.unpack_from(
        plain
    )
    _, last_ts, size, entry_size, entries, _, _, subject_size, subjects, names_size, removals, _ = rest
    if version != VERSION or flags or (entry_size, subject_size) != (ENTRY_SIZE, SUBJECT_SIZE):
        return None
    fixed_size = HEADER.size + entries * ENTRY_SIZE + subjects * SUBJECT_SIZE + removals * 8
    if len(plain) != fixed_size + -(-names_size // 8) * 8 + 8:
        return None
    rows, names, removed = _parts_in(plain, entries, subjects, removals)
    if len(rows) and int(rows["subject_id"].max()) >= len(names):
        return None
    if not all(is_sendable(name) for name in names):
        return None
    return Contents(
        number=number,
        incarnation=incarnation,
        base_seq=base_seq,
        next_seq=base_seq + entries,
        end=end,
        chain=chain,
        is_sealed=bool(sealed),
        floor=floor,
        last_ts=last_ts,
        messages=len(rows),
        message_bytes=size,
        entries=rows,
        removals=removed,
        names=names,
    )


def fits(index: Contents, image: Image) -> bool:
    """Return whether the index file was written for the segment as it is now."""
    header = header_in(image.read(0, HEADER_SIZE))
    if header is None or not HEADER_SIZE <= index.end <= image.size:
        return False
    said = (index.base_seq, index.number, index.incarnation)
    if said != (header.base_seq, header.number, header.incarnation):
        return False
    at = max(index.end - FOOTER_SIZE - 8, 0)
    tail = image.read(at, index.end - at)
    if int.from_bytes(tail[-8:], "little") != index.chain:
        return False
    if not index.is_sealed:
        return image.size == index.end and _is_confirmed(index, image)
    is_footed = len(tail) == FOOTER_SIZE + 8 and _is_footer(tail, index.next_seq - index.base_seq)
    return is_footed and _is_confirmed(index, image)


def _is_confirmed(index: Contents, image: Image) -> bool:
    """Return whether the index file has all removals in the segment's DELETES and STATE records.

    The server checks this too.
    """
    rows = index.entries
    begins = np.append(rows["offset"].astype(np.int64), index.end)
    sizes = RECORD_SIZE_MIN + np.where(rows["flags"] & EXTENDED, 16, 0) + rows["subject_len"] + rows["size"]
    ends = np.append(HEADER_SIZE, begins[:-1] + sizes)
    if (begins < ends).any():
        return False
    next_seq = max(index.base_seq, int(rows["seq"][-1]) + 1 if len(rows) else 0)
    floor, removals = 0, b""
    for gap in np.flatnonzero(begins > ends).tolist():
        data = image.read(int(ends[gap]), int(begins[gap] - ends[gap]))
        at = 0
        while len(data) - at >= RECORD_SIZE_MIN:
            length, kind, _, _, seq, *_ = RECORD.unpack_from(data, at)
            body = data[at + RECORD.size : at + length - 8]
            if not KIND_MESSAGE < kind <= META or not RECORD_SIZE_MIN <= length <= len(data) - at:
                return False
            if kind == STATE:
                floor = max(floor, int.from_bytes(body[:8], "little"))
            elif kind == DELETES:
                removals += body[: len(body) // 8 * 8]
            next_seq = max(next_seq, seq + 1)
            at += length
        if at != len(data):
            return False
    said: Any = np.frombuffer(removals, "<u8") & np.uint64(REMOVED_SEQ)
    return (next_seq, floor) == (index.next_seq, index.floor) and np.array_equal(said, index.removals)


def _is_footer(tail: bytes, entries: int) -> bool:
    length, kind, *_ = RECORD.unpack_from(tail, 8)
    if length != FOOTER_SIZE or kind != FOOTER or not is_whole(memoryview(tail), 8, length):
        return False
    return int.from_bytes(tail[8 + RECORD.size + 16 : 8 + RECORD.size + 24], "little") == entries


def _parts_in(plain: bytes, entries: int, subjects: int, removals: int) -> tuple[Any, list[bytes], Any]:
    """Return entries of messages, subjects and removals."""
    at = HEADER.size
    rows: Any = np.frombuffer(plain, ENTRY, entries, at)
    at += entries * ENTRY_SIZE
    known: Any = np.frombuffer(plain, SUBJECT, subjects, at)
    at += subjects * SUBJECT_SIZE
    removed: Any = np.frombuffer(plain, "<u8", removals, at)
    at += removals * 8
    places = zip(known["name_at"].tolist(), known["name_size"].tolist(), strict=True)
    names = [plain[at + begin : at + begin + size] for begin, size in places]
    is_message = rows["flags"] & MESSAGE != 0
    rows = rows if is_message.all() else rows[is_message]
    return rows, names, removed & np.uint64(REMOVED_SEQ)


def _decrypted(data: bytes, key: StreamKey | None) -> bytes:
    """Return the index in a file, decrypted if necessary, or b"" if the key does not decrypt the index."""
    algorithm = int.from_bytes(data[12:16], "little")
    if len(data) < OUTER_SIZE or algorithm == 0:
        return data
    nonce = data[16:OUTER_SIZE]
    if key is None or algorithm not in BLOCK_SIZES or not key.fits(nonce):
        return b""
    return key.decrypted(algorithm, nonce, data[OUTER_SIZE:], 0)

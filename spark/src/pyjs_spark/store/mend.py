"""Putting right the one damaged byte of a short piece of a segment file: its checksums tell what it was.

Every value of every byte is tried until they fit, so nothing is guessed. The pieces are records that tell of
removals, and the headers of files that are encrypted or compressed. The server does so too.

Source: docs/storage-format.md, "Reading back" and "Encodings of a segment".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs_spark.decode.entries import CHECK_AT, CHECKSUM_SIZE, HEAD_SIZE, KIND_MESSAGE, RECORD, check_of
from pyjs_spark.decode.hashing import xxh64

if TYPE_CHECKING:
    Bytes = bytes | bytearray | memoryview

KIND_AT = 4  # in a record
KIND_MAX = 5
MEND_SIZE_MAX = 512  # of a record that is worth the effort: 60 MB are hashed at most


def mended_record(data: Bytes, before: int) -> bytearray | None:
    """Return the record with its one damaged byte restored; None: not one byte is damaged, or it is not a record.

    `before` is the checksum in front of it. Where the kind says that it is a message only that is looked at: nothing
    can be done for a message.
    """
    record, view = bytearray(data), memoryview(data)
    end = len(record) - CHECKSUM_SIZE
    check = int.from_bytes(data[CHECK_AT:HEAD_SIZE], "little")
    stored = int.from_bytes(data[end:], "little")
    head_hash = xxh64(view[:CHECK_AT], 0)
    own = xxh64(view[HEAD_SIZE:end], head_hash)
    checksum = xxh64(own.to_bytes(8, "little"), before).to_bytes(CHECKSUM_SIZE, "little")
    if check_of(own) == check and _differing(checksum, view[end:]) == 1:  # then it is the checksum
        record[end:] = checksum
        return record if _is_shaped(record) else None
    for at in (KIND_AT,) if record[KIND_AT] == KIND_MESSAGE else range(end):
        was = record[at]
        for value in range(256):
            record[at] = value
            own = xxh64(record[HEAD_SIZE:end], head_hash if at >= HEAD_SIZE else xxh64(record[:CHECK_AT], 0))
            if check_of(own) == check and xxh64(own.to_bytes(8, "little"), before) == stored:
                return record if _is_shaped(record) else None
        record[at] = was
    return None


def mended_header(head: bytes) -> bytes:
    """Return a header with its one damaged byte restored, or unchanged if that is impossible."""
    data, stored = bytearray(head[:-CHECKSUM_SIZE]), head[-CHECKSUM_SIZE:]
    right = xxh64(data, 0).to_bytes(CHECKSUM_SIZE, "little")
    if _differing(right, stored) == 1:
        return bytes(data) + right
    wanted = int.from_bytes(stored, "little")
    for at, was in enumerate(bytes(data)):
        for data[at] in range(256):
            if xxh64(data, 0) == wanted:
                return bytes(data) + stored
        data[at] = was
    return head


def _differing(one: Bytes, other: Bytes) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def _is_shaped(record: Bytes) -> bool:
    """Return whether these bytes can be one record other than a message."""
    length, kind, flags, subject_len, _, _, header_len, _ = RECORD.unpack_from(record)
    return bool(length == len(record) and kind <= KIND_MAX and flags <= 7 and subject_len == header_len == 0)

"""Putting right the one byte of a short record that is damaged: check and checksum tell what it was.

Every value of every byte is tried until both fit, which are 96 bits, so nothing is guessed. The server does so too.

Source: docs/storage-format.md, "Reading back".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs_spark.entries import CHECK_AT, CHECKSUM_SIZE, HEAD_SIZE, KIND_MESSAGE, RECORD, check_of
from pyjs_spark.hashing import xxh64

if TYPE_CHECKING:
    Bytes = bytes | bytearray | memoryview

KIND_AT = 4  # in a record
KIND_MAX = 5
MEND_SIZE_MAX = 512  # of a record that is worth the effort: 60 MB are hashed at most


def mended_record(data: Bytes, before: int) -> bytearray | None:
    """Return the record that these bytes were before one of them was damaged; None: it is not one byte of a record.

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


def _differing(one: Bytes, other: Bytes) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def _is_shaped(record: Bytes) -> bool:
    """Return whether these bytes can be one record that is no message."""
    length, kind, flags, subject_len, _, _, header_len, _ = RECORD.unpack_from(record)
    return bool(length == len(record) and kind <= KIND_MAX and flags <= 3 and subject_len == header_len == 0)

"""Metadata of a stream: a msgpack map in a checksummed envelope, in two files and in each segment.

    envelope = "PYJSMETA" version u16 kind u8 flags u8 needs u8 u8 u16 body_size u32 0 u32 generation u64
               body  XXH64 u64

Source: docs/storage-format.md, "Metadata" and "Encryption".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.errors import BadStore, StoreKeyNeeded
from pyjs_spark.store.keys import StreamKey, WrongKey, open_data_key
from pyjs_spark.store.packages import needed

HEADER = struct.Struct("<8sHBBBBHIIQ")
SEAL = struct.Struct("<BBH")  # algorithm, size of the wrapped data key, 0
MAGIC = b"PYJSMETA"
VERSION = 1
STREAM = 1  # kinds of envelopes
PURGE = 5
SEALED = 1
CHECKSUM_SIZE = 8
FLAGS_AT = 11


@dataclass(frozen=True, slots=True)
class Metadata:
    """The contents of one intact copy of the metadata."""

    generation: int
    created_ns: int
    config: dict[str, Any]
    key: StreamKey | None  # data key; None if the stream is not encrypted


def metadata_in(data: bytes, path: str, key: str) -> Metadata | None:
    """Return the metadata of a stream in an envelope, or None if the envelope is damaged or of another kind.

    `key` is the operator's key; "" means none.

    Raises:
        BadStore: a newer version wrote the envelope.
        StoreKeyNeeded: the envelope is encrypted with another key than `key`.
    """
    if not _is_whole(data, STREAM, path):
        return None
    body, data_key = data[HEADER.size : -CHECKSUM_SIZE], None
    if data[FLAGS_AT] & SEALED:
        body, data_key = _opened(body, data[: HEADER.size], path, key)
    said = needed("msgpack", "store directories").unpackb(body, strict_map_key=False)
    generation = HEADER.unpack_from(data)[-1]
    return Metadata(generation, int(said["created_ns"]), said["config"], data_key)


def purge_in(data: bytes, path: str, key: StreamKey | None) -> tuple[str, int] | None:
    """Return the filter and the end sequence of the purge in an envelope.

    The filter "" means all subjects. Messages below the end sequence are removed. The result is None if the envelope
    is incomplete, of another kind, or has no filter.

    Raises:
        BadStore: a newer version wrote the envelope.
        StoreKeyNeeded: the envelope is encrypted with another key than the stream's `key`.
    """
    if not _is_whole(data, PURGE, path):
        return None
    body = data[HEADER.size : -CHECKSUM_SIZE]
    if data[FLAGS_AT] & SEALED:
        body = _opened_with(body, data[: HEADER.size], path, key)
    said = needed("msgpack", "store directories").unpackb(body, strict_map_key=False)
    subject, before_seq = said.get("subject"), said.get("before_seq")
    if not isinstance(subject, str) or not isinstance(before_seq, int) or not 0 < before_seq < 1 << 64:
        return None
    return subject, before_seq


def _is_whole(data: bytes, wanted: int, path: str) -> bool:
    """Return whether `data` is one complete envelope of the kind `wanted`.

    Raises:
        BadStore: a newer version wrote the envelope.
    """
    if len(data) < HEADER.size + CHECKSUM_SIZE or not data.startswith(MAGIC):
        return False
    _, version, kind, flags, *needs, size, _, _ = HEADER.unpack_from(data)
    end = HEADER.size + size
    if len(data) != end + CHECKSUM_SIZE or xxh64(data[:end], 0).to_bytes(8, "little") != data[end:]:
        return False
    if version != VERSION or flags & ~SEALED:
        raise BadStore(
            f"{path} was written by a newer server: it needs version {'.'.join(map(str, needs))} to read"
        )
    return bool(kind == wanted)


def _opened_with(body: bytes, frame: bytes, path: str, key: StreamKey | None) -> bytes:
    """Return the map in an envelope that is encrypted with the stream's data key.

    Raises:
        StoreKeyNeeded: the envelope is encrypted with another key.
    """
    algorithm, wrapped_size, _ = SEAL.unpack_from(body)
    try:
        if key is None:
            raise WrongKey
        return key.open_meta(algorithm, body[SEAL.size + wrapped_size :], frame)
    except WrongKey:
        raise StoreKeyNeeded(f"{path} is encrypted with another key than its stream") from None


def _opened(body: bytes, frame: bytes, path: str, key: str) -> tuple[bytes, StreamKey]:
    if not key:
        raise StoreKeyNeeded(
            f"{path} is encrypted; name a file with the key of the server's configuration by option keyFile"
        )
    algorithm, wrapped_size, _ = SEAL.unpack_from(body)
    wrapped_end = SEAL.size + wrapped_size
    try:
        data_key = open_data_key(key, algorithm, body[SEAL.size : wrapped_end])
        return data_key.open_meta(algorithm, body[wrapped_end:], frame), data_key
    except WrongKey:
        raise StoreKeyNeeded(
            f"{path} is encrypted with another key than the one in keyFile; give the key that the server has now"
        ) from None

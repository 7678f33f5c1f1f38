"""Metadata of a stream: a msgpack map in a checksummed envelope, twice in its directory and once in its segments.

    envelope = "PYJSMETA" version u16 kind u8 flags u8 needs u8 u8 u16 body_size u32 0 u32 generation u64
               body  XXH64 u64

Source: docs/storage-format.md, "Metadata" and "Encryption".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pyjs_spark.errors import BadStore, StoreKeyNeeded
from pyjs_spark.hashing import xxh64
from pyjs_spark.store.keys import StreamKey, WrongKey, open_data_key
from pyjs_spark.store.packages import needed

HEADER = struct.Struct("<8sHBBBBHIIQ")
SEAL = struct.Struct("<BBH")  # algorithm, size of the wrapped data key, 0
MAGIC = b"PYJSMETA"
VERSION = 1
STREAM = 1
SEALED = 1
CHECKSUM_SIZE = 8


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the newest whole copy says."""

    generation: int
    created_ns: int
    config: dict[str, Any]
    key: StreamKey | None  # of an encrypted stream


def metadata_in(data: bytes, path: str, key: str) -> Metadata | None:
    """Return the metadata of a stream in an envelope; None: it is damaged, or of something else.

    `key` is the operator's, "" for none.

    Raises:
        BadStore: a newer version wrote it.
        StoreKeyNeeded: it is encrypted, and not with `key`.
    """
    if len(data) < HEADER.size + CHECKSUM_SIZE or not data.startswith(MAGIC):
        return None
    _, version, kind, flags, *needs, size, _, generation = HEADER.unpack_from(data)
    end = HEADER.size + size
    if len(data) != end + CHECKSUM_SIZE or xxh64(data[:end], 0).to_bytes(8, "little") != data[end:]:
        return None
    if version > VERSION or flags & ~SEALED:
        raise BadStore(
            f"{path} was written by a newer server: it needs version {'.'.join(map(str, needs))} to read"
        )
    if kind != STREAM:
        return None
    body, data_key = data[HEADER.size : end], None
    if flags & SEALED:
        body, data_key = _opened(body, data[: HEADER.size], path, key)
    said = needed("msgpack", "store directories").unpackb(body, strict_map_key=False)
    return Metadata(generation, int(said["created_ns"]), said["config"], data_key)


def _opened(body: bytes, frame: bytes, path: str, key: str) -> tuple[bytes, StreamKey]:
    if not key:
        raise StoreKeyNeeded(
            f"{path} is encrypted; name a file with the key of the server's configuration by option keyFile"
        )
    algorithm, wrapped_size, _ = SEAL.unpack_from(body)
    behind = SEAL.size + wrapped_size
    try:
        data_key = open_data_key(key, algorithm, body[SEAL.size : behind])
        return data_key.open_meta(algorithm, body[behind:], frame), data_key
    except WrongKey:
        raise StoreKeyNeeded(
            f"{path} is encrypted with another key than the one in keyFile; give the key that the server has now"
        ) from None

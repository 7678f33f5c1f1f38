"""The file `tails` of an account, which has the index files of the open segments of the account's streams.

    <account>/tails = envelope of kind 6 *, each of {"streams": {directory of a stream: [number, index file]}}

Source: docs/storage-format.md, "Index files".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache

from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.store.envelope import CHECKSUM_SIZE, HEADER, MAGIC, VERSION
from pyjs_spark.store.packages import needed

TAILS = 6
Signature = tuple[int, ...]
MISSING: Signature = (0,)
Tails = dict[str, tuple[int, bytes]]


def signature(path: str) -> Signature:
    """Return a value that changes when a file changes, or MISSING if the file does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return MISSING
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def tails_signature(messages: str) -> Signature:
    """Return the signature of an account's file `tails`.

    `messages` is the directory of the segments of one of the account's streams.
    """
    return signature(_path_of(messages))


def kept_index(messages: str, number: int) -> bytes | None:
    """Return the index file of a segment from `tails`, or None if `tails` does not have it."""
    tail = _tail_of(messages)
    return tail[1] if tail is not None and tail[0] == number else None


def kept_numbers(messages: str) -> set[int]:
    """Return the numbers of this stream's segments that have an index file in `tails`."""
    tail = _tail_of(messages)
    return set() if tail is None else {tail[0]}


def _tail_of(messages: str) -> tuple[int, bytes] | None:
    now = tails_signature(messages)
    return None if now == MISSING else _read(_path_of(messages), now).get(messages.split("/")[-2])


def _path_of(messages: str) -> str:
    return f"{messages.rsplit('/', 3)[0]}/tails"


@lru_cache(maxsize=1)
def _read(path: str, signature: Signature) -> Tails:
    """Return the index files in the complete envelopes of the file `tails`.

    The result is cached until the signature of the file changes.
    """
    try:
        with open(path, "rb") as file:
            return {name: tail for body in _bodies(file.read()) for name, tail in _entries(body)}
    except OSError:
        return {}


def _bodies(data: bytes) -> Iterator[bytes]:
    """Yield the bodies of complete envelopes."""
    at = 0
    while at >= 0 and len(data) - at >= HEADER.size + CHECKSUM_SIZE:
        magic, version, kind, flags, *_, size, _, _ = HEADER.unpack_from(data, at)
        end = at + HEADER.size + size
        checksum = data[end : end + CHECKSUM_SIZE]
        is_whole = magic == MAGIC and xxh64(data[at:end], 0).to_bytes(8, "little") == checksum
        if is_whole and (version, kind, flags) == (VERSION, TAILS, 0):
            yield data[at + HEADER.size : end]
        at = end + CHECKSUM_SIZE if is_whole else data.find(MAGIC, at + 1)


def _entries(body: bytes) -> Iterator[tuple[str, tuple[int, bytes]]]:
    said = needed("msgpack", "store directories").unpackb(body, strict_map_key=False)
    yield from ((name, (number, index)) for name, (number, index) in said.get("streams", {}).items())

"""The encodings of a stream's segments, for tests that must pass with each of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyjs.store.crypt.keys import AES, CHACHA, KeyRing, StreamKey
from pyjs.store.file.store import FileStore
from pyjs.store.format.image import read_image
from pyjs.store.format.outer_header import CODEC_ZSTD
from pyjs.store.open_files import Release
from pyjs.store.segment.index_file import decrypted


class Chance:
    """Pseudo-random bytes that are the same each time."""

    def __init__(self, seed: bytes = b"") -> None:
        self._state = seed

    def __call__(self, count: int) -> bytes:
        out = b""
        while len(out) < count:
            self._state = hashlib.sha256(self._state).digest()
            out += self._state
        return out[:count]


def a_key(algorithm: int, secret: str = "a secret", chance: Chance | None = None) -> StreamKey:
    return KeyRing(secret, algorithm, chance or Chance(secret.encode())).new_key()


# name -> key and codec of a store
ENCODINGS: dict[str, tuple[StreamKey | None, int]] = {
    "plain": (None, 0),
    "zstd": (None, CODEC_ZSTD),
    "chacha": (a_key(CHACHA), 0),
    "aes": (a_key(AES), 0),
    "chacha and zstd": (a_key(CHACHA), CODEC_ZSTD),
}


def upkeep(store: FileStore) -> int:
    """Do all pending upkeep; return the number of segments that got a new file."""
    done = 0
    while (job := store.begin_upkeep()) is not None:
        error = job()
        assert error is None, error
        store.finish_upkeep(error)
        store.sync_now()
        done += not isinstance(job, Release)
    return done


def image_of(disk: object, path: Path, key: StreamKey | None) -> bytes:
    """Return the plain image of a segment file."""
    return bytes(read_image(disk, str(path), key))  # type: ignore[arg-type]


def plain_index(path: Path, key: StreamKey | None) -> bytes:
    """Return the index in an index file, decrypted."""
    return bytes(decrypted(memoryview(path.read_bytes()), key))

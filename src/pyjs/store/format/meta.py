"""Metadata files: a msgpack map in a checksummed envelope, in two copies.

    envelope = "PYJSMETA" | version u16 | kind u8 | flags u8 | needs u8 u8 u16 | body_size u32 | 0 u32
               | generation u64 | body (msgpack map) | XXH64 u64

Numbers are little-endian; the checksum covers everything before it, with seed 0. The frame is the same in every
version. `needs` is the first pyjs-server version that reads the body; an older server names that version in its
error. Each set flag stands for a feature that the reader must support. There is one flag. If SEALED is set, the body
is encrypted (store/crypt/keys):
    body     = algorithm u8 | size of wrapped u8 | 0 u16 | wrapped data key | nonce | ciphertext | tag

The 32 bytes of the frame are authenticated together with the body. Only the metadata of a stream includes a wrapped
data key.

`<name>.a` and `<name>.b` hold the same map; if both copies are intact, the one with the higher generation is
valid. Each copy is written to a temporary file, synced and renamed, and its directory is synced, before the
other copy is changed. Invariant: at least one copy is intact at any time.

This module knows nothing of the meaning of the map. docs/storage-format.md describes the format for other programs.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgpack
import xxhash

from pyjs.base.disk import Disk, is_shortage, write_file
from pyjs.base.errors import CorruptRecord, PyjsError
from pyjs.store.crypt.keys import NONCE_SIZE, TAG_SIZE, KeyRing, Locked, StreamKey, WrongKey

if TYPE_CHECKING:
    from typing import Any, Final

MAGIC = b"PYJSMETA"
VERSION = 1
NEEDS = (0, 1, 0)  # the first pyjs-server version that reads VERSION
HEADER = struct.Struct("<8sHBBBBHIIQ")
FRAME_SIZE = HEADER.size
CHECKSUM = struct.Struct("<Q")
COPIES = ("a", "b")
SEALED = 1  # flag: the body is encrypted
FLAGS_AT = 11
SEAL = struct.Struct("<BBH")  # algorithm, size of the wrapped data key, zeros

KIND_STREAM: Final = 1
KIND_CONSUMER: Final = 2  # an entry of the list of a stream's consumers (store/state/consumer_list)
KIND_STATE: Final = 3  # the state of a consumer
KIND_WINDOW: Final = (
    4  # written by a clean stop: message ids of a stream's duplicate window (store/format/window_file)
)
KIND_PURGE: Final = 5  # a purge in steps that has begun (store/format/purge_file)
KIND_TAILS: Final = 6  # written by a clean stop: index files of many streams (store/format/tail_file)
KIND_CLUSTER: Final = 7  # the identity of a server's store in a cluster (jetstream/member/identity)


class UnknownFormat(PyjsError):
    """Raised for an intact file in an unsupported version of the format. The file must not be changed."""

    def __init__(self, path: str, version: int, known: int, needs: str) -> None:
        """Create the error for a file whose format has the version `version`.

        `known` is the format version that this server reads. `needs` names the first pyjs-server that reads the file.
        """
        super().__init__(
            f"{path} was written by a newer version: it needs pyjs-server >= {needs}"
            if version >= known
            else f"{path} was written by an older version: it has format {version}, and only {known} is read;"
            " start the pyjs-server that wrote it, and let a mirror copy the stream"
        )
        self.path = path


class Opener:
    """A decrypter of the bodies of one stream's envelopes.

    It unwraps the stream's data key with the configured keys if necessary.
    """

    def __init__(self, key: StreamKey | None = None, key_ring: KeyRing | None = None) -> None:
        self._key_ring = key_ring
        self.key = key
        self.rotated = False  # the data key was unwrapped with the previous key
        self.saw_plain = False  # a body was not encrypted

    def open(self, body: bytes, frame: bytes, path: str) -> bytes:
        """Return the decrypted body of an envelope.

        Raises:
            Locked: no known key decrypts it.
        """
        algorithm, wrapped_size, _ = SEAL.unpack_from(body)
        wrapped, sealed = body[SEAL.size : SEAL.size + wrapped_size], body[SEAL.size + wrapped_size :]
        try:
            if wrapped and self._key_ring is not None:
                self.key, rotated = self._key_ring.open_key(algorithm, wrapped)
                self.rotated |= rotated
            if self.key is None:
                raise Locked(path, "is encrypted: set `key` of jetstream to the key that it was written with")
            return self.key.meta.open(sealed, frame)
        except WrongKey:
            raise Locked(
                path, "is encrypted with another key: set `key` of jetstream to that one, or `prev_key`"
            ) from None


def encode(kind: int, generation: int, values: dict[str, Any], key: StreamKey | None = None) -> bytes:
    """Return the envelope of `values`, encrypted if there is a key."""
    body: bytes = msgpack.packb(values)
    if key is None:
        data = HEADER.pack(MAGIC, VERSION, kind, 0, *NEEDS, len(body), 0, generation) + body
    else:
        data = _sealed(kind, generation, body, key)
    return data + CHECKSUM.pack(xxhash.xxh64_intdigest(data))


def _sealed(kind: int, generation: int, body: bytes, key: StreamKey) -> bytes:
    wrapped = key.wrapped if kind == KIND_STREAM else b""
    size = SEAL.size + len(wrapped) + NONCE_SIZE + len(body) + TAG_SIZE
    frame = HEADER.pack(MAGIC, VERSION, kind, SEALED, *NEEDS, size, 0, generation)
    return frame + SEAL.pack(key.algorithm, len(wrapped), 0) + wrapped + key.meta.seal(body, frame)


def is_sealed(data: bytes) -> bool:
    """Return whether the envelope at the start of `data` is encrypted."""
    return len(data) > FLAGS_AT and data[FLAGS_AT] & SEALED != 0


def envelope_size(data: bytes) -> int:
    """Return the size in bytes of the envelope at the start of `data`, from its header, or 0 if there is none."""
    if len(data) < HEADER.size or not data.startswith(MAGIC):
        return 0
    size: int = HEADER.unpack_from(data)[7]
    return HEADER.size + size + CHECKSUM.size


def intact_generation(data: bytes) -> int | None:
    """Return the generation of the envelope `data`, or None if its size or checksum is wrong."""
    size = envelope_size(data)
    if size == 0 or len(data) != size:
        return None
    end = size - CHECKSUM.size
    if CHECKSUM.unpack_from(data, end)[0] != xxhash.xxh64_intdigest(memoryview(data)[:end]):
        return None
    generation: int = HEADER.unpack_from(data)[-1]
    return generation


def is_torn(data: bytes) -> bool:
    """Return whether `data` is empty or an envelope whose end is missing; zeros at the end of `data` do not count."""
    begun = data.rstrip(b"\0")
    if len(begun) < HEADER.size:
        return MAGIC.startswith(begun[: len(MAGIC)])
    return len(begun) < envelope_size(begun)


def decode(data: bytes, kind: int, path: str, opener: Opener | None = None) -> tuple[int, dict[str, Any]]:
    """Return (generation, values) of an envelope.

    Raises:
        CorruptRecord: the envelope is damaged or of another kind.
        UnknownFormat: another version wrote it.
        Locked: it is encrypted, and `opener` cannot decrypt it.
    """
    size = envelope_size(data)
    if size == 0:
        raise CorruptRecord(path, 0, f"its {len(data)} bytes do not begin as metadata does")
    if len(data) != size:
        raise CorruptRecord(path, 16, f"{len(data)} bytes where {size} were written")
    end, view = size - CHECKSUM.size, memoryview(data)  # a view, so that a large body is not copied
    if CHECKSUM.unpack_from(data, end)[0] != xxhash.xxh64_intdigest(view[:end]):
        raise CorruptRecord(path, end, "its checksum does not match")
    _, version, found, flags, *needs, _, _, generation = HEADER.unpack_from(data)
    if version != VERSION or flags & ~SEALED:
        raise UnknownFormat(path, version, VERSION, ".".join(map(str, needs)))
    if found != kind:
        raise CorruptRecord(path, 10, f"it is of kind {found} where kind {kind} belongs")
    body: bytes | memoryview = view[HEADER.size : end]
    if flags & SEALED:
        if len(body) < SEAL.size:
            raise CorruptRecord(path, HEADER.size, f"its body of {len(body)} bytes is not sealed")
        body = (opener or Opener()).open(bytes(body), data[: HEADER.size], path)
    elif opener is not None:
        opener.saw_plain = True
    try:
        values = msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptRecord(path, HEADER.size, f"its body is no msgpack: {error}") from None
    if not isinstance(values, dict):
        raise CorruptRecord(path, HEADER.size, "its body is no map")
    return generation, values


def save_meta(disk: Disk, directory: str, name: str, data: bytes) -> None:
    """Write both copies of `<directory>/<name>`; the generation in `data` must be higher than the stored one.

    Raises:
        OSError: the write failed; a copy of the old or the new map is still intact.
    """
    for copy in COPIES:
        write_whole(disk, f"{directory}/{name}.tmp", f"{directory}/{name}.{copy}", data)
        disk.sync_dir(directory)


def write_whole(disk: Disk, temporary: str, path: str, data: bytes) -> None:
    """Replace the file at `path` with `data`, atomically; the caller must call sync_dir to make the name durable."""
    write_file(disk, temporary, [data])
    disk.rename(temporary, path)


def load_meta(
    disk: Disk, directory: str, name: str, kind: int, opener: Opener | None = None
) -> tuple[int, dict[str, Any], list[str]]:
    """Return the generation and values of the newest intact copy, and a text about each copy that is not intact.

    Raises:
        CorruptRecord: no copy is intact.
        UnknownFormat: another version wrote one of the copies.
        Locked: one of the copies is encrypted, and `opener` cannot decrypt it.
        FileNotFoundError: neither copy exists.
        OSError: neither copy can be read, or the process is out of file descriptors or memory.
    """
    found: list[tuple[int, dict[str, Any]]] = []
    problems: list[CorruptRecord | OSError] = []
    for copy in COPIES:
        path = f"{directory}/{name}.{copy}"
        try:
            found.append(decode(disk.read_file(path), kind, path, opener))
        except (CorruptRecord, OSError) as error:
            if is_shortage(error):
                raise
            problems.append(error)
    if found:
        generation, values = max(found, key=lambda each: each[0])
        return generation, values, [str(problem) for problem in problems]
    raise min(problems, key=_severity)


def _severity(problem: CorruptRecord | OSError) -> int:
    """Return the sort key of a copy's error: a failing disk is first, then damage, then a missing file."""
    if isinstance(problem, FileNotFoundError):
        return 2
    return 1 if isinstance(problem, CorruptRecord) else 0

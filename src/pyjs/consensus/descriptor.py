"""The descriptor of a payload: the engine replicates it instead of an entry's payload or a snapshot's data.

40 bytes, little-endian; of these the engine reads only the size:

    offset  size
    0       4     size of the payload in bytes; 0: no payload
    4       1     version, 1
    5       3     0
    8       8     time of the leader in ns since the epoch; never decreases within a group
    16      16    XXH3-128 of the payload, its high half first
    32      8     0
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_128_digest

SIZE = 40
VERSION = 1
_FORM = Struct("<IB3sq16s8s")
BRIEF = Struct("<I4xq")  # the size and the time
_SPARE, _SPARE_END = bytes(3), bytes(8)
_TIME_MAX = (1 << 63) - 1


class BadDescriptor(ValueError):
    """Raised if a descriptor is damaged or does not match its payload; the exception's message names the field."""


class Descriptor(NamedTuple):
    """The fields of a payload's descriptor."""

    size: int  # of the payload, in bytes
    time_ns: int
    digest: bytes


def describe(payload: bytes, time_ns: int) -> bytes:
    """Return the descriptor of a payload. `time_ns` is the leader's time in ns since the epoch."""
    assert 0 <= time_ns <= _TIME_MAX
    return _FORM.pack(len(payload), VERSION, _SPARE, time_ns, xxh3_128_digest(payload), _SPARE_END)


def read(data: bytes) -> Descriptor:
    """Return the fields of a descriptor.

    Raises:
        BadDescriptor: the length is wrong, or a field has an invalid value.
    """
    if len(data) != SIZE:
        raise BadDescriptor(f"a descriptor of {len(data)} bytes, not {SIZE}")
    size, version, spare, time_ns, digest, spare_end = _FORM.unpack(data)
    if version != VERSION:
        raise BadDescriptor(f"version {version} of a descriptor, {VERSION} is known")
    if time_ns < 0:
        raise BadDescriptor(f"time {time_ns} before the epoch")
    if spare != _SPARE or spare_end != _SPARE_END:
        raise BadDescriptor("spare bytes that are not 0")
    return Descriptor(size, time_ns, digest)


def size_and_time(data: bytes) -> tuple[int, int]:
    """Return the payload size in bytes and the time in ns since the epoch from a descriptor, without checking it."""
    return BRIEF.unpack_from(data)


def payload_at(data: bytes, at: int, described: bytes) -> bytes:
    """Return the payload at offset `at` of `data`, after checking it against the descriptor `described`.

    Raises:
        BadDescriptor: the descriptor or the payload is damaged.
    """
    if len(described) != SIZE:
        read(described)  # raises the error
    size, version, spare, time_ns, digest, spare_end = _FORM.unpack(described)
    payload = data[at : at + size]
    is_sound = version == VERSION and time_ns >= 0 and spare == _SPARE and spare_end == _SPARE_END
    if not is_sound or len(payload) != size or xxh3_128_digest(payload) != digest:
        check(read(described), payload)  # raises the error
    return payload


def check(descriptor: Descriptor, payload: bytes) -> None:
    """Check that a payload matches its descriptor.

    Raises:
        BadDescriptor: the payload has another size or digest.
    """
    if len(payload) != descriptor.size:
        raise BadDescriptor(f"a payload of {len(payload)} bytes, {descriptor.size} are described")
    if xxh3_128_digest(payload) != descriptor.digest:
        raise BadDescriptor(f"the digest of the payload of {descriptor.size} bytes is wrong")

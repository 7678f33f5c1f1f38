"""The descriptor of a payload: the engine replicates it instead of an entry's payload or a snapshot's data.

40 bytes, little-endian; of these the engine reads only the size:

    offset  size
    0       4     size of the payload in bytes; 0: no payload
    4       1     version, 1
    5       3     0
    8       8     time of the leader in ns since the epoch; never decreases within a group
    16      16    XXH3-128 of the payload, its high half first
    32      8     0

Compiled, because each entry is described on its leader and checked on the others (benchmarks/consensus.py).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_128_digest

cdef enum:
    FORM_VERSION = 1

cdef int64_t SIZE_MAX = 0xffffffff     # bytes of a payload

SIZE = 40
VERSION = FORM_VERSION
_FORM = Struct("<IB3sq16s8s")
_SPARE, _SPARE_END = bytes(3), bytes(8)

cdef packed struct Form:
    uint32_t size
    uint8_t version
    uint8_t spare[3]
    int64_t time_ns
    char digest[16]
    uint64_t spare_end


class BadDescriptor(ValueError):
    """Raised if a descriptor is damaged or does not match its payload; the exception's message names the field."""


class Descriptor(NamedTuple):
    """The fields of a payload's descriptor."""

    size: int  # of the payload, in bytes
    time_ns: int
    digest: bytes


cpdef bytes describe(bytes payload, int64_t time_ns):
    """Return the descriptor of a payload. `time_ns` is the leader's time in ns since the epoch."""
    cdef Form form
    cdef bytes digest = xxh3_128_digest(payload)
    assert time_ns >= 0
    assert PyBytes_GET_SIZE(payload) <= SIZE_MAX
    form.size, form.version, form.time_ns = <uint32_t> PyBytes_GET_SIZE(payload), FORM_VERSION, time_ns
    form.spare[0] = form.spare[1] = form.spare[2] = 0
    form.spare_end = 0
    memcpy(form.digest, PyBytes_AS_STRING(digest), sizeof(form.digest))
    return PyBytes_FromStringAndSize(<char*> &form, sizeof(form))


def read(bytes data not None) -> Descriptor:
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


cpdef bytes payload_at(bytes data, size_t at, bytes described):
    """Return the payload at offset `at` of `data`, after checking it against the descriptor `described`.

    Raises:
        BadDescriptor: the descriptor or the payload is damaged.
    """
    cdef Form form
    cdef bytes payload, digest
    cdef size_t n = PyBytes_GET_SIZE(data), left = n - at if at < n else 0
    if PyBytes_GET_SIZE(described) != sizeof(form):
        read(described)  # raises the error
    memcpy(&form, PyBytes_AS_STRING(described), sizeof(form))
    payload = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + (n - left), min(<size_t> form.size, left))
    digest = xxh3_128_digest(payload)
    if not is_sound(&form) or form.size > left or memcmp(PyBytes_AS_STRING(digest), form.digest, 16) != 0:
        check(read(described), payload)  # raises the error
    return payload


cdef bint is_sound(Form* form) noexcept nogil:
    return (form.version == FORM_VERSION and form.time_ns >= 0 and form.spare_end == 0
            and not (form.spare[0] or form.spare[1] or form.spare[2]))


def check(descriptor, payload) -> None:
    """Check that a payload matches its descriptor.

    Raises:
        BadDescriptor: the payload has another size or digest.
    """
    if len(payload) != descriptor.size:
        raise BadDescriptor(f"a payload of {len(payload)} bytes, {descriptor.size} are described")
    if xxh3_128_digest(payload) != descriptor.digest:
        raise BadDescriptor(f"the digest of the payload of {descriptor.size} bytes is wrong")

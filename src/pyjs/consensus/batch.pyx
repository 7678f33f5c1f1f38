"""Batches: the messages between two nodes. All input from the network is checked here.

A batch, little-endian:

    offset  size
    0       1     version, 1
    1       1     kind, see below
    2       2     0
    4       4     bytes of the frames (kind 1), otherwise 0
    8             the body

| kind | body |
|---|---|
| 1 frames | frames of the engine (docs/raft-frames.md), then the payloads of their entries in the same order |
| 2 fetch | group, index, offset (u64 each): send that part of the snapshot |
| 3 part | group, index, offset (u64 each), then bytes of the snapshot's data |
| 4 done | group, index (u64 each): the snapshot is durable here |
| 5 gone | group, index (u64 each): the sender no longer offers this snapshot |
| 6 lacks | group, peer, boot (u64 each): since its node's start `boot`, that peer may lack acknowledged entries |
| 7 has | group, peer, term, index (u64 each): the last entry of that peer, in answer to 6 |

Sizes and digests of payloads are in the descriptors of their entries, so nothing else is sent for them.
Compiled, because each entry takes several batches of frames (benchmarks/consensus.py).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from pyjs.consensus.descriptor cimport payload_at

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from pyjs.consensus.descriptor import BadDescriptor
from pyjs.consensus.engine import FrameError, payloads_of

cdef packed struct Header:
    uint8_t version
    uint8_t kind
    uint16_t spare
    uint32_t frames_size

cdef enum:
    BATCH_VERSION = 1

VERSION = BATCH_VERSION
# maximum bytes of a batch: an entry with a message of the maximum size fits
SIZE_MAX = (64 << 20) + (1 << 20)
PAYLOAD_MAX = SIZE_MAX - (1 << 16)  # maximum bytes of a payload, so that its frame fits in the same batch
PART_MAX = 1 << 18  # maximum bytes of a snapshot in one batch
_HEADER = Struct("<BBHI")
HEADER_SIZE = _HEADER.size
_PLACE = Struct("<QQQ")
_NAME = Struct("<QQ")
_LAST = Struct("<4Q")


class Kind(IntEnum):
    """The kinds of batches."""

    FRAMES = 1
    FETCH = 2
    PART = 3
    DONE = 4
    GONE = 5
    LACKS = 6
    HAS = 7


cdef int FRAMES_KIND = int(Kind.FRAMES)


class BadBatch(ValueError):
    """Raised if a batch is invalid; no part of it may be used. The exception's message names the invalid field."""


cdef class Frames:
    """Frames for the engine, and the payloads that must be staged before the engine gets the frames."""

    def __init__(self, bytes frames not None, list payloads not None) -> None:
        self.frames, self.payloads = frames, payloads

    def __eq__(self, other, /) -> bool:
        return isinstance(other, Frames) and (self.frames, self.payloads) == (other.frames, other.payloads)


@dataclass(frozen=True, slots=True)
class Fetch:
    """A request for the part of a snapshot's data from byte `offset` on."""

    group: int
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a snapshot's data that begins at byte `offset`."""

    group: int
    index: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a snapshot transfer.

    If `done` is True, the receiver has made the snapshot durable. Otherwise the sender no longer offers the snapshot.
    """

    group: int
    index: int
    done: bool


@dataclass(frozen=True, slots=True)
class Lacks:
    """An announcement that a peer may lack entries that it has acknowledged.

    The entries may be missing since the start of the peer's node with the number `boot`.
    """

    group: int
    peer: int
    boot: int


@dataclass(frozen=True, slots=True)
class Has:
    """The term and index of a peer's last entry, sent in answer to `Lacks`."""

    group: int
    peer: int
    term: int
    index: int


Batch = Frames | Fetch | Part | Outcome | Lacks | Has


cpdef list of_frames(bytes frames, payloads):
    """Return the pieces of a batch with frames of the engine and the payloads of their entries."""
    cdef Header header
    header.version, header.kind, header.spare = BATCH_VERSION, FRAMES_KIND, 0
    header.frames_size = <uint32_t> PyBytes_GET_SIZE(frames)
    return [(<char*> &header)[:sizeof(header)], frames, *payloads]


def of_fetch(group, index, offset) -> list:
    """Return the pieces of a batch that requests the part of a snapshot from byte `offset` on."""
    return [_HEADER.pack(VERSION, Kind.FETCH, 0, 0), _PLACE.pack(group, index, offset)]


def of_part(group, index, offset, data) -> list:
    """Return the pieces of a batch with the part of a snapshot that begins at byte `offset`."""
    return [_HEADER.pack(VERSION, Kind.PART, 0, 0), _PLACE.pack(group, index, offset), data]


def of_outcome(group, index, *, done) -> list:
    """Return the pieces of a batch that ends a snapshot transfer.

    If `done`, this node has received the snapshot and made it durable. Otherwise this node no longer offers it.
    """
    kind = Kind.DONE if done else Kind.GONE
    return [_HEADER.pack(VERSION, kind, 0, 0), _NAME.pack(group, index)]


def of_lacks(group, peer, boot) -> list:
    """Return the pieces of a batch that announces that a peer may have lost entries, see `Lacks`."""
    return [_HEADER.pack(VERSION, Kind.LACKS, 0, 0), _PLACE.pack(group, peer, boot)]


def of_has(group, peer, term, index) -> list:
    """Return the pieces of a batch with the term and index of a peer's last entry, in answer to `Lacks`."""
    return [_HEADER.pack(VERSION, Kind.HAS, 0, 0), _LAST.pack(group, peer, term, index)]


cpdef read(bytes data, node=0):
    """Return the content of a batch, after checking its payloads against their descriptors.

    Raises:
        BadBatch: the batch is invalid, or has a frame that is not from a peer on `node` (0: any node).
    """
    cdef Header header
    if not HEADER_SIZE <= len(data) <= SIZE_MAX:
        raise BadBatch(f"size: a batch of {len(data)} bytes, not {HEADER_SIZE} to {SIZE_MAX}")
    memcpy(&header, PyBytes_AS_STRING(data), sizeof(header))
    if header.version == BATCH_VERSION and header.kind == FRAMES_KIND and header.spare == 0:
        return read_frames(data, header.frames_size, node)
    version, kind, spare, frames_size = _HEADER.unpack_from(data)
    if version != VERSION:
        raise BadBatch(f"version: {version}, {VERSION} is known")
    if spare:
        raise BadBatch(f"spare bytes: {spare}, not 0")
    if frames_size:
        raise BadBatch(f"bytes of the frames: {frames_size} in a batch of kind {kind}")
    if kind in (Kind.FETCH, Kind.PART, Kind.LACKS):
        return read_place(data, kind)
    if kind not in (Kind.DONE, Kind.GONE, Kind.HAS):
        raise BadBatch(f"kind: {kind} is not known")
    if len(data) != HEADER_SIZE + (_LAST if kind == Kind.HAS else _NAME).size:
        raise BadBatch(f"size: {len(data)} bytes in a batch of kind {kind}")
    if kind == Kind.HAS:
        return Has(*_LAST.unpack_from(data, HEADER_SIZE))
    group, index = _NAME.unpack_from(data, HEADER_SIZE)
    return Outcome(group, index, kind == Kind.DONE)


cdef object read_place(bytes data, int kind):
    body = HEADER_SIZE + _PLACE.size
    size = len(data) - body
    if not (0 < size <= PART_MAX if kind == Kind.PART else size == 0):
        raise BadBatch(f"size: {len(data)} bytes in a batch of kind {kind}")
    group, index, offset = _PLACE.unpack_from(data, HEADER_SIZE)
    if kind == Kind.FETCH:
        return Fetch(group, index, offset)
    if kind == Kind.LACKS:
        return Lacks(group, index, offset)
    return Part(group, index, offset, data[body:])


cdef Frames read_frames(bytes data, size_t frames_size, node):
    cdef size_t at = sizeof(Header) + frames_size, size = PyBytes_GET_SIZE(data)
    cdef bytes frames, payload
    cdef list payloads = []
    if frames_size == 0 or at > size:
        raise BadBatch(f"bytes of the frames: {frames_size} in a batch of {size}")
    frames = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + sizeof(Header), frames_size)
    try:
        entries = payloads_of(frames, node)
    except FrameError as error:
        raise BadBatch(f"frames: {error}") from None
    for group, index, term, body in entries:
        try:
            payload = payload_at(data, at, body)
        except BadDescriptor as error:
            raise BadBatch(f"entry {index} of group {group}: {error}") from None
        at += PyBytes_GET_SIZE(payload)
        payloads.append(((group, index, term), payload))
    if at != size:
        raise BadBatch(f"size: {size - at} bytes after the last payload")
    return Frames(frames, payloads)

"""Frames of the engine for other nodes, together with the payloads of their entries.

The number of unsent bytes for each node is limited; above the limit, frames with entries are dropped. A frame is
also dropped if a payload cannot be read. The engine sends dropped frames again. Frames without entries
(votes, heartbeats, answers) are always sent.
Compiled, because each entry takes several batches of frames (benchmarks/consensus.py).
"""
from pyjs.consensus.batch cimport of_frames
from pyjs.consensus.payloads cimport Payloads

from struct import Struct

from pyjs.base.errors import CorruptRecord, PyjsError
from pyjs.consensus import batch
from pyjs.consensus.payloads import Gone

WINDOW = 4 << 20  # bytes of payloads that may wait for one node; a single entry may be larger
BATCH_SIZE = 1 << 20  # bytes of payloads after which a new batch begins
# The fields of a frame that this module reads (docs/raft-frames.md).
_FRAME = Struct("<I5xB2xI")
_APPEND = 1
_ENTRIES_AT = 104
_ENTRY_SIZE = 56
_KIND_AT = 8  # offset of the kind in an entry
_DATA = 1


class _Load:
    """A batch to which frames are being added."""

    __slots__ = ("frames", "payload_size", "payloads", "size")

    def __init__(self) -> None:
        self.frames = []
        self.payloads = []
        self.payload_size = 0
        self.size = batch.HEADER_SIZE

    def add(self, frame, payloads, size) -> None:
        self.frames.append(frame)
        self.payloads += payloads
        self.payload_size += size
        self.size += len(frame) + size


cdef class Outbox:
    """A sender that passes the engine's frames, together with the payloads of their entries, to other nodes."""

    def __init__(self, peers, Payloads payloads not None, text_log) -> None:
        self.peers, self.payloads, self.text_log = peers, payloads, text_log
        self.damaged, self.unreadable = {}, set()

    cpdef send(self, batches):
        """Send frames of the engine to other nodes.

        Each item is the number of a node, concatenated frames, and the keys of the payloads of their entries.
        """
        for node, frames, keys in batches:
            if not keys:
                self.peers.send(node, of_frames(frames, ()))
            else:
                self.send_entries(node, frames, keys)

    cdef send_entries(self, node, bytes frames, list keys):
        """Send frames with entries to a node, in one batch if their payloads are in memory and small enough."""
        free = WINDOW - self.peers.pending_size(node)
        payloads = self.payloads.recent_of(keys, min(free, BATCH_SIZE))
        if payloads is not None:
            self.peers.send(node, of_frames(frames, payloads))
        else:
            self.send_parts(node, frames, keys, free)

    cdef send_parts(self, node, bytes frames, list keys, free):
        """Send frames in batches of limited size; drop frames with entries that cannot be read or sent now."""
        cdef set gaps = set()   # groups with a dropped frame: the receiver would refuse their later frames
        load = _Load()
        for frame, wanted in split(frames, keys):
            payloads = []
            if wanted:
                payloads = self.read(wanted) if free > 0 and wanted[0][0] not in gaps else None
            size = sum(map(len, payloads or ()))
            if payloads is None or size > batch.PAYLOAD_MAX:
                self.dropped += 1
                gaps.add(wanted[0][0])
                continue
            if load.size + len(frame) + size > batch.SIZE_MAX:
                self.send_load(node, load)
                load = _Load()
            load.add(frame, payloads, size)
            free -= size
            if load.payload_size >= BATCH_SIZE:
                self.send_load(node, load)
                load = _Load()
        self.send_load(node, load)

    cdef send_load(self, node, load):
        if load.frames:
            self.peers.send(node, of_frames(b"".join(load.frames), load.payloads))

    cdef list read(self, list keys):
        """Return the payloads of one frame, or None if one cannot be read; record damage in `damaged`."""
        try:
            return [self.payloads.get(key) for key in keys]
        except Gone:  # the engine will send the present content of its log instead
            return None
        except CorruptRecord as error:
            self.damaged[keys[0][0]] = error
            return None
        except (PyjsError, OSError) as error:
            group = keys[0][0]
            if group not in self.unreadable:
                self.unreadable.add(group)
                self.text_log.error(f"An entry of group {group} cannot be sent to another node: {error}")
            return None


def split(bytes frames not None, keys):
    """Yield each of the concatenated frames, with the keys of its entries that have payloads."""
    at = used = 0
    while at < len(frames):
        size, kind, count = _FRAME.unpack_from(frames, at)
        wanted = 0
        if kind == _APPEND:
            first = at + _ENTRIES_AT + _KIND_AT
            wanted = sum(frames[first + entry * _ENTRY_SIZE] == _DATA for entry in range(count))
        yield frames[at : at + size], keys[used : used + wanted]
        at += size
        used += wanted

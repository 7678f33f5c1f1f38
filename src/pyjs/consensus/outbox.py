"""Frames of the engine for other nodes, together with the payloads of their entries.

The number of unsent bytes for each node is limited; above the limit, frames with entries are dropped. A frame is
also dropped if a payload cannot be read. The engine sends dropped frames again. Frames without entries
(votes, heartbeats, answers) are always sent.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from pyjs.base.errors import CorruptRecord, PyjsError
from pyjs.consensus import batch
from pyjs.consensus.payloads import Gone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyjs.base.log import Log
    from pyjs.consensus.payloads import Key, Payloads
    from pyjs.consensus.seams import Peers

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
        self.frames: list[bytes] = []
        self.payloads: list[bytes] = []
        self.payload_size = 0
        self.size = batch.HEADER_SIZE

    def add(self, frame: bytes, payloads: Sequence[bytes], size: int) -> None:
        self.frames.append(frame)
        self.payloads += payloads
        self.payload_size += size
        self.size += len(frame) + size


class Outbox:
    """A sender that passes the engine's frames, together with the payloads of their entries, to other nodes."""

    def __init__(self, peers: Peers, payloads: Payloads, text_log: Log) -> None:
        self._peers = peers
        self._payloads = payloads
        self._text_log = text_log
        self.dropped = 0  # number of frames with entries that were dropped
        # damaged records by group; the owner empties the dict, and closes these groups
        self.damaged: dict[int, CorruptRecord] = {}
        self._unreadable: set[int] = set()  # groups whose damage was written to the text log

    def send(self, batches: Sequence[tuple[int, bytes, list[Key]]]) -> None:
        """Send frames of the engine to other nodes.

        Each item is the number of a node, concatenated frames, and the keys of the payloads of their entries.
        """
        for node, frames, keys in batches:
            if not keys:
                self._peers.send(node, batch.of_frames(frames, ()))
            else:
                self._send_entries(node, frames, keys)

    def _send_entries(self, node: int, frames: bytes, keys: list[Key]) -> None:
        """Send frames with entries to a node, in one batch if their payloads are in memory and small enough."""
        free = WINDOW - self._peers.pending_size(node)
        payloads = self._payloads.recent_of(keys, min(free, BATCH_SIZE))
        if payloads is not None:
            self._peers.send(node, batch.of_frames(frames, payloads))
        else:
            self._send_parts(node, frames, keys, free)

    def _send_parts(self, node: int, frames: bytes, keys: Sequence[Key], free: int) -> None:
        """Send frames in batches of limited size; drop frames with entries that cannot be read or sent now."""
        gaps: set[int] = set()  # groups with a dropped frame: the receiver would refuse their later frames
        load = _Load()
        for frame, wanted in split(frames, keys):
            payloads: list[bytes] | None = []
            if wanted:
                payloads = self._read(wanted) if free > 0 and wanted[0][0] not in gaps else None
            size = sum(map(len, payloads or ()))
            if payloads is None or size > batch.PAYLOAD_MAX:
                self.dropped += 1
                gaps.add(wanted[0][0])
                continue
            if load.size + len(frame) + size > batch.SIZE_MAX:
                self._send_load(node, load)
                load = _Load()
            load.add(frame, payloads, size)
            free -= size
            if load.payload_size >= BATCH_SIZE:
                self._send_load(node, load)
                load = _Load()
        self._send_load(node, load)

    def _send_load(self, node: int, load: _Load) -> None:
        if load.frames:
            self._peers.send(node, batch.of_frames(b"".join(load.frames), load.payloads))

    def _read(self, keys: Sequence[Key]) -> list[bytes] | None:
        """Return the payloads of one frame, or None if one cannot be read; record damage in `damaged`."""
        try:
            return [self._payloads.get(key) for key in keys]
        except Gone:  # the engine will send the present content of its log instead
            return None
        except CorruptRecord as error:
            self.damaged[keys[0][0]] = error
            return None
        except (PyjsError, OSError) as error:
            group = keys[0][0]
            if group not in self._unreadable:
                self._unreadable.add(group)
                self._text_log.error(f"An entry of group {group} cannot be sent to another node: {error}")
            return None


def split(frames: bytes, keys: Sequence[Key]) -> Iterator[tuple[bytes, Sequence[Key]]]:
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

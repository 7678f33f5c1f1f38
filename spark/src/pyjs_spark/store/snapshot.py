"""All segments of a stream combined: their sequences and removals. A damaged stream raises an error.

A segment may have records about other segments (removals, the first sequence), and its end may be missing. Both are
handled as a server handles them at its start. A directory in use changes during the read. A snapshot has each file
as it was when the file was opened, and files are opened in order. So the snapshot has everything that was written
before the first file was opened, and later messages up to some point without a gap. Files that look damaged are read
again before an error is raised, since a write may be in progress.

A process caches the contents of a segment until a file of the segment changes.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pyjs_spark.decode.entries import ERASED
from pyjs_spark.store.contents import Contents
from pyjs_spark.store.directory import StreamPlace, damaged_store, segment_numbers
from pyjs_spark.store.image import Image, Unusable, open_image
from pyjs_spark.store.index_file import fits, index_in
from pyjs_spark.store.purge import Purge, matching, purge_of
from pyjs_spark.store.scan import scanned
from pyjs_spark.store.tails import Signature, kept_index, kept_numbers, signature, tails_signature
from pyjs_spark.subjects import filters_of

TRIES = 5  # attempts to read files that seem damaged, since a write may be in progress
REMEMBERED_MAX = 100_000  # maximum number of segments whose contents are cached


@dataclass(frozen=True, slots=True)
class _Segment:
    """The cached contents of a segment."""

    contents: Contents | None  # None: the file is new, or no server has used it
    is_ended: bool = True  # whether the file's end is known to be complete


_remembered: dict[str, tuple[Signature, _Segment]] = {}


class Snapshot:
    """The contents of a stream at one moment, without entries.

    `load` returns the contents of a segment with its entries.
    """

    def __init__(self, stream: StreamPlace) -> None:
        """Read all segments of a stream.

        Raises:
            Unusable: a segment is damaged or missing, or a write is in progress.
            BadStore: another version wrote a file.
            StoreKeyNeeded: a file is encrypted with another key.
            OSError: a file cannot be read.
        """
        self.stream = stream
        self.segments: list[Contents] = []
        self.floor = 0
        self.last_seq = 0
        self._cut = ""  # path of the previous segment, if the end of that segment is missing
        # Sequences of segments that are missing, and their paths.
        self._absent: list[tuple[int, int, str]] = []
        self._removals: list[Any] = []
        purges = {purge_of(stream)}
        self._build()
        purges.add(purge_of(stream))  # read twice, since a purge may have begun or ended during the read
        for purge in purges:
            if purge is not None:
                self._end_purge(purge)
        removed = np.concatenate(self._removals) if self._removals else np.zeros(0, np.uint64)
        self.removed: Any = np.unique(removed)
        for low, high, path in self._absent:
            low = max(low, self.floor)
            if low < high and len(self._removed_between(low, high)) < high - low:
                raise Unusable(f"{path} is missing; its index file is there")
        self.first_seq = self._first_live()  # for an empty stream, the sequence of the next message

    def _first_live(self) -> int:
        for segment in self.segments:
            if segment.next_seq > self.floor:
                rows = self.live(load(self.stream, segment.number).entries)
                if len(rows):
                    return int(rows["seq"][0])
        return self.last_seq + 1

    @property
    def is_consumed(self) -> bool:
        """Whether consumers remove messages by reading them, which is no loss."""
        return bool(self.stream.metadata.config.get("retention", "limits") != "limits")

    @property
    def messages(self) -> int:
        """The approximate number of messages; exact if no sequence is missing."""
        return sum(self._live_count(segment) for segment in self.segments)

    @property
    def size(self) -> int:
        """The approximate size of the stream's messages in bytes."""
        return sum(
            segment.message_bytes * self._live_count(segment) // segment.messages
            for segment in self.segments
            if segment.messages
        )

    def live(self, rows: Any) -> Any:
        """Return the entries of messages that are not removed."""
        if not len(rows):
            return rows
        seqs = rows["seq"]
        gone = self._removed_between(int(seqs[0]), int(seqs[-1]) + 1)
        keep = (seqs >= np.uint64(self.floor)) & (rows["flags"] & ERASED == 0)
        if len(gone):
            keep &= ~np.isin(seqs, gone)
        return rows if keep.all() else rows[keep]

    def _removed_between(self, low: int, high: int) -> Any:
        """Return the sequences in [low, high) that were removed one by one."""
        begin, end = np.searchsorted(self.removed, np.array([low, max(low, high)], np.uint64))
        return self.removed[begin:end]

    def is_removed(self, seq: int) -> bool:
        """Return whether it is known that the message with this sequence was removed."""
        return seq < self.floor or len(self._removed_between(seq, seq + 1)) > 0

    # -- one segment after another ----------------------------------------------------------------------------------

    def _build(self) -> None:
        directory = self.stream.messages
        names = os.listdir(directory)
        present = set(segment_numbers(names, ".seg"))
        for number in sorted(present | set(segment_numbers(names, ".idx")) | kept_numbers(directory)):
            if number in present:
                self._add(number)
            else:
                self._add_absent(number)

    def _add(self, number: int) -> None:
        """Add the contents of one segment.

        Raises:
            Unusable: the segment, or the end of the segment before it, is damaged.
        """
        segment = _recalled(self.stream, number)
        found, path = segment.contents, _path(self.stream, number)
        if found is None or found.incarnation != self.stream.metadata.created_ns:
            return  # an empty segment, or a segment of a deleted stream with the same name
        if found.base_seq <= self.last_seq:
            raise Unusable(f"{path} is damaged at byte 0: it repeats sequences of the segment before")
        if self._cut and self.last_seq + 1 < found.base_seq:
            raise Unusable(f"{self._cut} is damaged: its end is missing")
        self._cut = "" if segment.is_ended else path
        self.last_seq = found.next_seq - 1
        self._hear(found)
        self.segments.append(found)

    def _add_absent(self, number: int) -> None:
        """Add the index file of a missing segment."""
        known = _index_of(self.stream, number)
        if known is None or known.incarnation != self.stream.metadata.created_ns:
            return
        if known.base_seq <= self.last_seq:
            return
        self._hear(known)
        self._absent.append((known.base_seq, known.next_seq, _path(self.stream, number)))
        self.last_seq = known.next_seq - 1

    def _end_purge(self, purge: Purge) -> None:
        """Treat all messages that an unfinished purge removes as removed, as a server does at its start."""
        end_seq = min(purge.before_seq, self.last_seq + 1)
        if not purge.subject:
            self.floor = max(self.floor, end_seq)
            return
        filters = filters_of([purge.subject])
        for segment in self.segments:
            if segment.base_seq >= end_seq:
                break
            with closing(_opened(self.stream, segment.number)) as image:
                contents = contents_of(self.stream, image, segment.number)
                rows = contents.entries[contents.entries["seq"] < np.uint64(end_seq)]
                self._removals.append(rows["seq"][matching(contents, rows, image, filters)])

    def _hear(self, found: Contents) -> None:
        self.floor = max(self.floor, found.floor)
        self._removals.append(found.removals & np.uint64((1 << 63) - 1))

    def _live_count(self, segment: Contents) -> int:
        below = min(max(0, self.floor - segment.base_seq), segment.messages)
        gone = self._removed_between(max(segment.base_seq, self.floor), segment.next_seq)
        return max(0, segment.messages - below - len(gone))


def take(stream: StreamPlace) -> Snapshot:
    """Return the current contents of a stream.

    Raises:
        BadStore: the stream is damaged, or another version wrote a file.
        StoreKeyNeeded: a file is encrypted with another key.
        OSError: a file cannot be read.
    """
    problem = ""
    for _ in range(TRIES):
        try:
            return Snapshot(stream)
        except Unusable as error:
            if problem == str(error):
                break
            problem = str(error)
            _remembered.clear()
        except FileNotFoundError:  # a segment was removed after the directory was listed
            continue
    if problem:
        raise damaged_store(stream.messages, problem)
    return Snapshot(stream)


def load(stream: StreamPlace, number: int) -> Contents:
    """Return the contents of a segment, with its entries.

    Raises:
        FileNotFoundError: the segment was removed meanwhile, or the stream was re-created since.
        Unusable: the segment is damaged.
    """
    with closing(_opened(stream, number)) as image:
        return contents_of(stream, image, number)


def _opened(stream: StreamPlace, number: int) -> Image:
    return open_image(_path(stream, number), stream.metadata.key)


def contents_of(stream: StreamPlace, image: Image, number: int, is_doubted: bool = False) -> Contents:
    """Return the contents of an open segment; if `is_doubted`, the index file is not used.

    Raises:
        FileNotFoundError: the stream was re-created since.
        Unusable: the segment is damaged.
    """
    known = None if is_doubted else _index_of(stream, number)
    found = known if known is not None and fits(known, image) else scanned(image, number)
    if found.incarnation != stream.metadata.created_ns:
        raise FileNotFoundError(f"{image.path} belongs to a stream that was re-created since")
    return found


def _recalled(stream: StreamPlace, number: int) -> _Segment:
    """Return the contents of a segment, which are cached until the segment's files change.

    Raises:
        Unusable: the segment is damaged.
    """
    path = _path(stream, number)
    now = (*signature(path), *signature(_index_path(path)), *tails_signature(stream.messages))
    kept = _remembered.get(path)
    if kept is None or kept[0] != now:
        if len(_remembered) >= REMEMBERED_MAX:
            _remembered.clear()
        kept = _remembered[path] = (now, _read(stream, number))
    return kept[1]


def _read(stream: StreamPlace, number: int) -> _Segment:
    known = _index_of(stream, number)
    with closing(_opened(stream, number)) as image:
        if known is not None and fits(known, image):
            return _Segment(known.summary())
        if _is_blank(image.path):
            if known is not None:
                raise image.damage(0, "it is empty; its index file is not")
            return _Segment(None)
        found = scanned(image, number)
        if known is not None and _is_cut_off(found, known):
            raise image.damage(found.end, f"its end is missing, up to sequence {known.next_seq - 1}")
        return _Segment(found.summary(), found.is_sealed or (image.marked and found.end == image.size))


def _is_cut_off(found: Contents, known: Contents) -> bool:
    said = (known.base_seq, known.number, known.incarnation)
    is_same = said == (found.base_seq, found.number, found.incarnation)
    # If the segment is at least as long as its index file states, the index file lacks only newer records.
    return is_same and not found.is_sealed and found.end < known.end


def _index_of(stream: StreamPlace, number: int) -> Contents | None:
    kept = kept_index(stream.messages, number)
    found = None if kept is None else index_in(kept, stream.metadata.key)
    if found is not None:
        return found
    try:
        with open(_index_path(_path(stream, number)), "rb") as file:
            return index_in(file.read(), stream.metadata.key)
    except OSError:
        return None


def _is_blank(path: str) -> bool:
    """Return whether a file contains only zeros."""
    with open(path, "rb") as file:
        return not any(any(block) for block in iter(partial(file.read, 1 << 20), b""))


def _path(stream: StreamPlace, number: int) -> str:
    return f"{stream.messages}/{number:08d}.seg"


def _index_path(path: str) -> str:
    return f"{path.removesuffix('.seg')}.idx"

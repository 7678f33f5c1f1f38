"""All segments of a stream combined: sequences, removals and losses.

Statements of a segment about others (removals, the first sequence, a missing end) are combined as in a start of the
server. A directory in use changes meanwhile: a snapshot is of the files as each was when it was opened, in
order; so it has everything that was written before the first was opened, and of what comes later a part without gaps.
Apparent damage is read again before it is believed, since a write may be under way.

The contents of a segment are cached in this process, as long as its files are the same.
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
from pyjs_spark.store.directory import StreamPlace, segment_numbers
from pyjs_spark.store.image import Image, Unusable, open_image
from pyjs_spark.store.index_file import FOOTER_SIZE, fits, index_in
from pyjs_spark.store.purge import Purge, matching, purge_of
from pyjs_spark.store.scan import scanned
from pyjs_spark.store.tails import kept_index, kept_numbers, tails_signature

SEGMENT_SIZE = 8 << 20
RECORD_MIN = 41  # bytes that a message takes at least
TRIES = 5  # snapshots of files that change until one is believed
REMEMBERED_MAX = 100_000  # segments

Signature = tuple[int, ...]
_remembered: dict[str, tuple[Signature, Contents | None, Contents | None]] = {}


@dataclass(frozen=True, slots=True)
class Lost:
    """Sequences with unreadable messages among them."""

    low: int
    high: int  # exclusive
    why: str


class Snapshot:
    """The contents of a stream at one moment, without entries; `load` returns a segment with them."""

    def __init__(self, stream: StreamPlace) -> None:
        """Read all segments. Raises BadStore, StoreKeyNeeded, OSError."""
        self.stream = stream
        self.segments: list[Contents] = []
        self.floor = 0
        self.last_seq = 0
        self.lost: list[Lost] = []
        self.problems: list[str] = []
        self._cut = 0  # messages that the missing end of the segment before may have held, at most
        self._end_lost = ""  # where the last record of the segment before is damaged
        self._removals: list[Any] = []
        purges = {purge_of(stream)}
        self._build()
        purges.add(purge_of(stream))  # one that began, or ended, meanwhile
        for purge in purges:
            if purge is not None:
                self._end_purge(purge)
        removed = np.concatenate(self._removals) if self._removals else np.zeros(0, np.uint64)
        self.removed: Any = np.unique(removed)
        self.lost = [each for each in self.lost if self._matters(each)]
        # Of the first message, also if it is lost; of the next one to come if there is none.
        lost = min((max(each.low, self.floor) for each in self.lost), default=self.last_seq + 1)
        self.first_seq = min(lost, self._first_live())

    def _first_live(self) -> int:
        for segment in self.segments:
            if segment.next_seq > self.floor:
                rows = self.live(load(self.stream, segment.number, segment.base_seq).entries)
                if len(rows):
                    return int(rows["seq"][0])
        return self.last_seq + 1

    @property
    def is_consumed(self) -> bool:
        """Whether consumers remove messages by reading them, which is no loss."""
        return bool(self.stream.metadata.config.get("retention", "limits") != "limits")

    @property
    def messages(self) -> int:
        """Approximate number of messages; exact where no sequence is missing."""
        return sum(self._live_count(segment) for segment in self.segments)

    @property
    def size(self) -> int:
        """Bytes of these messages, about."""
        return sum(
            segment.message_bytes * self._live_count(segment) // segment.messages
            for segment in self.segments
            if segment.messages
        )

    def live(self, rows: Any) -> Any:
        """Return the entries of messages that were not removed."""
        if not len(rows):
            return rows
        seqs = rows["seq"]
        gone = self._removed_between(int(seqs[0]), int(seqs[-1]) + 1)
        keep = (seqs >= np.uint64(self.floor)) & (rows["flags"] & ERASED == 0)
        if len(gone):
            keep &= ~np.isin(seqs, gone)
        return rows if keep.all() else rows[keep]

    def _removed_between(self, low: int, high: int) -> Any:
        """Return the sequences of [low, high) that were removed one by one."""
        begin, end = np.searchsorted(self.removed, np.array([low, max(low, high)], np.uint64))
        return self.removed[begin:end]

    def is_removed(self, seq: int) -> bool:
        """Return whether a sequence is known to hold no message any more."""
        return seq < self.floor or len(self._removed_between(seq, seq + 1)) > 0

    # -- one segment after the other --------------------------------------------------------------------------------

    def _build(self) -> None:
        directory = self.stream.messages
        names = os.listdir(directory)
        present = set(segment_numbers(names, ".seg"))
        last = max(present, default=0)
        for number in sorted(present | set(segment_numbers(names, ".idx")) | kept_numbers(directory)):
            if number in present:
                self._add(number, number == last)
            else:
                known = _index_of(self.stream, number)
                self._add_lost_segment(number, known, "is missing")
        if self._end_lost:
            self.last_seq += 1
            self.lost.append(Lost(self.last_seq, self.last_seq + 1, self._end_lost))

    def _add(self, number: int, is_last: bool) -> None:
        """Take what one segment says."""
        found, facts, known = _recalled(self.stream, number, self.last_seq + 1)
        path = f"{self.stream.messages}/{number:08d}.seg"
        if found is None and known is None and _is_blank(path):
            return  # just made, or never used
        if found is None:
            self.problems.append(f"{path} cannot be read: its header or its table is damaged")
            self._add_lost_segment(number, known, "cannot be read")
            return
        if found.incarnation != self.stream.metadata.created_ns or found.base_seq <= self.last_seq:
            self.problems.append(f"{path} belongs to another stream or repeats sequences: it is left out")
            return
        self.problems += [f"{path} {problem}" for problem in found.problems]
        is_ended = facts.is_marked and found.end == facts.size and not is_last
        self._bridge(found.base_seq)
        if not found.is_from_index and known is not None and self._is_cut_off(found, known):
            self.lost.append(Lost(found.next_seq, known.next_seq, f"{path}: its end is missing"))
            self._hear(known)
            self.last_seq = known.next_seq - 1
        else:
            self._end_lost = f"{path}: its last record is damaged" if found.is_end_lost else ""
            self.last_seq = max(self.last_seq, found.next_seq - 1)
            if not (found.is_from_index or is_ended or found.is_sealed or self._lost_footer(found)):
                self._cut = max(facts.size, SEGMENT_SIZE) // RECORD_MIN
        self._hear(found)
        self.lost += [Lost(first, end + 1, f"{path}: records are damaged") for first, end in found.lost]
        self.segments.append(found)

    def _bridge(self, base_seq: int) -> None:
        """Continue at `base_seq`; the gap is a loss if the end of the previous segment is missing."""
        if self._cut and self.last_seq + 1 < base_seq:
            high = min(base_seq, self.last_seq + 1 + self._cut)
            self.lost.append(
                Lost(self.last_seq + 1, high, f"{self.stream.messages}: the end of a segment is missing")
            )
        self._cut = 0
        self._end_lost = ""
        self.last_seq = max(self.last_seq, base_seq - 1)

    def _end_purge(self, purge: Purge) -> None:
        """Treat the remaining messages of an unfinished purge as removed: a start of the server removes them."""
        end_seq = min(purge.before_seq, self.last_seq + 1)
        if not purge.subject:
            self.floor = max(self.floor, end_seq)
            return
        filters = [purge.subject.encode().split(b".")]
        for segment in self.segments:
            if segment.base_seq >= end_seq:
                break
            with closing(_opened(self.stream, segment.number)) as image:
                contents = contents_of(self.stream, image, segment.number, segment.base_seq)
                rows = contents.entries[contents.entries["seq"] < np.uint64(end_seq)]
                self._removals.append(rows["seq"][matching(contents, rows, image, filters)])

    def _add_lost_segment(self, number: int, known: Contents | None, what: str) -> None:
        """Count the messages of a missing segment as lost, according to its index file."""
        path = f"{self.stream.messages}/{number:08d}.seg"
        if (
            known is None
            or known.incarnation != self.stream.metadata.created_ns
            or known.base_seq <= self.last_seq
        ):
            if what != "is missing":  # how far it reached is told by the next segment, if there is one
                self._cut = max(self._cut, SEGMENT_SIZE // RECORD_MIN)
                self._end_lost = f"{path} {what}"
            return
        self._bridge(known.base_seq)
        self._hear(known)
        self.lost.append(Lost(known.base_seq, known.next_seq, f"{path} {what}"))
        self.last_seq = max(self.last_seq, known.next_seq - 1)

    def _hear(self, found: Contents) -> None:
        self.floor = max(self.floor, found.floor)
        self._removals.append(found.removals & np.uint64((1 << 63) - 1))

    @staticmethod
    def _is_cut_off(found: Contents, known: Contents) -> bool:
        is_same = (found.base_seq, found.number) == (known.base_seq, known.number)
        return is_same and not found.is_sealed and found.end < known.end and found.next_seq < known.next_seq

    @staticmethod
    def _lost_footer(found: Contents) -> bool:
        return any(each.startswith(f"at {found.end}: {FOOTER_SIZE} bytes") for each in found.problems)

    def _matters(self, lost: Lost) -> bool:
        """Return whether any of the lost sequences may still have been a message."""
        low, high = max(lost.low, self.floor), lost.high
        return low < high and len(self._removed_between(low, high)) < high - low

    def _live_count(self, segment: Contents) -> int:
        below = min(max(0, self.floor - segment.base_seq), segment.messages)
        gone = self._removed_between(max(segment.base_seq, self.floor), segment.next_seq)
        return max(0, segment.messages - below - len(gone))


@dataclass(frozen=True, slots=True)
class _Facts:
    """The state of the file of a segment."""

    size: int  # of the image
    is_marked: bool


_facts: dict[str, _Facts] = {}
_NO_FILE = _Facts(0, False)


def take(stream: StreamPlace) -> Snapshot:
    """Return the current contents of the stream. Raises BadStore, StoreKeyNeeded, OSError."""
    found: Snapshot | None = None
    for _ in range(TRIES):
        try:
            again = Snapshot(stream)
        except (FileNotFoundError, Unusable):  # removed or changed since the directory was listed
            continue
        if not again.lost and not again.problems:
            return again
        if found is not None and (again.lost, again.problems) == (found.lost, found.problems):
            return again
        found = again
        _remembered.clear()
    return found if found is not None else Snapshot(stream)


def load(stream: StreamPlace, number: int, base_seq: int) -> Contents:
    """Return a segment with its entries; see contents_of().

    Raises:
        FileNotFoundError: it was removed meanwhile.
        Unusable: it cannot be read.
    """
    with closing(_opened(stream, number)) as image:
        return contents_of(stream, image, number, base_seq)


def _opened(stream: StreamPlace, number: int) -> Image:
    return open_image(f"{stream.messages}/{number:08d}.seg", stream.metadata.key)


def contents_of(
    stream: StreamPlace, image: Image, number: int, base_seq: int, is_doubted: bool = False
) -> Contents:
    """Return the contents of an open segment; from its records, not its index file, if `is_doubted`.

    `base_seq` is what a snapshot found it to be, for a header that is damaged.

    Raises:
        Unusable: it cannot be read.
    """
    known = _index_of(stream, number)
    if not is_doubted and known is not None and fits(known, image):
        found = known
    else:
        found = _by_records(stream, image, number, known, base_seq)
    if found.incarnation != stream.metadata.created_ns:
        raise Unusable("it belongs to a stream that was re-created since")
    return found


def _by_records(
    stream: StreamPlace, image: Image, number: int, known: Contents | None, next_seq: int
) -> Contents:
    """Return a segment's contents by its records. Raises Unusable."""
    incarnation = stream.metadata.created_ns
    found = scanned(image, number, incarnation, next_seq)
    if found is None and known is not None and known.incarnation == incarnation:
        found = scanned(image, number, incarnation, known.base_seq, known.base_seq)
    if found is None:
        raise Unusable("its header is damaged, and its records do not tell what it was")
    return found


def _recalled(
    stream: StreamPlace, number: int, next_seq: int
) -> tuple[Contents | None, _Facts, Contents | None]:
    """Return the contents of a segment, the state of its file, and the contents of an index file that does not match.

    None for the first: it cannot be read. The answer is remembered until one of the two files changes.
    """
    path = f"{stream.messages}/{number:08d}.seg"
    signature = (*_signature(path), *_signature(_index_path(path)), *tails_signature(stream.messages))
    kept = _remembered.get(path)
    if kept is not None and kept[0] == signature:
        return kept[1], _facts.get(path, _NO_FILE), kept[2]
    found, known = _read(stream, number, path, next_seq)
    if len(_remembered) >= REMEMBERED_MAX:
        _remembered.clear()
        _facts.clear()
    _remembered[path] = (signature, found, known)
    return found, _facts.get(path, _NO_FILE), known


def _read(
    stream: StreamPlace, number: int, path: str, next_seq: int
) -> tuple[Contents | None, Contents | None]:
    known = _index_of(stream, number)
    try:
        image = open_image(path, stream.metadata.key)
    except Unusable:
        return None, known.summary() if known is not None else None
    try:
        _facts[path] = _Facts(image.size, image.marked)
        if known is not None and fits(known, image):
            return known.summary(), None
        found = _by_records(stream, image, number, known, next_seq)
        return found.summary(), known.summary() if known is not None else None
    except Unusable:
        return None, known.summary() if known is not None else None
    finally:
        image.close()


def _index_of(stream: StreamPlace, number: int) -> Contents | None:
    kept = kept_index(stream.messages, number)
    found = None if kept is None else index_in(kept, stream.metadata.key)
    if found is not None:
        return found
    try:
        with open(_index_path(f"{stream.messages}/{number:08d}.seg"), "rb") as file:
            return index_in(file.read(), stream.metadata.key)
    except OSError:
        return None


def _is_blank(path: str) -> bool:
    """Return whether a file holds only zeros."""
    with open(path, "rb") as file:
        return not any(any(block) for block in iter(partial(file.read, 1 << 20), b""))


def _index_path(path: str) -> str:
    return f"{path.removesuffix('.seg')}.idx"


def _signature(path: str) -> Signature:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return (0,)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

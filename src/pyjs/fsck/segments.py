"""The check of one stream's messages: every log record, the chain, the index files, the order of the segments.

The segments are mapped and scanned one by one, as at a start without index files. Only a few numbers per
segment and the sequences in its DELETES records stay in memory, so memory does not grow with the store. After all
removals have been read, the live messages are known; segments with removed messages are then read a second time.

Losses are reported as the server will find them, with sequences and offsets in files.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pyjs.base.errors import CorruptRecord
from pyjs.fsck.findings import DAMAGE, NOTE, Finding
from pyjs.fsck.images import Files, SegmentFile, index_data, segment_file, size_of
from pyjs.fsck.mending import cut_tail, make_index, move_segment_aside, replace_lost, rewrite_segment
from pyjs.fsck.metadata import finding_of
from pyjs.store.crypt.keys import Locked
from pyjs.store.format.layout import COPIED, DAMAGED, HEALING, UNSYNCED
from pyjs.store.format.meta import UnknownFormat
from pyjs.store.segment.census import (
    agrees,
    body_of,
    live_in,
    message_ranges,
    next_named,
    removals_of,
    sorted_seqs,
)
from pyjs.store.segment.index_claims import begins_alike, lost_removals
from pyjs.store.segment.index_file import IndexUnusable, decode_index, index_path
from pyjs.store.segment.recovery import contents_of, is_segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pyjs.fsck.findings import Mend, StreamReport
    from pyjs.store.format.outer_header import Buffer
    from pyjs.store.segment.contents import SegmentContents

    Live: TypeAlias = tuple[int, int, int, int, list[int]]  # the result of census.live_in

MESSAGE_OVERHEAD = 30  # bytes that a stream's state counts per message, as in nats-server
HEADERS_OVERHEAD = 4
MSG = 1
FOOTER_SIZE = 88
RECORD_SIZE = 41  # bytes of the log record of the smallest message
SEGMENT_SIZE = 8 << 20  # usual size in bytes; at most this much may be missing at the end of a segment
RECORD = struct.Struct("<IBBHQ")  # length, kind, flags, subject_len, seq
SUMMARY = struct.Struct("<QQQqqQ")  # the body of a FOOTER


@dataclass(eq=False, slots=True)
class Read:
    """The results of the scan of one segment, which stay in memory."""

    path: str
    number: int
    base_seq: int
    entries: int
    end_damaged: bool
    lost: list[tuple[int, int]]
    live: Live  # the messages that are live if only removals in this segment count
    room: int = 0  # maximum number of messages that may be missing at its end; 0: the end is complete
    bare: bool = False  # the end is missing, but there is no damage before it
    cut: SegmentContents | None = None  # contents of its index file, if the end of the segment is missing
    known: SegmentContents | None = None  # the same; also set if only the index file has some of the removals
    # findings at its end, where used sequences may be missing
    ends: list[Finding] = field(default_factory=list)


class MessagesCheck:
    """The check of one `msgs` directory."""

    def __init__(
        self,
        files: Files,
        directory: str,
        incarnation: int,
        report: StreamReport,
        progress: Callable[[int], None],
    ) -> None:
        self._files = files
        self._disk = files.disk
        self._directory = directory
        self._incarnation = incarnation
        self._report = report
        self._progress = progress
        self._read: list[Read] = []
        self._lost: list[tuple[str, SegmentContents]] = []  # lost segments: path, contents of the index file
        self._removals = bytearray()  # sequences, u64 each, from all segments
        self._floor = 0
        self._last_seq = 0

    def run(self) -> None:
        """Check all segments, and fill the report."""
        found = {
            *self._disk.list_dir(self._directory),
            *(path.rpartition("/")[2] for path in self._files.indexes),
        }
        names = sorted(sorted(found), key=len)  # in order of number, since a longer name has a higher number
        segments = [name for name in names if is_segment(name)]
        present = set(segments)
        for name in names:
            path = f"{self._directory}/{name}"
            if name.endswith(".idx") and f"{name[:-4]}.seg" not in present:
                self._missing(path)
            if name not in present:
                continue
            try:
                self._segment(path, int(name[:-4]), name == segments[-1])
            except OSError as error:
                self._report.findings.append(finding_of(error, path))
        self._others(names, present)
        self._settle()

    def _rewrite(
        self,
        path: str,
        number: int,
        base_seq: int,
        last: bool,
        erased: tuple[int, ...] = (),
        known: SegmentContents | None = None,
    ) -> Mend:
        """Return the mend that rewrites a segment."""
        return partial(
            rewrite_segment, self._files, path, number, base_seq, self._incarnation, last, erased, known
        )

    # -- one segment ---------------------------------------------------------------------------------------

    def _segment(self, path: str, number: int, last: bool) -> None:
        self._progress(size_of(self._disk, path))
        try:
            file = segment_file(self._files, path)
            c = contents_of(path, file.data, number, self._incarnation, self._last_seq + 1, image=file.image)
        except (UnknownFormat, Locked) as error:
            self._report.findings.append(finding_of(error, path))
            return
        except CorruptRecord as error:
            self._unreadable(path, self._disk.read_file(path), None, f"{error.reason}: none of it is read")
            self._add_lost_segment(path)
            return
        image = file.data
        known = self._known(index_path(path)) if c is None else None
        if known is not None and known.base_seq > self._last_seq:
            base_seq = known.base_seq  # the index file has the value that the damaged header lacks
            c = contents_of(path, image, number, self._incarnation, base_seq, True, image=file.image)
        if c is None:
            self._unreadable(path, image, c)
            self._add_lost_segment(path)
            return
        if c.incarnation != self._incarnation or c.base_seq <= self._last_seq:
            self._unreadable(path, image, c)
            return
        self._bridge(c.base_seq)
        seen = Read(path, number, c.base_seq, c.n, c.end_damaged, list(c.lost), live_in(c, 0, b""))
        self._read.append(seen)
        seen.cut = seen.known = self._cut_off(path, c)
        if seen.cut is not None:
            self._lose_end(seen, seen.cut, c)
        else:
            self._report.lost_bytes += c.lost_bytes
            seen.known = self._restore_removals(path, c)
        self._judge_end(seen, file, c, last)
        self._problems(seen, file, c, last)
        self._footer(path, file, c, number)
        if seen.known is None:
            self._index(path, image, c, last)
        self._floor = max(self._floor, c.floor)
        self._removals += removals_of(c)
        self._last_seq = max(self._last_seq, c.base_seq + c.n - 1)

    def _judge_end(self, seen: Read, file: SegmentFile, c: SegmentContents, last: bool) -> None:
        """Set `seen.room` and `seen.bare` if the end of a segment may be missing.

        A FOOTER proves that the segment is complete, and so does the mark at the end of an encrypted segment.
        """
        ended = c.sealed or (file.image.marked and c.end == len(file.data) and not last)
        footer = bool(c.problems) and c.problems[-1][:2] == (c.end, FOOTER_SIZE)  # only the FOOTER is missing
        if not (ended or footer or seen.cut is not None):
            seen.room = max(len(file.data), SEGMENT_SIZE) // RECORD_SIZE
            seen.bare = not (last or c.problems)

    def _cut_off(self, path: str, c: SegmentContents) -> SegmentContents | None:
        """Return the contents of the index file if they show that the end of the segment is missing, else None."""
        known = self._known(index_path(path)) if not c.sealed else None
        if known is None or c.end >= known.end or (known.base_seq, known.number) != (c.base_seq, c.number):
            return None
        if not begins_alike(known, c):
            return None  # the index file belongs to another segment
        return known

    def _lose_end(self, seen: Read, known: SegmentContents, c: SegmentContents) -> None:
        """Count the messages in the missing end of a segment as lost, according to its index file `known`."""
        behind = c.base_seq + c.n
        seen.lost += [(max(first, behind), end) for first, end in message_ranges(known) if end >= behind]
        seen.end_damaged = False  # the index file shows which messages are missing
        self._report.lost_bytes += max(c.lost_bytes, known.end - c.end)
        self._floor = max(self._floor, known.floor)
        self._removals += removals_of(known)
        self._last_seq = known.base_seq + known.n - 1

    def _restore_removals(self, path: str, c: SegmentContents) -> SegmentContents | None:
        """If records of removals are damaged, take the removals from the index file; return its contents, or None."""
        known = self._known(index_path(path)) if c.lost_bytes else None
        if known is None or lost_removals(known, c) is None:
            return None
        self._floor = max(self._floor, known.floor)
        self._removals += removals_of(known)
        what = "it has the removals whose records in its segment are damaged"
        self._report.find(NOTE, index_path(path), what)
        return known

    def _unreadable(
        self,
        path: str,
        image: Buffer,
        c: SegmentContents | None,
        what: str = "its header is damaged, and its first record does not tell what it was: none of it is read",
    ) -> None:
        """Report a segment that the server will not read."""
        if not bytes(image).strip(b"\0"):
            finding = self._report.find(NOTE, path, "nothing was ever written to it; a start removes it")
        elif c is None:
            finding = self._report.find(DAMAGE, path, what, 0, len(image))
            self._report.lost_bytes += len(image)
        else:
            finding = self._report.find(
                DAMAGE, path, "it belongs to another stream or repeats sequences: it is not read"
            )
            self._report.lost_bytes += len(image)
        finding.mend = partial(move_segment_aside, self._disk, path)

    def _bridge(self, base_seq: int) -> None:
        """Continue at sequence `base_seq`.

        If the previous segment may lack its end, the sequences between the two segments count as lost, as far as they
        fit in the missing end.
        """
        before = self._read[-1] if self._read else None
        if before is not None and before.room and self._last_seq + 1 < base_seq:
            self._lose_behind(before, min(base_seq - 1, self._last_seq + before.room))
        if before is not None:
            before.room, before.end_damaged = 0, False  # now it is known which messages are missing
        self._last_seq = max(self._last_seq, base_seq - 1)

    def _lose_behind(self, segment: Read, last_seq: int) -> None:
        lost = (segment.base_seq + segment.entries, last_seq)
        segment.lost.append(lost)
        for finding in segment.ends:
            finding.first_seq, finding.last_seq = lost

    def _problems(self, seen: Read, file: SegmentFile, c: SegmentContents, last: bool) -> None:
        """Report the damage that the scan found."""
        rewrite: Mend | None = self._rewrite(seen.path, seen.number, c.base_seq, last, known=seen.known)
        problems = c.problems
        if seen.cut is not None:
            size, what = seen.cut.end - c.end, "the end is missing; its index file tells what was in it"
            problems = [each for each in problems if each[0] != c.end] + [(c.end, size, what)]
        if file.image.problem or (file.damaged_chunks() and not c.problems):
            what = file.image.problem or "a compressed chunk is damaged"
            finding = self._report.find(DAMAGE, seen.path, what)
            finding.mend = rewrite
        for at, size, what in problems:
            place = file.place_of(at, size)
            if at == c.end and not c.end_damaged and seen.cut is None:
                finding = self._report.find(NOTE, seen.path, what, *place)
                finding.mend = (
                    partial(cut_tail, self._files, seen.path, c.end) if len(c.problems) == 1 else None
                )
                continue
            finding = self._report.find(DAMAGE, seen.path, what, *place)
            finding.first_seq, finding.last_seq = _lost_before(file.data, at + size, c)
            finding.mend, rewrite = rewrite, None
            if at == c.end:
                seen.ends.append(finding)
                if seen.cut is not None and seen.lost:
                    finding.first_seq, finding.last_seq = max(c.base_seq + c.n, 1), seen.lost[-1][1]

    def _footer(self, path: str, file: SegmentFile, c: SegmentContents, number: int) -> None:
        """Check the number in the header of a segment, and the FOOTER if it is sealed."""
        image = file.data
        if c.number != number:
            finding = self._report.find(
                DAMAGE, path, f"it says that it is number {c.number}: was it renamed?", 32, 4
            )
            if not c.problems:
                finding.mend = self._rewrite(path, number, c.base_seq, not c.sealed)
        if not c.sealed:
            return
        at = c.end - FOOTER_SIZE
        first, last, count, _, _, size = SUMMARY.unpack_from(image, at + 32)
        if (first, last, count, size) != (c.base_seq, c.base_seq + c.n - 1, c.n, at) and not c.problems:
            what = f"the footer tells of sequences {first} to {last} in {size} bytes, which are not there"
            finding = self._report.find(DAMAGE, path, what, *file.place_of(at, FOOTER_SIZE))
            finding.mend = self._rewrite(path, number, c.base_seq, False)
        if bytes(image[c.end :]).strip(b"\0") and not c.problems:
            finding = self._report.find(
                DAMAGE, path, "bytes after the footer", *file.place_of(c.end, len(image) - c.end)
            )
            finding.mend = self._rewrite(path, number, c.base_seq, False)

    def _index(self, segment: str, image: Buffer, c: SegmentContents, last: bool) -> None:
        """Check that the index file agrees with the segment."""
        path = index_path(segment)
        whole = not c.problems and (c.sealed or (c.end == len(image) and not last))
        try:
            found = decode_index(index_data(self._files, path) or b"")
        except FileNotFoundError:
            if whole and c.sealed:
                finding = self._report.find(
                    NOTE, path, "there is none; a start reads the segment and makes it"
                )
                finding.mend = partial(make_index, self._files, segment, whole)
            return
        except IndexUnusable as error:
            finding = self._report.find(NOTE if error.ordinary else DAMAGE, path, str(error))
            finding.mend = partial(make_index, self._files, segment, whole) if not c.problems else None
            return
        if _of_another_state(found, c, len(image)):
            finding = self._report.find(
                NOTE, path, "it is not of the segment as it is now; a start re-creates it"
            )
        elif c.problems:
            finding = self._report.find(
                NOTE, path, "it hides the damage of its segment until the damaged record is read"
            )
        elif not agrees(found, c):
            finding = self._report.find(DAMAGE, path, "it says something else than its segment")
        else:
            return
        # If the segment has problems, their mend also writes the index file.
        finding.mend = None if c.problems else partial(make_index, self._files, segment, whole)

    # -- lost segments -------------------------------------------------------------------------------------

    def _known(self, path: str) -> SegmentContents | None:
        """Return the contents of the index file `path`; None if it is not intact, or not one of this stream."""
        try:
            known = decode_index(index_data(self._files, path))
        except (OSError, ValueError, IndexUnusable):
            return None
        return known if known.incarnation == self._incarnation else None

    def _missing(self, path: str) -> None:
        """Add the lost segment of an index file; if the index file is unusable, report the file."""
        if not self._add_lost_segment(f"{path.removesuffix('.idx')}.seg"):
            self._report.find(NOTE, path, "it tells nothing, and there is no segment; a start removes it")

    def _add_lost_segment(self, segment: str) -> bool:
        """Add a lost segment whose index file exists, and continue after its sequences.

        Return False if the index file is missing or damaged, or begins with a sequence of an earlier segment.
        """
        path = index_path(segment)
        known = self._known(path)
        if known is None or known.base_seq <= self._last_seq:
            return False
        self._bridge(known.base_seq)
        self._last_seq = max(self._last_seq, known.base_seq + known.n - 1)
        self._floor = max(self._floor, known.floor)
        self._removals += removals_of(known)
        self._lost.append((segment, known))
        return True

    def _tell_lost(self, segment: str, known: SegmentContents, removed: bytes) -> None:
        """Report a lost segment, and those of its messages that were not removed."""
        report, path = self._report, index_path(segment)
        before = len(report.lost)
        for first, last in message_ranges(known):
            self._lose(max(first, self._floor), last, removed)
        lost, end = report.lost[before:], known.base_seq + known.n - 1
        if lost:
            finding = self._report.find(DAMAGE, path, "its segment is lost; it tells what was in it")
            finding.first_seq, finding.last_seq = lost[0][0], lost[-1][1]
            report.lost_bytes += known.message_bytes
        else:
            rest = "removes it" if end < self._floor else "keeps it, for it tells what was removed"
            finding = self._report.find(
                NOTE, path, f"its segment is gone, and so is all that was in it; a start {rest}"
            )
        if end >= self._floor:
            for each in report.findings:  # one mend covers all findings about a segment
                each.mend = None if each.path == segment else each.mend
            finding.mend = partial(replace_lost, self._files, segment, known, self._incarnation)

    # -- totals --------------------------------------------------------------------------------------------

    def _others(self, names: list[str], segments: set[str]) -> None:
        for name in names:
            path = f"{self._directory}/{name}"
            stem, _, suffix = name.partition(".")
            if name in segments:
                continue
            if name.startswith(DAMAGED):
                self._report.find(NOTE, path, "set aside: a start ignores it")
            elif suffix == "idx":
                continue
            elif suffix == "seg.new" and stem.isdigit():
                self._report.find(NOTE, path, "a segment that was being rewritten; a start removes it")
            elif name == HEALING:
                if not size_of(self._disk, path):
                    what = "this replica lacks messages; the server gets them from the others"
                    self._report.find(NOTE, path, what)
            elif name not in (COPIED, UNSYNCED, ".probe"):
                self._report.find(NOTE, path, "not a file of this server")

    def _settle(self) -> None:
        """Determine which messages are live and which are lost; fill the totals of the report."""
        report, reads = self._report, self._read
        if reads and reads[-1].end_damaged:
            self._last_seq += 1
            self._lose_behind(reads[-1], self._last_seq)
        removed = sorted_seqs(bytes(self._removals))
        self._removals.clear()
        for segment in reads:
            try:
                self._count(segment, removed)
            except OSError as error:
                self._report.findings.append(finding_of(error, segment.path))
        for segment in reads:
            behind = segment.base_seq + segment.entries
            # if the messages of a segment were purged, it never had an end
            if segment.bare and behind > self._floor:
                finding = self._report.find(DAMAGE, segment.path, "the end of the segment is missing")
                finding.mend = self._rewrite(segment.path, segment.number, segment.base_seq, False)
        for lost in self._lost:
            self._tell_lost(*lost, removed)
        self._claims(removed)
        report.segments = len(reads)
        report.last_seq = self._last_seq
        if report.messages == 0 and (self._last_seq or self._floor):
            report.last_seq = max(self._last_seq, self._floor - 1)
            report.first_seq = report.last_seq + 1
        for segment in reads:
            for first, last in segment.lost:
                self._lose(max(first, self._floor), last, removed)
        report.lost.sort()

    def _lose(self, first: int, last: int, removed: bytes) -> None:
        """Add the sequences from `first` to `last` to the report as lost, except those in `removed`."""
        while first <= last:
            named = next_named(removed, first)
            end = named if first <= named <= last else last + 1
            if first < end:
                self._report.lost.append((first, end - 1))
            first = end + 1

    def _count(self, segment: Read, removed: bytes) -> None:
        """Add a segment's live messages to the totals; report messages that are overwritten but not removed."""
        report = self._report
        end = segment.base_seq + segment.entries
        concerned = (
            self._floor > segment.base_seq or segment.base_seq <= next_named(removed, segment.base_seq) < end
        )
        blank: list[int] = []  # messages that were erased in place
        if segment.live[4] or (segment.live[0] and concerned):
            file = segment_file(self._files, segment.path)
            c = contents_of(
                segment.path,
                file.data,
                segment.number,
                self._incarnation,
                segment.base_seq,
                image=file.image,
            )
            if c is not None:
                segment.live = live_in(c, self._floor, removed)
                blank = [
                    seq
                    for seq in segment.live[4]
                    if file.is_blank(self._files, segment.path, *body_of(c, seq))
                ]
        messages, size, with_headers, first, overwritten = segment.live
        for seq in overwritten:
            finding = self._report.find(
                DAMAGE, segment.path, f"message {seq} is overwritten but was never removed"
            )
            finding.first_seq = finding.last_seq = seq
            if seq not in blank:  # the server treats an erased message as removed
                segment.lost.append((seq, seq))
        if overwritten:
            last = segment is self._read[-1]
            self._report.findings[-1].mend = self._rewrite(
                segment.path, segment.number, segment.base_seq, last, erased=tuple(overwritten)
            )
        if messages and not report.first_seq:
            report.first_seq = first
        report.messages += messages
        report.bytes += size + messages * MESSAGE_OVERHEAD + with_headers * HEADERS_OVERHEAD

    def _claims(self, removed: bytes) -> None:
        """Report the highest removed sequence if it is above the last sequence."""
        newest = int.from_bytes(removed[-8:], "little")
        if newest > self._last_seq:
            self._report.find(
                DAMAGE, self._directory, f"message {newest} was removed, but the last one is {self._last_seq}"
            )


def _lost_before(image: Buffer, at: int, c: SegmentContents) -> tuple[int, int]:
    """Return (first, last) of the lost sequences directly before the record at `at`, or (0, 0) if there are none."""
    if at + RECORD.size > c.end:
        return 0, 0
    _, kind, _, _, seq = RECORD.unpack_from(image, at)
    last = seq - 1 if kind == MSG else seq
    for lost in c.lost:
        if lost[1] == last:
            return lost
    return 0, 0


def _of_another_state(found: SegmentContents, c: SegmentContents, size: int) -> bool:
    """Return whether the index file `found` is not of the segment `c`, or not of its current state."""
    mine = (c.base_seq, c.number, c.incarnation, c.sealed, c.end, c.chain)
    theirs = (found.base_seq, found.number, found.incarnation, found.sealed, found.end, found.chain)
    return mine != theirs or (not c.sealed and size != c.end)

"""Contents and damage of a segment, found from its records alone, by the server's rules.

Every record is checked. Where one does not check out there are three cases. Its checksum alone is damaged, since the
next record fits the one computed: nothing is lost. Valid records follow somewhere: the bytes between are damage, and
what follows is kept. Nothing valid follows: the last write was cut short and was never acknowledged, unless a whole
record stands there: then it is damage as well.

A short record of removals, which may be their only record, is mended when one byte of it is damaged.

`walk`, compiled where it was built, takes runs of usual messages; the unusual ones are examined here.

Source: docs/storage-format.md, "Reading back".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pyjs_spark import fast
from pyjs_spark.decode.entries import (
    CHECK_AT,
    CHECKSUM_SIZE,
    ENTRY,
    ERASED,
    EXTENDED,
    HEAD_SIZE,
    KIND_MESSAGE,
    MESSAGE,
    RECORD,
    RECORD_SIZE_MIN,
    check_of,
    hash_of,
    is_sendable,
    is_whole,
)
from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.store.contents import Contents, no_entries
from pyjs_spark.store.image import (
    CHECKED,
    HEADER_SIZE,
    PAGE_SIZE,
    SECTOR_SIZE,
    VERSION,
    Header,
    Image,
    header_in,
    unknown_format,
)
from pyjs_spark.store.mend import KIND_AT, MEND_SIZE_MAX, mended_record

if fast.IS_THERE:
    from pyjs_spark_fast.entries import walk
else:

    def walk(  # type: ignore[misc]
        data: bytes, at: int, chain: int, next_seq: int, gaps_max: int
    ) -> tuple[int, int, bytes]:
        """Take usual messages from `at` on, up to the first unusual record; see pyjs_spark_fast/entries.pyx."""
        return walked(data, at, chain, next_seq, gaps_max)


STATE = 2
DELETES = 3
FOOTER = 4
META = 5
IS_EXTENDED = 1  # flags of a record
IS_ERASED = 2
IS_UNFINISHED = 4  # the next record belongs to the same batch
FLAGS_ALL = 7
RECORD_SIZE_MAX = 134_217_728
GAP_MAX = 2_097_152  # sequences of one segment that hold no message; more are damage
EFFORT = 64  # times the size of the file: bytes that are hashed to find records after damage
EFFORT_EACH = 512  # when that is used up: longer records are not looked for any more
MENDS_MAX = 16  # records of a file in which that is done
STEP = 65536  # places that are looked at together
ROW = struct.Struct("<QqIIIHHII")
NO_SUBJECT = 0xFFFFFFFF
SEQ_MAX = 2**64 - 2  # no record has a higher sequence


class Head(NamedTuple):
    """The first 32 bytes of a record."""

    length: int
    kind: int
    flags: int
    subject_len: int
    seq: int
    ts: int
    header_len: int
    check: int


def scanned(
    image: Image, number: int, incarnation: int, next_seq: int, known_base: int = 0
) -> Contents | None:
    """Return the contents of a segment from its bytes; None: its header is damaged and its records do not help.

    `next_seq` is after the segment before; `known_base` what an index file says that the segment begins with, 0
    without one.

    Raises:
        BadStore: another version wrote it.
    """
    data = image.read(0, image.size)
    header = header_in(data)
    problems: list[str] = []
    if header is not None and (header.version != VERSION or header.flags):
        raise unknown_format(header, f"segment {number}")
    is_damaged = header is None
    if header is None:
        header = (
            _made(data, known_base, number, incarnation)
            if known_base
            else _told(data, number, incarnation, next_seq)
        )
        problems.append("at 0: the header is damaged; the records after it tell what it was")
    if header is None:
        return None
    scan = _Scan(data, header, image.shift, is_adrift=is_damaged)
    scan.problems = problems
    scan.run()
    if scan.batch_at and not scan.is_sealed:
        # The last message of the batch at the end is missing: none of the batch counts.
        before, scan = scan, _Scan(data[: scan.batch_at], header, image.shift, is_adrift=is_damaged)
        scan.problems = [*problems, "the last batch was cut short"]
        scan.run()
        scan.lose_like(before)
    return scan.contents()


def last_metadata(image: Image) -> bytes:
    """Return the body of the last META record of a segment, b"" without one. Its header may be damaged."""
    data = image.read(0, image.size)
    if len(data) < HEADER_SIZE + RECORD_SIZE_MIN:
        return b""
    base_seq = RECORD.unpack_from(data, HEADER_SIZE)[4]
    scan = _Scan(data, _made(data, base_seq, 0, 0), image.shift, is_adrift=True)
    scan.run()
    return scan.meta


class _Scan:
    """One reading of a segment's bytes."""

    def __init__(self, data: bytes, header: Header, shift: int, *, is_adrift: bool) -> None:
        self._data = data
        self._view = memoryview(data)
        self._header = header
        self._shift = shift
        self._chain = header.checksum
        self._effort = len(data) * EFFORT
        self._mends = 0  # records in which a damaged byte was looked for
        self._is_adrift = is_adrift  # the checksum in front of the next record is not known to be right
        self._after_damage = 0  # messages that the damage in front of here may have been, at most
        self._next_seq = header.base_seq
        self._messages = 0
        self._rows: list[bytes] = []
        self._removals: list[bytes] = []
        self._end = HEADER_SIZE
        self._is_sealed = False
        self._floor = 0
        self._last_ts = 0
        self._is_end_lost = False
        self._lost: list[tuple[int, int]] = []
        self.problems: list[str] = []
        self.meta = b""
        self.batch_at = 0  # where the batch begins whose last message is still to come; 0: none

    @property
    def is_sealed(self) -> bool:
        """Whether a FOOTER ends the segment."""
        return self._is_sealed

    def lose_like(self, whole: _Scan) -> None:
        """Count the messages that only `whole` has as lost, if its end was damaged."""
        if whole._is_end_lost:
            self._lost.append((self._next_seq, whole._next_seq - 1))
            self._next_seq, self._is_end_lost = whole._next_seq, True

    def run(self) -> None:
        """Take record after record."""
        at, size = HEADER_SIZE, len(self._data)
        while at < size and not self._is_sealed:
            if not self._is_adrift and not self._after_damage:
                at = self._walk(at)
            head = self._accepted(at)
            if head is not None:
                self._take(at, head, self._view[at : at + head.length])
                at += head.length
                continue
            used = max(at, len(self._data.rstrip(b"\0")))
            if used == at:
                break
            next_at = self._resync(at + 1)
            if self._put_right(at, next_at or used):
                at = next_at or used
                continue
            if not next_at:
                self._judge_end(at, used)
                break
            self._report(at, next_at - at, "damaged bytes between records")
            self._after_damage = max(1, (next_at - at) // (RECORD_SIZE_MIN + 1))
            self._chain = self._checksum_before(next_at)
            self._is_adrift = True
            at = next_at
        self._end = at

    def contents(self) -> Contents:
        """Return the findings."""
        rows: Any = np.frombuffer(b"".join(self._rows), ENTRY) if self._rows else no_entries()
        removals: Any = np.frombuffer(b"".join(self._removals), "<u8")
        sizes = rows["size"].astype(np.int64).sum() + rows["subject_len"].sum()
        return Contents(
            number=self._header.number,
            incarnation=self._header.incarnation,
            base_seq=self._header.base_seq,
            next_seq=self._next_seq,
            end=self._end,
            chain=self._chain,
            is_sealed=self._is_sealed,
            floor=self._floor,
            first_ts=int(rows["ts"][0]) if len(rows) else 0,
            last_ts=self._last_ts,
            messages=self._messages,
            message_bytes=int(sizes),
            entries=rows,
            removals=removals,
            problems=self.problems,
            lost=self._lost,
            is_end_lost=self._is_end_lost,
        )

    # -- records ----------------------------------------------------------------------------------------------------

    def _walk(self, at: int) -> int:
        gaps = GAP_MAX - (self._next_seq - self._header.base_seq - self._messages)
        gaps = min(gaps, SEQ_MAX - self._next_seq)
        end, self._chain, rows = walk(self._data, at, self._chain, self._next_seq, max(gaps, 0))
        if rows:
            last = ROW.unpack_from(rows, len(rows) - ROW.size)
            self._next_seq, self._last_ts = last[0] + 1, last[1]
            self._messages += len(rows) // ROW.size
            self._rows.append(rows)
        return end

    def _accepted(self, at: int) -> Head | None:
        """Return the record at `at` if it is accepted; its checksum then continues the chain."""
        head = self._plausible(at)
        if head is None:
            return None
        computed, is_sound = self._computed(at, head, self._chain)
        stored = self._stored(at, head.length)
        if computed == stored and not is_sound:
            self._report(at + CHECK_AT, 4, "a damaged check; its record is whole")
        if (
            computed == stored
            or (head.kind == KIND_MESSAGE and head.flags & IS_ERASED and self._goes_on(at, head))
            or (self._is_adrift and is_sound)
        ):
            self._chain = stored
            self._is_adrift = False
            return head
        # The next record was chained to the checksum that these bytes have: only the stored one is damaged.
        behind = self._plausible(at + head.length)
        if behind is not None and self._is_intact(at + head.length, behind, computed):
            self._report(
                at + head.length - CHECKSUM_SIZE, CHECKSUM_SIZE, "a damaged checksum; its record is whole"
            )
            self._chain = computed
            return head
        return None

    def _put_right(self, at: int, end: int) -> bool:
        """Mend and take a record of removals at `at` with one damaged byte; False: it is not one."""
        if self._is_adrift or self._mends == MENDS_MAX or not RECORD_SIZE_MIN <= end - at <= MEND_SIZE_MAX:
            return False
        self._mends += 1
        record = mended_record(self._data[at:end], self._chain)
        if record is None or record[KIND_AT] not in (STATE, DELETES):
            return False
        self._report(at, end - at, "a damaged byte in a record of removals; its checksums tell what it was")
        self._chain = int.from_bytes(record[-CHECKSUM_SIZE:], "little")
        self._take(at, Head(*RECORD.unpack_from(record)), record)
        return True

    def _goes_on(self, at: int, head: Head) -> bool:
        """Return whether length and sequence of an overwritten message fit the next record, their only proof."""
        behind = at + head.length
        after = self._plausible(behind)
        if after is None:
            return behind - CHECKSUM_SIZE < len(self._data.rstrip(b"\0")) <= behind
        return head.seq + (after.kind == KIND_MESSAGE) <= after.seq < head.seq + GAP_MAX

    def _judge_end(self, at: int, used: int) -> None:
        """Judge the bytes at..used, the last ones before the end."""
        head = self._plausible(at)
        end = self._cut_at(used)
        is_whole = (
            head is not None
            and at + head.length - CHECKSUM_SIZE < used
            and not self._is_cut_in_checksum(at, head, end)
        )
        cut_short = "the last write was cut short; it was never acknowledged"
        if not is_whole and used - at < RECORD_SIZE_MIN:
            self._report(at, used - at, cut_short)
            return
        if not is_whole and used - at >= HEAD_SIZE and end:
            length, kind, _, _, seq, *_ = RECORD.unpack_from(self._data, at)
            seq += kind != KIND_MESSAGE  # a message has the next sequence, what is no message the last one
            if length >= RECORD_SIZE_MIN and seq == self._next_seq and length > end - at:
                self._report(at, used - at, cut_short)
                return
        self._report(at, used - at, "the last record is damaged")
        self._is_end_lost = True  # its sequence field may be the damage

    def _is_cut_in_checksum(self, at: int, head: Head, end: int) -> bool:
        """Return whether a write stopped at `end`, inside the checksum of an otherwise complete record."""
        begin = at + head.length - CHECKSUM_SIZE
        if not begin < end < at + head.length or not self._is_intact_alone(at, head):
            return False
        computed = self._computed(at, head, self._chain)[0].to_bytes(CHECKSUM_SIZE, "little")
        return computed.startswith(bytes(self._data[begin:end]))

    def _cut_at(self, used: int) -> int:
        """Return the end of an interrupted write, whose last nonzero byte is before `used`; 0: it is damage.

        What was written may end with zeros of its own: then these reach up to the page, and reserved zeros follow.
        """
        page = -(-(used + self._shift) // PAGE_SIZE) * PAGE_SIZE - self._shift
        if (used + self._shift) % SECTOR_SIZE == 0:
            return used
        return page if page < len(self._data) else 0

    def _resync(self, at: int) -> int:
        """Return the place of the next record that fits the checksum before it, or its own check; 0: none.

        Bytes that look like long records everywhere, as a client may have sent them, must not keep a reader waiting.
        """
        for place in self._candidates(at):
            head = self._plausible(place)
            if head is None or (head.length > self._effort and head.length > EFFORT_EACH):
                continue
            self._effort -= min(head.length, self._effort)
            if self._is_intact(place, head, self._checksum_before(place)) or self._is_intact_alone(
                place, head
            ):
                return place
        return 0

    def _candidates(self, at: int) -> Iterator[int]:
        """Yield the places from `at` on that can be the header of a record, in blocks."""
        size = len(self._data)
        for begin in range(at, size - RECORD_SIZE_MIN + 1, STEP):
            count = min(STEP, size - RECORD_SIZE_MIN + 1 - begin)
            lengths: Any = np.ndarray((count,), "<u4", self._data, begin, (1,))
            kinds: Any = np.ndarray((count,), "u1", self._data, begin + 4, (1,))
            flags: Any = np.ndarray((count,), "u1", self._data, begin + 5, (1,))
            good = (lengths >= RECORD_SIZE_MIN) & (lengths <= size - begin) & (kinds >= 1) & (kinds <= META)
            yield from (begin + np.flatnonzero(good & (flags <= FLAGS_ALL))).tolist()

    def _plausible(self, at: int) -> Head | None:
        """Return the header of the record at `at` if its sizes fit."""
        left = len(self._data) - at
        if left < RECORD_SIZE_MIN:
            return None
        head = Head(*RECORD.unpack_from(self._data, at))
        if not RECORD_SIZE_MIN <= head.length <= min(left, RECORD_SIZE_MAX):
            return None
        if not KIND_MESSAGE <= head.kind <= META or head.flags > FLAGS_ALL:
            return None
        fixed = RECORD_SIZE_MIN + (16 if head.flags & IS_EXTENDED else 0)
        return head if fixed + head.subject_len + head.header_len <= head.length else None

    def _computed(self, at: int, head: Head, before: int) -> tuple[int, bool]:
        """Return the checksum of the record after `before`, and whether its check fits."""
        own = hash_of(self._view, at, head.length)
        return xxh64(own.to_bytes(8, "little"), before), head.check == check_of(own)

    def _is_intact(self, at: int, head: Head, before: int) -> bool:
        return self._computed(at, head, before)[0] == self._stored(at, head.length)

    def _is_intact_alone(self, at: int, head: Head) -> bool:
        return head.check == check_of(hash_of(self._view, at, head.length))

    def _stored(self, at: int, length: int) -> int:
        return self._checksum_before(at + length)

    def _checksum_before(self, at: int) -> int:
        return int.from_bytes(self._data[at - CHECKSUM_SIZE : at], "little")

    def _report(self, at: int, size: int, what: str) -> None:
        self.problems.append(f"at {at}: {size} bytes: {what}")

    # -- what they say ----------------------------------------------------------------------------------------------

    def _take(self, at: int, head: Head, record: bytes | bytearray | memoryview) -> None:
        """Take the record at `at`; `record` has its bytes, perhaps mended."""
        if head.kind != KIND_MESSAGE or not head.flags & IS_UNFINISHED:
            self.batch_at = 0
        elif not self.batch_at:
            self.batch_at = at
        if head.kind == KIND_MESSAGE:
            self._take_message(at, head)
            return
        body = bytes(record[HEAD_SIZE:-CHECKSUM_SIZE])
        follows = head.seq <= SEQ_MAX and self._follows(min(head.seq + 1, SEQ_MAX))
        if follows:
            self._skip_to(head.seq + 1)
        else:
            self._report(at, head.length, "a sequence that does not follow: not believed")
        if head.kind == STATE and len(body) >= 16:
            floor, last_ts = struct.unpack_from("<Qq", body)
            if floor > head.seq + 1:
                self._report(at, head.length, "a first sequence after the last one: not believed")
            else:
                self._floor = max(self._floor, floor)
            self._last_ts = max(self._last_ts, last_ts)
        elif head.kind == DELETES:
            self._take_removals(at, head, body[: len(body) // 8 * 8])
        elif head.kind == FOOTER:
            self._is_sealed = True
        elif head.kind == META:
            self.meta = body
        self._after_damage = 0

    def _take_removals(self, at: int, head: Head, body: bytes) -> None:
        seqs: Any = np.frombuffer(body, "<u8")
        if len(seqs) and seqs.max() > head.seq:  # of a message that was still to come
            self._report(at, head.length, "the removal of a later sequence: not believed")
        else:
            self._removals.append(body)

    def _take_message(self, at: int, head: Head) -> None:
        if head.seq < self._next_seq or not self._follows(head.seq):
            self._report(at, head.length, "a sequence that does not follow: not taken")
            return
        self._skip_to(head.seq)
        fixed = RECORD_SIZE_MIN + (16 if head.flags & IS_EXTENDED else 0)
        begin = at + fixed - CHECKSUM_SIZE
        if not is_sendable(self._data[begin : begin + head.subject_len]):
            self._report(at, head.length, "a subject that no client can send: not taken")
            self._after_damage = 1
            return
        size = head.length - fixed - head.subject_len
        flags = MESSAGE | (EXTENDED if head.flags & IS_EXTENDED else 0)
        flags |= ERASED if head.flags & IS_ERASED else 0
        lengths = (size, head.header_len, head.subject_len)
        self._rows.append(ROW.pack(head.seq, head.ts, at, *lengths, flags, NO_SUBJECT, 0))
        self._messages += 1
        self._next_seq, self._last_ts = head.seq + 1, head.ts

    def _follows(self, seq: int) -> bool:
        """Return whether the next sequence can be `seq`; the gaps of a segment are limited in total."""
        gaps = self._next_seq - self._header.base_seq - self._messages
        if seq > SEQ_MAX:
            return False
        return seq <= self._next_seq or seq - self._next_seq + gaps < GAP_MAX

    def _skip_to(self, seq: int) -> None:
        """Continue at sequence `seq`; those before it are empty, or were just lost."""
        if self._after_damage and self._next_seq < seq:
            self._lost.append((self._next_seq, min(seq, self._next_seq + self._after_damage) - 1))
        self._after_damage = 0
        self._next_seq = max(self._next_seq, seq)


def walked(data: bytes, at: int, chain: int, next_seq: int, gaps_max: int) -> tuple[int, int, bytes]:
    """Do as `walk`, in plain Python."""
    view, size, rows = memoryview(data), len(data), []
    while size - at >= RECORD_SIZE_MIN:
        length, kind, flags, subject_len, seq, ts, header_len, _ = RECORD.unpack_from(data, at)
        fixed = RECORD_SIZE_MIN + (16 if flags & IS_EXTENDED else 0)
        if kind != KIND_MESSAGE or flags > IS_EXTENDED or length > size - at:
            break
        if fixed + subject_len + header_len > length or not next_seq <= seq <= next_seq + gaps_max:
            break
        if int.from_bytes(data[at - CHECKSUM_SIZE : at], "little") != chain or not is_whole(view, at, length):
            break
        begin = at + fixed - CHECKSUM_SIZE
        if not is_sendable(data[begin : begin + subject_len]):
            break
        gaps_max -= seq - next_seq
        next_seq = seq + 1
        kept = MESSAGE | (EXTENDED if flags else 0)
        rows.append(
            ROW.pack(seq, ts, at, length - fixed - subject_len, header_len, subject_len, kept, NO_SUBJECT, 0)
        )
        at += length
        chain = int.from_bytes(data[at - CHECKSUM_SIZE : at], "little")
    return at, chain, b"".join(rows)


# -- damaged headers ------------------------------------------------------------------------------------------------


def _told(data: bytes, number: int, incarnation: int, next_seq: int) -> Header | None:
    """Return the header computed from the first undamaged record; None: there is none."""
    header = _made(data, next_seq, number, incarnation)
    if len(data) < HEADER_SIZE + RECORD_SIZE_MIN:
        return None
    scan, at = _Scan(data, header, 0, is_adrift=True), HEADER_SIZE
    first = scan._plausible(at)
    is_overwritten = first is not None and first.kind == KIND_MESSAGE and bool(first.flags & IS_ERASED)
    if first is None or not is_overwritten or not scan._goes_on(at, first):
        at = scan._resync(at)
        first = scan._plausible(at) if at else None
    if first is None:
        return None
    base = first.seq + (first.kind != KIND_MESSAGE)
    if base < next_seq:
        return None
    if at > HEADER_SIZE and base - next_seq <= len(data) // RECORD_SIZE_MIN:  # else it is a gap, and no loss
        base = next_seq
    return replace(header, base_seq=base)


def _made(data: bytes, base_seq: int, number: int, incarnation: int) -> Header:
    """Return a substitute for a damaged header; its checksum may still be right."""
    stored = int.from_bytes(data[CHECKED:HEADER_SIZE], "little")
    return Header(VERSION, "", 0, base_seq, number, 0, incarnation, b"", stored)

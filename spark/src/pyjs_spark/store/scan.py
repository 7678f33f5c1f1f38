"""Contents of a segment, from its records alone. A damaged segment is refused; the server's `fsck` can repair it.

Every record is checked. After an invalid record, the rest of the file is either an interrupted last write,
which was never acknowledged, or damage. The rest is damage if it contains a complete record, or ends at an offset
where a write cannot have been interrupted.

`walk` of the compiled decoders handles runs of ordinary messages. This module examines all other records; without the
compiled decoders, it examines all records.

Source: docs/storage-format.md, "Rules for damaged segments".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from pyjs_spark import fast
from pyjs_spark.decode.entries import (
    CHECKSUM_SIZE,
    ENTRY,
    ERASED,
    EXTENDED,
    HEAD_SIZE,
    KIND_MESSAGE,
    MESSAGE,
    RECORD,
    RECORD_SIZE_MIN,
    UNFINISHED,
    check_of,
    hash_of,
    is_sendable,
    is_whole,
)
from pyjs_spark.decode.hashing import xxh64
from pyjs_spark.store.contents import DELETES, FOOTER, META, STATE, Contents, no_entries
from pyjs_spark.store.image import (
    HEADER_SIZE,
    PAGE_SIZE,
    SECTOR_SIZE,
    Image,
    header_in,
    is_known_version,
    unknown_format,
)

if fast.IS_THERE:
    from pyjs_spark_fast.entries import walk
else:
    walk = None  # type: ignore[assignment]

IS_EXTENDED = 1  # flags of a record's header
IS_ERASED = 2
FLAGS_ALL = 7
RECORD_SIZE_MAX = 134_217_728
# maximum number of sequences without a message in one segment; more are damage
GAP_MAX = 2_097_152
EFFORT = 64  # maximum bytes to hash in search of a complete record, as a multiple of the file's size
STEP = 65536  # number of offsets that are examined together
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

    @property
    def fixed(self) -> int:
        """The number of bytes of the record without subject, headers and payload."""
        return RECORD_SIZE_MIN + (16 if self.flags & IS_EXTENDED else 0)


def scanned(image: Image, number: int) -> Contents:
    """Return the contents of segment `number` from its bytes.

    Raises:
        BadStore: another version wrote the file.
        Unusable: the file is damaged.
    """
    scan = _Scan(image, image.size)
    # The last message of the last batch is missing, so the whole batch counts as absent.
    if scan.batch_at and not scan.is_sealed:
        scan = _Scan(image, scan.batch_at)
    return scan.contents(number)


class _Scan:
    """One scan of a segment's first `size` bytes."""

    def __init__(self, image: Image, size: int) -> None:
        self._image = image
        self._data = data = image.read(0, size)
        self._view = memoryview(data)
        header = header_in(data)
        if header is None:
            raise image.damage(0, "the header is damaged")
        if header.flags or not is_known_version(header):
            raise unknown_format(header, image.path)
        self._header = header
        self._chain = header.checksum
        self._next_seq = header.base_seq
        self._messages = 0
        self._rows: list[bytes] = []
        self._removals: list[bytes] = []
        self.is_sealed = False  # whether the segment ends with a FOOTER
        self._floor = 0
        self._last_ts = 0
        self.batch_at = 0  # offset of an unfinished batch; 0 if there is none
        self._end = self._run()

    def _run(self) -> int:
        """Read one record after another, and return the offset after the last valid record.

        Raises:
            Unusable: the segment is damaged.
        """
        at, size = HEADER_SIZE, len(self._data)
        while at < size and not self.is_sealed:
            at = self._walk(at)
            head = self._plausible(at)
            if head is None or not self._is_accepted(at, head):
                self._check_cut(at, head)
                break
            self._take(at, head)
            at += head.length
        return at

    def contents(self, number: int) -> Contents:
        """Return the contents of the segment."""
        rows: Any = np.frombuffer(b"".join(self._rows), ENTRY) if self._rows else no_entries()
        sizes = rows["size"].astype(np.int64).sum() + rows["subject_len"].sum()
        return Contents(
            number=number,
            incarnation=self._header.incarnation,
            base_seq=self._header.base_seq,
            next_seq=self._next_seq,
            end=self._end,
            chain=self._chain,
            is_sealed=self.is_sealed,
            floor=self._floor,
            last_ts=self._last_ts,
            messages=self._messages,
            message_bytes=int(sizes),
            entries=rows,
            removals=np.frombuffer(b"".join(self._removals), "<u8"),
        )

    # -- records ----------------------------------------------------------------------------------------------------

    def _walk(self, at: int) -> int:
        """Read ordinary messages from offset `at` on; return the offset of the first other record."""
        if walk is None:
            return at
        gaps = GAP_MAX - (self._next_seq - self._header.base_seq - self._messages)
        gaps = min(gaps, SEQ_MAX - self._next_seq)
        end, self._chain, rows = walk(self._data, at, self._chain, self._next_seq, max(gaps, 0))
        if rows:
            last = ROW.unpack_from(rows, len(rows) - ROW.size)
            self._next_seq, self._last_ts = last[0] + 1, last[1]
            self._messages += len(rows) // ROW.size
            self._rows.append(rows)
            self.batch_at = 0
        return end

    def _is_accepted(self, at: int, head: Head) -> bool:
        """Return whether the record at `at` is valid, or an erased message that the next record confirms."""
        is_erased = head.kind == KIND_MESSAGE and head.flags & IS_ERASED and self._goes_on(at, head)
        if not is_erased and not is_whole(self._view, at, head.length):
            return False
        self._chain = int.from_bytes(
            self._data[at + head.length - CHECKSUM_SIZE : at + head.length], "little"
        )
        return True

    def _goes_on(self, at: int, head: Head) -> bool:
        """Return whether the next record confirms the length and the sequence of an erased message.

        The checksum of an erased message cannot confirm them.
        """
        behind = at + head.length
        after = self._plausible(behind)
        if after is None:
            return behind - CHECKSUM_SIZE < len(self._data.rstrip(b"\0")) <= behind
        return head.seq + (after.kind == KIND_MESSAGE) <= after.seq < head.seq + GAP_MAX

    def _plausible(self, at: int) -> Head | None:
        """Return the header of the record at `at`, or None if its sizes are inconsistent."""
        left = len(self._data) - at
        if left < RECORD_SIZE_MIN:
            return None
        head = Head(*RECORD.unpack_from(self._data, at))
        if not RECORD_SIZE_MIN <= head.length <= min(left, RECORD_SIZE_MAX):
            return None
        if not KIND_MESSAGE <= head.kind <= META or head.flags > FLAGS_ALL:
            return None
        return head if head.fixed + head.subject_len + head.header_len <= head.length else None

    # -- the end ----------------------------------------------------------------------------------------------------

    def _check_cut(self, at: int, head: Head | None) -> None:
        """Check that the bytes from `at` on are zeros or an interrupted write.

        Raises:
            Unusable: the bytes are neither, so the segment is damaged.
        """
        used = max(at, len(self._data.rstrip(b"\0")))
        if used == at:
            return
        end = self._cut_at(used)
        if head is not None and at + head.length - CHECKSUM_SIZE < used:
            is_cut = self._is_cut_in_checksum(at, head, end)
        elif used - at < RECORD_SIZE_MIN:
            is_cut = True
        else:
            length, kind, _, _, seq, *_ = RECORD.unpack_from(self._data, at)
            seq += kind != KIND_MESSAGE  # a message has the next sequence, any other record the last one
            is_cut = bool(end) and seq == self._next_seq and length > end - at
        if not is_cut or self._has_whole(at, used):
            raise self._image.damage(at, "a record is damaged")

    def _is_cut_in_checksum(self, at: int, head: Head, end: int) -> bool:
        """Return whether a write was interrupted at `end`, inside the checksum of an otherwise complete record."""
        begin = at + head.length - CHECKSUM_SIZE
        own = hash_of(self._view, at, head.length)
        checksum = xxh64(own.to_bytes(8, "little"), self._chain).to_bytes(CHECKSUM_SIZE, "little")
        is_sound = begin < end < at + head.length and head.check == check_of(own)
        return is_sound and checksum.startswith(self._data[begin:end])

    def _cut_at(self, used: int) -> int:
        """Return the end of an interrupted write, or 0 if no write can have been interrupted here.

        `used` is the offset after the last nonzero byte. If a sector ends there, the write was interrupted there.
        Otherwise the data of the write must end with zeros up to the end of the page, and reserved zeros must follow.
        """
        shift = self._image.shift
        if (used + shift) % SECTOR_SIZE == 0:
            return used
        page = -(-(used + shift) // PAGE_SIZE) * PAGE_SIZE - shift
        return page if page < len(self._data) else 0

    def _has_whole(self, at: int, used: int) -> bool:
        """Return whether a complete record follows `at`, or only the length of the record at `at` is wrong."""
        for end in range(used, used + CHECKSUM_SIZE + 1):  # the record's checksum may end with zeros
            length = end - at
            record = length.to_bytes(4, "little") + self._data[at + 4 : end]
            is_other = RECORD_SIZE_MIN <= length == len(record) and not self._data.startswith(record[:4], at)
            if is_other and self._is_sound(memoryview(record), length):
                return True
        effort = len(self._data) * EFFORT
        for place in self._candidates(at + 1):
            head = self._plausible(place)
            if head is None:
                continue
            effort -= head.length
            if effort < 0 or self._is_sound(self._view[place:], head.length):
                return True
        return False

    @staticmethod
    def _is_sound(record: memoryview, length: int) -> bool:
        return bool(RECORD.unpack_from(record)[-1] == check_of(hash_of(record, 0, length)))

    def _candidates(self, at: int) -> Iterator[int]:
        """Yield the offsets from `at` on at which a record may begin."""
        size = len(self._data)
        for begin in range(at, size - RECORD_SIZE_MIN + 1, STEP):
            count = min(STEP, size - RECORD_SIZE_MIN + 1 - begin)
            lengths: Any = np.ndarray((count,), "<u4", self._data, begin, (1,))
            kinds: Any = np.ndarray((count,), "u1", self._data, begin + 4, (1,))
            flags: Any = np.ndarray((count,), "u1", self._data, begin + 5, (1,))
            good = (lengths >= RECORD_SIZE_MIN) & (lengths <= size - begin) & (kinds >= 1) & (kinds <= META)
            yield from (begin + np.flatnonzero(good & (flags <= FLAGS_ALL))).tolist()

    # -- columns of records ------------------------------------------------------------------------------------------

    def _take(self, at: int, head: Head) -> None:
        if head.kind != KIND_MESSAGE or not head.flags & UNFINISHED:
            self.batch_at = 0
        elif not self.batch_at:
            self.batch_at = at
        next_seq = head.seq + 1
        gaps = next_seq - self._header.base_seq - self._messages - 1
        is_behind = head.kind == KIND_MESSAGE and head.seq < self._next_seq
        if head.seq > SEQ_MAX or is_behind or (next_seq > self._next_seq and gaps >= GAP_MAX):
            raise self._image.damage(at, "a sequence that does not follow")
        if head.kind == KIND_MESSAGE:
            self._take_message(at, head)
        body = self._data[at + HEAD_SIZE : at + head.length - CHECKSUM_SIZE]
        self._next_seq = max(self._next_seq, next_seq)
        if head.kind == STATE and len(body) >= 16:
            floor, last_ts = struct.unpack_from("<Qq", body)
            if floor > next_seq:
                raise self._image.damage(at, "a first sequence after the last one")
            self._floor, self._last_ts = max(self._floor, floor), max(self._last_ts, last_ts)
        elif head.kind == DELETES:
            self._removals.append(body[: len(body) // 8 * 8])
            if np.frombuffer(self._removals[-1], "<u8").max(initial=0) > head.seq:
                raise self._image.damage(at, "the removal of a later sequence")
        elif head.kind == FOOTER:
            self.is_sealed = True

    def _take_message(self, at: int, head: Head) -> None:
        begin = at + head.fixed - CHECKSUM_SIZE
        if not is_sendable(self._data[begin : begin + head.subject_len]):
            raise self._image.damage(at, "a subject that no client can send")
        size = head.length - head.fixed - head.subject_len
        flags = MESSAGE | (EXTENDED if head.flags & IS_EXTENDED else 0)
        flags |= ERASED if head.flags & IS_ERASED else 0
        lengths = (size, head.header_len, head.subject_len)
        self._rows.append(ROW.pack(head.seq, head.ts, at, *lengths, flags, NO_SUBJECT, 0))
        self._messages += 1
        self._last_ts = head.ts

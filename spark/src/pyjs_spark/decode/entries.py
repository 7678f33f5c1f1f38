"""Decodes the records of a stream, and the entries that locate the records, to columns.

pyjs_spark_fast/entries.pyx is the compiled version. Bulk reads from a server, and files of a store directory,
both give entries (40 bytes each, as in an index file) and bytes with the records that the entries locate.
The entries give the place of every cell, so nothing is searched, and fields that no column needs are not read.

    record = length u32  kind u8  flags u8  subject_len u16  seq u64  ts i64  header_len u32  check u32
             [term u64 index u64]  subject  headers  payload  checksum u64

Records from a file are checked before they are used; records from a server were checked by the server. This module
uses no socket, file or Arrow schema: columns have the form described in wire.py.

This module handles a whole piece at a time, with numpy and pyarrow. It treats all records of a piece as one array
with four cells for each record: the subject, the headers, the payload, and the bytes up to the next subject. So
every fourth cell belongs to the same column.

Source: docs/storage-format.md, "Segments" and "Index files"; docs/bulk-read.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from pyjs_spark.decode import hashing, wire
from pyjs_spark.decode.wire import COLUMNS, HEADERS, Taken

ENTRY = np.dtype(
    [
        ("seq", "<u8"),
        ("ts", "<i8"),
        ("offset", "<u4"),  # offset of the record
        ("size", "<u4"),  # bytes of headers and payload
        ("header_len", "<u4"),
        ("subject_len", "<u2"),
        ("flags", "<u2"),
        ("subject_id", "<u4"),
        ("prev", "<u4"),
    ]
)
ENTRY_SIZE = 40
assert ENTRY.itemsize == ENTRY_SIZE

# Flags of an index entry.
MESSAGE = 1
EXTENDED = 2  # term and index precede the subject
ERASED = 4

# Reasons why add() returned.
TAKEN = 0  # every entry became a row
FULL = 2  # rows_max or size_max is reached
WRONG = 5  # the entry does not follow the previous one, or is outside the range
DAMAGED = 7  # the record does not match its entry, or is incomplete

RECORD = struct.Struct("<IBBHQqII")
HEAD_SIZE = RECORD.size
CHECK_AT = HEAD_SIZE - 4
CHECKSUM_SIZE = 8
RECORD_SIZE_MIN = HEAD_SIZE + CHECKSUM_SIZE
KIND_MESSAGE = 1
UNFINISHED = 4  # flag of a record: the next record belongs to the same atomic batch
CHAINED, ALONE = 1, 2  # kinds of checks by a decoder (see Decoder.add); 0: none
UNSENDABLE = frozenset(b" \t\r\n")  # bytes that a subject cannot contain
# columns that are read from the records, since entries do not contain them
IN_RECORDS = frozenset(("subject", "headers", "data"))


def needs_records(columns: Sequence[str], headers: str) -> bool:
    """Return whether a column in `columns` must be read from the records.

    `headers` is the option includeHeaders.
    """
    wanted = IN_RECORDS if headers != "false" else IN_RECORDS - {"headers"}
    return bool(wanted & set(columns))


def is_whole(data: memoryview, at: int, length: int) -> bool:
    """Return whether the record at `at` is undamaged; `data` must also have the 8 bytes before the record."""
    end = at + length - CHECKSUM_SIZE
    before = int.from_bytes(data[at - CHECKSUM_SIZE : at], "little")
    stored = int.from_bytes(data[end : end + CHECKSUM_SIZE], "little")
    check = int.from_bytes(data[at + CHECK_AT : at + HEAD_SIZE], "little")
    own = hash_of(data, at, length)
    return hashing.xxh64(own.to_bytes(8, "little"), before) == stored and check_of(own) == check


def is_sendable(subject: bytes) -> bool:
    """Return whether a subject fits in a line of the protocol.

    The server treats a record with any other subject as damaged.
    """
    return bool(subject) and UNSENDABLE.isdisjoint(subject)


def hash_of(data: memoryview, at: int, length: int) -> int:
    """Return the hash of a record, from which its checks are computed."""
    seed = hashing.xxh64(data[at : at + CHECK_AT], 0)
    return hashing.xxh64(data[at + HEAD_SIZE : at + length - CHECKSUM_SIZE], seed)


def check_of(own: int) -> int:
    """Return the `check` field of a record whose hash is `own`."""
    return own & 0xFFFFFFFF or 1


class Decoder:
    """A decoder of entries and their records, which fills consecutive batches of rows."""

    def __init__(self, columns: Sequence[str], headers: str, rows_max: int, size_max: int) -> None:
        """Initialize the decoder; it fills `columns` (names of COLUMNS).

        A batch has at most `rows_max` rows and `size_max` bytes. Only a message larger than `size_max` exceeds this
        size; it gets a separate batch.
        """
        assert headers in HEADERS
        assert set(columns) <= set(COLUMNS)
        self.state = TAKEN
        self.last_seq = 0
        self._high = 0
        self._columns = tuple(columns)
        self._headers = headers
        self._wants_headers = "headers" in columns and headers != "false"
        self._rows_max = rows_max
        self._size_max = size_max
        self._begin()

    def listen(self, low: int, high: int) -> None:
        """Accept only sequences in [low, high)."""
        self.last_seq = low - 1
        self._high = high

    def add(self, entries: object, start: int, data: object, base: int, check: int) -> int:
        """Add rows for the entries from index `start` on, and return the index of the first entry without a row.

        `state` is then the reason why the call returned. `data` has the records from offset `base` on, or is None if
        no column needs them. If `check` is ALONE or CHAINED, each record must match its entry and its own `check`
        field. If `check` is CHAINED, the checksum of a record must also continue that of the 8 bytes before the
        record.
        """
        found: Any = np.frombuffer(entries, ENTRY)[start:]
        self.state = TAKEN
        count = self._fitting(found, self._in_order(found))
        at = None
        if data is not None:
            view = memoryview(data).cast("B")  # type: ignore[arg-type]
            at = found["offset"][:count].astype(np.int64) - base
            sound = _sound(found[:count], at, len(view), check)
            sound = _checked(view, found, at, sound, check) if check else sound
            if sound < count:
                self.state, count = DAMAGED, sound
            self._cells(found[:count], at[:count], view)
        if count:
            self._plain(found[:count])
            self.last_seq = int(found["seq"][count - 1])
            self.rows += count
        return start + count

    def take(self) -> Taken:
        """Return the rows as columns, and start a new batch."""
        rows, headerless = self.rows, self.rows - len(self._blocks)
        columns = {
            name: self._column(name) for name in self._columns if name != "headers" or self._wants_headers
        }
        self._begin()
        return Taken(rows, headerless, columns)

    def _begin(self) -> None:
        self.rows = 0
        self.size = 0
        self._pieces: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self._blocks: dict[int, bytes] = {}  # row -> headers, for rows that have some

    def _in_order(self, found: Any) -> int:
        """Return the number of leading entries that are messages with ascending sequences in the range."""
        seqs = found["seq"]
        before = np.concatenate((np.array([self.last_seq], np.uint64), seqs[:-1]))
        good = (seqs < self._high) & (seqs > before)
        good &= (found["flags"] & (MESSAGE | ERASED)) == MESSAGE
        count = _leading(good)
        if count < len(good):
            self.state = WRONG
        return count

    def _fitting(self, found: Any, count: int) -> int:
        """Return how many of the first `count` entries fit in the batch."""
        sizes = np.cumsum(found["size"][:count].astype(np.int64) + found["subject_len"][:count])
        fit = int(np.searchsorted(sizes, self._size_max - self.size, side="right"))
        fit = max(fit, 1) if not self.rows else fit  # an entry that is too large gets a separate batch
        fit = min(fit, self._rows_max - self.rows)
        if fit < count:
            self.state, count = FULL, fit
        return count

    def _plain(self, found: Any) -> None:
        """Add the cells of columns that entries contain."""
        self._pieces["seq"].append(found["seq"].astype(np.int64))
        self._pieces["ts_ns"].append(found["ts"].copy())
        self._pieces["size"].append((found["size"] - found["header_len"]).astype(np.int32))
        self.size += int(found["size"].astype(np.int64).sum()) + int(found["subject_len"].sum())

    def _cells(self, found: Any, at: Any, view: memoryview) -> None:
        """Add the cells of columns that only records contain."""
        count = len(found)
        if not count:
            return
        places = np.empty((count, 4), np.int32)
        places[:, 0] = at + HEAD_SIZE + np.where(found["flags"] & EXTENDED, 16, 0)
        places[:, 1] = places[:, 0] + found["subject_len"]
        places[:, 2] = places[:, 1] + found["header_len"]
        places[:, 3] = places[:, 1] + found["size"]
        whole = pa.Array.from_buffers(
            pa.binary(), 4 * count - 1, [None, pa.py_buffer(places), pa.py_buffer(view)]
        )
        cells = np.arange(0, 4 * count, 4)
        if "subject" in self._columns:
            self._pieces["subject"].append(whole.take(pa.array(cells)))
        if "data" in self._columns:
            self._pieces["data"].append(whole.take(pa.array(cells + 2)))
        if self._wants_headers:
            for row in np.flatnonzero(found["header_len"]).tolist():
                self._blocks[self.rows + row] = bytes(view[places[row, 1] : places[row, 2]])

    def _column(self, name: str) -> tuple[object, ...]:
        if name == "headers":
            make = wire.raw_headers if self._headers == "raw" else wire.header_maps
            return make(self.rows, self._blocks)
        pieces = self._pieces[name]
        if name in ("seq", "ts_ns", "size"):
            return (np.concatenate(pieces) if pieces else b"",)
        if not pieces:
            return wire.byte_column([])
        _, begins, values = pa.concat_arrays(pieces).buffers()
        values = values if values is not None else pa.py_buffer(b"")
        if name == "subject" and values.size and np.frombuffer(values, np.uint8).max() > 127:
            return wire.repaired(memoryview(begins)[: 4 * self.rows + 4], values.to_pybytes())
        return begins, values


def _leading(good: Any) -> int:
    """Return the number of leading elements that are true."""
    return len(good) if good.all() else int(np.argmin(good))


def _sound(found: Any, at: Any, size: int, check: int) -> int:
    """Return the number of leading records that do not overlap and that end within `size` bytes."""
    fixed = RECORD_SIZE_MIN + np.where(found["flags"] & EXTENDED, 16, 0)
    ends = at + fixed + found["subject_len"] + found["size"]
    least = CHECKSUM_SIZE if check == CHAINED else 0
    good = (at >= np.concatenate(([least], ends[:-1]))) & (ends <= size)
    good &= found["header_len"] <= found["size"]
    return _leading(good)


def _checked(view: memoryview, found: Any, at: Any, count: int, check: int) -> int:
    """Return the number of leading records, up to `count`, that are undamaged and match their entries."""
    columns = ("seq", "ts", "size", "header_len", "subject_len", "flags")
    lists = [found[name][:count].tolist() for name in columns]
    for number, (place, seq, ts, size, header_len, subject_len, flags) in enumerate(
        zip(at[:count].tolist(), *lists, strict=True)
    ):
        extra = 16 if flags & EXTENDED else 0
        length = RECORD_SIZE_MIN + extra + subject_len + size
        expected = (length, KIND_MESSAGE, bool(extra), subject_len, seq, ts, header_len)
        *head, own_check = RECORD.unpack_from(view, place)
        head[2] &= ~UNFINISHED
        if tuple(head) != expected:
            return number
        if check == CHAINED and not is_whole(view, place, length):
            return number
        if check == ALONE and own_check != check_of(hash_of(view, place, length)):
            return number
    return count

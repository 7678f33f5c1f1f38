"""Rows of a user as cells of messages, and checks of their values.

A whole batch is checked before any part of it is sent, using its buffers and its distinct subjects; so a
valid batch needs no Python per row. Only after an error are single rows examined, because the error shows
the number and content of the row.

Headers that were instructions for an earlier publish of the same message are left out, since the sink sets
new ones: `Nats-Expected-*`, `Nats-Batch-*`, `Pyjs-Sink`, and message ids that a sink created.

Source: ADR-4 (headers: names of printable ASCII without colon), nats.docs "Subject-Based Messaging".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyjs_spark.decode.frames import Cells, Columns, HeaderCells
from pyjs_spark.errors import RowRefused
from pyjs_spark.options.writing import FROM_HEADERS, SinkOptions, subject_fault
from pyjs_spark.subjects import filters_of, is_any
from pyjs_spark.write.columns import RowPlan

HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))
TEXTS = pa.map_(pa.string(), pa.string())
NAME = re.compile(r"[!-9;-~]+")  # a header's name
MADE = "pyjs:"  # prefix of ids that a sink creates
LEFT_OUT = re.compile(r"(?i)nats-(?:expected|batch)-.*|pyjs-sink")
SUBJECTS_KEPT = 100_000
SHOWN = 60
HEADERS_MAX = (1 << 16) - 1  # maximum bytes of headers that a stream stores


class RowReader:
    """A reader that converts the batches of one partition to checked columns."""

    def __init__(
        self,
        plan: RowPlan,
        options: SinkOptions,
        *,
        part: int,
        stream_subjects: Sequence[str],
        size_max: int,
        own_size: int,
    ) -> None:
        """Initialize the reader.

        `size_max` is the server's maximum size of a message in bytes; `own_size` of these are for the sink's headers.
        """
        self._plan = plan
        self._options = options
        self._part = part
        self._taken = filters_of(stream_subjects)
        self._stream_subjects = ", ".join(stream_subjects)
        self._size_max = size_max
        self._own_size = own_size
        self._good: set[str] = set()  # subjects that were checked and are valid
        self._good_names: set[str] = set()

    def columns(self, batch: pa.RecordBatch, first: int) -> Columns:
        """Return the cells of a batch whose first row is row `first` of the partition.

        Raises:
            RowRefused: a row cannot be a message; the error message states the number and content of the row.
        """
        plan = self._plan
        data = self._full(batch, plan.data, "data", first)
        subject = None
        if plan.subject >= 0:
            subject = self._full(batch, plan.subject, "subject", first)
            self._check_subjects(subject, first)
        headers, own = None, b""
        if plan.headers >= 0:
            headers = self._header_map(batch.column(plan.headers), first)
            headers, own = self._own_headers(headers, first)
        ids = None
        if plan.msg_id >= 0:
            ids, own = self._ids(batch.column(plan.msg_id), first)
        self._check_sizes(data, headers, ids, first)
        return Columns(
            rows=batch.num_rows,
            data=_cells(data),
            subject=None if subject is None else _cells(subject),
            headers=None if headers is None else _header_cells(headers),
            ids=None if ids is None else _cells(ids),
            own=own,
        )

    def _refuse(self, row: int, why: str) -> RowRefused:
        return RowRefused(f"row {row} of partition {self._part}: {why}")

    def _full(self, batch: pa.RecordBatch, place: int, name: str, first: int) -> pa.Array:
        """Return a column. Raises RowRefused if a cell is null."""
        array = _plain(batch.column(place))
        if array.null_count:
            row = first + pc.index(pc.is_null(array), True).as_py()
            advice = "coalesce(data, '') makes it empty" if name == "data" else "filter such rows, or set it"
            raise self._refuse(row, f"{name} is null; {advice}")
        return array

    def _check_subjects(self, subjects: pa.Array, first: int) -> None:
        for subject in pc.unique(subjects).to_pylist():
            if subject in self._good:
                continue
            why = self._subject_fault(subject)
            if why:
                row = first + pc.index(subjects, subject).as_py()
                raise self._refuse(row, f"the subject {_shown(subject)} {why}")
            if len(self._good) >= SUBJECTS_KEPT:
                self._good.clear()
            self._good.add(subject)

    def _subject_fault(self, subject: str) -> str:
        wrong = subject_fault(subject)
        if wrong:
            return f"has {wrong}, which the subject of a message cannot have"
        if is_any(subject.encode(), self._taken):
            return ""
        return f"is none of the stream {self._options.stream}, which takes {self._stream_subjects}"

    def _ids(self, column: pa.Array, first: int) -> tuple[pa.Array, bytes]:
        """Return the ids, and one byte for each row: 1 if the row has an id.

        Raises:
            RowRefused: an id is empty, or has a line end.
        """
        own = pc.is_valid(column).cast(pa.uint8())
        ids = pc.fill_null(_plain(column), "")
        empty = pc.and_(pc.is_valid(column), pc.equal(pc.binary_length(ids), 0))
        if pc.any(empty).as_py():
            row = first + pc.index(empty, True).as_py()
            raise self._refuse(row, "its message id is empty; set it, or make it null for one that is made")
        self._check_values(ids, lambda at: at, "its message id", first)
        return ids, bytes(memoryview(own.buffers()[1])[own.offset : own.offset + len(own)])

    def _header_map(self, column: pa.MapArray, first: int) -> pa.MapArray:
        """Return the headers as a map of lists. Raises RowRefused for an invalid header."""
        column = _with_lists(column)
        names, lists = column.keys, column.items
        self._check_names(column, names, first)
        row_of = _owner(column.offsets)
        if lists.null_count:
            at = pc.index(pc.is_null(lists), True).as_py()
            raise self._refuse(
                first + row_of(at), f"the header {_shown(names[at].as_py())} is null; leave it out"
            )
        lengths = pc.list_value_length(lists)
        if len(lists) and pc.min(lengths).as_py() == 0:
            at = pc.index(lengths, 0).as_py()
            raise self._refuse(first + row_of(at), f"the header {_shown(names[at].as_py())} has no value")
        values = lists.values
        entry_of = _owner(lists.offsets)
        if values.null_count:
            at = pc.index(pc.is_null(values), True).as_py()
            raise self._refuse(first + row_of(entry_of(at)), "a value of a header is null; leave it out")
        self._check_values(values, lambda at: row_of(entry_of(at)), "a value of a header", first)
        return column

    def _check_names(self, column: pa.MapArray, names: pa.Array, first: int) -> None:
        for name in pc.unique(names).to_pylist():
            if name in self._good_names:
                continue
            if name is None or not NAME.fullmatch(name):
                row = first + _owner(column.offsets)(pc.index(names, name).as_py())
                why = "the name of a header must be printable ASCII without ':' and spaces"
                raise self._refuse(row, f"{_shown(name)} is no header; {why}")
            if len(self._good_names) < SUBJECTS_KEPT:
                self._good_names.add(name)

    def _check_values(self, values: pa.Array, row_of: Callable[[int], int], what: str, first: int) -> None:
        """Raise RowRefused for a value with a line end, which would begin another header."""
        held = values.buffers()[2]
        text = held.to_pybytes() if held is not None else b""
        if b"\r" not in text and b"\n" not in text:
            return
        bad = pc.match_substring_regex(values, "[\r\n]")
        if pc.any(bad).as_py():
            at = pc.index(bad, True).as_py()
            raise self._refuse(
                first + row_of(at), f"{what} has a line end: {_shown(values[at].as_py())}; take it out"
            )

    def _own_headers(self, headers: pa.MapArray, first: int) -> tuple[pa.MapArray, bytes]:
        """Return the headers without those for earlier publishes, and the marks of rows with a message id.

        The marks have one byte for each row, 1 if the row has a message id. They are empty if no row has one.
        """
        names = headers.keys
        known = [name for name in pc.unique(names).to_pylist() if _is_special(name)]
        if not known:
            return headers, b""
        entries: list[list[tuple[str, list[str]]]] = []
        own = bytearray(len(headers))
        for at, pairs in enumerate(headers.to_pylist()):
            kept = []
            for name, some in pairs or ():
                is_id = name.lower() == "nats-msg-id"
                if LEFT_OUT.fullmatch(name) or (is_id and some[-1].startswith(MADE)):
                    continue
                if is_id:
                    self._check_id(some, bool(own[at]), first + at)
                    own[at] = 1
                kept.append((name, some))
            entries.append(kept)
        return pa.array(entries, headers.type), bytes(own) if any(own) else b""

    def _check_id(self, values: list[str], is_second: bool, row: int) -> None:
        if self._options.msg_id != FROM_HEADERS:
            raise self._refuse(
                row,
                f"it has the header Nats-Msg-Id: {_shown(values[0])}. Option msgId=header keeps such ids, and then "
                "the server stores messages of one id once within its duplicate window; or take it out: "
                "map_filter(headers, (k, v) -> k <> 'Nats-Msg-Id')",
            )
        if len(values) > 1 or is_second or not values[0]:
            raise self._refuse(row, f"it has several or empty headers Nats-Msg-Id: {values!r:.60}")

    def _check_sizes(
        self, data: pa.Array, headers: pa.MapArray | None, ids: pa.Array | None, first: int
    ) -> None:
        """Raise RowRefused for a message that is too large, since a server would close the connection."""
        sizes = pc.binary_length(data).cast(pa.int64())
        total = _header_sizes(headers) if headers is not None else None
        if ids is not None:
            id_sizes = pc.binary_length(ids).cast(pa.int64())
            total = id_sizes if total is None else pc.add(total, id_sizes)
        if total is not None:
            self._check_limit(
                total, HEADERS_MAX, first, f"its headers have %d bytes; a stream takes {HEADERS_MAX}"
            )
            sizes = pc.add(sizes, total)
        why = (
            f"it has %d bytes with its headers; the server takes {self._size_max} (max_payload), of which the "
            f"headers of the sink take up to {self._own_size}"
        )
        self._check_limit(sizes, self._size_max, first, why)

    def _check_limit(self, sizes: pa.Array, size_max: int, first: int, why: str) -> None:
        """Raise RowRefused if a size is above `size_max` together with the size of the sink's headers."""
        most = size_max - self._own_size
        if len(sizes) and pc.max(sizes).as_py() > most:
            at = pc.index(pc.greater(sizes, most), True).as_py()
            raise self._refuse(first + at, why % sizes[at].as_py())


def size_max(info: Mapping[str, Any]) -> int:
    """Return the server's maximum size of a message in bytes from its INFO, or 1 MiB if INFO does not have it."""
    return int(info.get("max_payload") or 1 << 20)


def _is_special(name: str) -> bool:
    return bool(LEFT_OUT.fullmatch(name)) or name.lower() == "nats-msg-id"


def _shown(text: str | None) -> str:
    return repr(text if text is None or len(text) <= SHOWN else text[:SHOWN] + "...")


def _plain(array: pa.Array) -> pa.Array:
    """Return a column as strings or bytes with offsets of 4 bytes."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return array
    is_text = pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return array.cast(pa.string() if is_text else pa.binary())


def _with_lists(column: pa.MapArray) -> pa.MapArray:
    """Return a column of maps as maps of lists, in an array whose entries begin with those of the first row.

    Null rows become empty maps.
    """
    kind = column.type.item_type
    is_listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    plain = column.cast(HEADERS if is_listed else TEXTS).take(pa.array(range(len(column)), pa.int64()))
    if is_listed:
        return plain
    each = pa.array(range(len(plain.items) + 1), pa.int32())
    lists = pa.ListArray.from_arrays(each, plain.items, mask=pc.is_null(plain.items))
    return pa.MapArray.from_arrays(plain.offsets, plain.keys, lists)


def _owner(offsets: pa.Array) -> Callable[[int], int]:
    """Return a function from the index of an entry to the index of the row that contains the entry."""
    return lambda at: bisect_right(offsets.to_pylist(), at) - 1


def _header_sizes(headers: pa.MapArray) -> pa.Array:
    """Return the size in bytes of the header lines of each row."""
    values = headers.items.values
    value_sizes = pc.add(pc.binary_length(values).cast(pa.int64()), 4)  # plus 4 for ": " and CRLF
    lists = headers.items
    counts = pc.list_value_length(lists).cast(pa.int64())
    name_sizes = pc.multiply(pc.binary_length(headers.keys).cast(pa.int64()), counts)
    by_entry = pc.add(_sums(value_sizes, lists.offsets), name_sizes)
    return _sums(by_entry, headers.offsets)


def _sums(values: pa.Array, offsets: pa.Array) -> pa.Array:
    """Return the sum of each range of `values` between two consecutive `offsets`."""
    totals = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(values)])
    return pc.subtract(totals.take(offsets[1:]), totals.take(offsets[:-1]))


def _cells(array: pa.Array) -> Cells:
    _, offsets, values = array.buffers()
    bytes_of_values = memoryview(values if values is not None else b"")
    return _offsets(offsets, array.offset, len(array)), bytes_of_values


def _header_cells(headers: pa.MapArray) -> HeaderCells:
    lists = headers.items
    entries = _offsets(headers.buffers()[1], headers.offset, len(headers))
    begins = _offsets(lists.buffers()[1], lists.offset, len(lists))
    return (entries, *_cells(headers.keys), begins, *_cells(lists.values))


def _offsets(buffer: pa.Buffer | None, at: int, count: int) -> memoryview:
    if not count or buffer is None:  # an empty array may have no buffer
        return memoryview(bytes(4)).cast("i")
    return memoryview(buffer).cast("B").cast("i")[at : at + count + 1]

"""Messages of one range of sequences from the files of a store directory, as Arrow batches.

Segments are read one at a time. Their entries show which messages exist and are wanted. The records of these
messages are read in pieces of about a megabyte, checked and decoded. If a record is invalid, the whole segment is
scanned: if the index file was wrong, it is ignored; if the segment is damaged, the read fails.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pyjs_spark import fast
from pyjs_spark.decode import entries
from pyjs_spark.decode.entries import CHAINED, CHECKSUM_SIZE, ERASED, EXTENDED, FULL, RECORD_SIZE_MIN, TAKEN
from pyjs_spark.read.batches import BatchMaker, decoded_columns
from pyjs_spark.read.ranges import BATCH_SIZE_MAX, Losses, ReadRange, Report
from pyjs_spark.store import snapshot
from pyjs_spark.store.api import info_of, snapshot_of
from pyjs_spark.store.contents import Contents
from pyjs_spark.store.directory import damaged_store
from pyjs_spark.store.image import Image, Unusable, open_image
from pyjs_spark.store.place import StoreDirectory
from pyjs_spark.store.purge import matching
from pyjs_spark.store.snapshot import Snapshot
from pyjs_spark.subjects import filters_of

if fast.IS_THERE:
    from pyjs_spark_fast.entries import Decoder
else:
    from pyjs_spark.decode.entries import Decoder  # type: ignore[assignment]

PIECE_SIZE = 1 << 20  # bytes
HOLE_SIZE = 1 << 16  # bytes; a shorter gap between wanted records is read with them


def read_range(
    place: StoreDirectory, what: ReadRange, report: Report | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range in order; see pull.read_range()."""
    report = report or Report()
    if what.low >= what.high:
        return
    losses = Losses(what, report)
    found = snapshot_of(place, what.stream)
    info = info_of(found) if found is not None else None
    if info is not None and found is not None and found.is_consumed:
        state = info["state"]
        state["first_seq"] = min(what.low, state["first_seq"])  # messages removed by consumers are not lost
    if not losses.of_stream(info, what.low):
        return
    assert found is not None
    read = _Read(place, found, what, losses)
    maker = BatchMaker(what)
    for _ in read.batches():
        report.rows += read.decoder.rows
        yield maker.make(read.decoder.take())


class _Read:
    """One read of a range from the files of a store directory."""

    def __init__(self, place: StoreDirectory, found: Snapshot, what: ReadRange, losses: Losses) -> None:
        self._place = place
        self._found = found
        self._what = what
        self._losses = losses
        self._needs_records = entries.needs_records(what.columns, what.headers)
        self._chosen = filters_of(what.subjects)
        self.decoder = Decoder(
            decoded_columns(what.columns), what.headers, what.bulk_batch_rows, BATCH_SIZE_MAX
        )
        self.decoder.listen(what.low, what.high)
        self._is_deleted = False  # whether the stream was deleted since the read began

    def batches(self) -> Iterator[None]:
        """Yield None whenever the decoder has a complete batch, and at the end if it has rows."""
        what = self._what
        for segment in self._found.segments:
            if self._is_deleted:
                break
            if segment.next_seq > what.low and segment.base_seq < what.high:
                yield from self._segment(segment)
        if self.decoder.rows:
            yield None

    def _segment(self, segment: Contents) -> Iterator[None]:
        """Read the wanted part of one segment.

        After an invalid record, the segment is read again without its index file.

        Raises:
            BadStore: the segment is damaged.
        """
        path, problem = f"{self._found.stream.messages}/{segment.number:08d}.seg", ""
        for attempt in range(snapshot.TRIES):
            try:
                with closing(open_image(path, self._found.stream.metadata.key)) as image:
                    if (yield from self._from_image(image, segment.number, is_doubted=attempt > 0)):
                        return
                problem = f"{path} is damaged: its records do not follow"
            except FileNotFoundError:
                problem = ""
                break
            except Unusable as error:  # damaged, or changed during the read
                problem = str(error)
        self._removed(segment)  # a stream that replaced this one may have written the file
        if problem and not self._is_deleted:
            raise damaged_store(self._found.stream.messages, problem)

    def _from_image(self, image: Image, number: int, is_doubted: bool) -> Generator[None, None, bool]:
        """Decode the wanted part of an open segment; return whether all of it was valid."""
        contents = snapshot.contents_of(self._found.stream, image, number, is_doubted)
        self._check_erased(contents, image.path)
        return (yield from self._rows(self._wanted(contents, image), image))

    def _removed(self, segment: Contents) -> None:
        """Handle a segment whose file has disappeared since the read began.

        The messages of the segment were removed, or they are lost.
        """
        low = max(segment.base_seq, self.decoder.last_seq + 1)
        again = snapshot_of(self._place, self._what.stream)
        created_ns = self._found.stream.metadata.created_ns
        if again is None or again.stream.metadata.created_ns != created_ns:
            self._is_deleted = True
            self._losses.of_stream(info_of(again) if again is not None else None, low)
            return
        if not self._found.is_consumed:
            high = min(segment.next_seq, self._what.high)
            self._losses.of_batch(info_of(again), low, high, segment.messages)

    def _wanted(self, contents: Contents, image: Image) -> Any:
        """Return the entries of the existing messages that are in the range and have a requested subject."""
        rows = self._found.live(contents.entries)
        bounds = np.array([max(self._what.low, self.decoder.last_seq + 1), self._what.high], np.uint64)
        first, last = np.searchsorted(rows["seq"], bounds)
        rows = rows[first:last]
        if not self._chosen or not len(rows):
            return rows
        return rows[matching(contents, rows, image, self._chosen)]

    def _rows(self, rows: Any, image: Image) -> Generator[None, None, bool]:
        """Decode the entries `rows`, and return whether all of them were valid.

        None is yielded for each complete batch.
        """
        if not self._needs_records:
            return (yield from self._piece(rows, None, 0))
        for piece in pieces(rows):
            data = image.read(piece.base, piece.size)
            if not (yield from self._piece(rows[piece.first : piece.end], data, piece.base)):
                return False
        return True

    def _piece(self, rows: Any, data: bytes | None, base: int) -> Generator[None, None, bool]:
        """Decode the entries of one piece, and return whether all of them were valid.

        None is yielded for each complete batch.
        """
        table, at = np.ascontiguousarray(rows).view(np.uint8), 0
        check = CHAINED if data is not None else 0
        while at < len(rows):
            at = self.decoder.add(table, at, data, base, check)
            if self.decoder.state == FULL:
                yield None
            elif self.decoder.state != TAKEN:
                return False
        return True

    def _check_erased(self, contents: Contents, path: str) -> None:
        """Raise BadStore if messages were overwritten without a recorded removal."""
        erased = contents.entries["seq"][contents.entries["flags"] & ERASED != 0]
        doubted = [seq for seq in erased.tolist() if not self._found.is_removed(seq)]
        # The removal may have been recorded after the contents were read.
        again = snapshot_of(self._place, self._what.stream) if doubted else None
        for seq in doubted:
            if again is not None and not again.is_removed(seq):
                what = f"{path} is damaged: message {seq} is overwritten but was never removed"
                raise damaged_store(self._found.stream.messages, what)


class Piece(NamedTuple):
    """Entries [first, end), whose records are in the `size` bytes from `base` on."""

    first: int
    end: int
    base: int
    size: int


def pieces(rows: Any) -> Iterator[Piece]:
    """Divide the records of the entries `rows` into pieces, and yield the pieces in order."""
    begins = rows["offset"].astype(np.int64)
    ends = begins + rows["subject_len"] + rows["size"] + RECORD_SIZE_MIN
    ends += np.where(rows["flags"] & EXTENDED, 16, 0)
    at = 0
    while at < len(rows):
        end = max(at + 1, int(np.searchsorted(ends, begins[at] + PIECE_SIZE, side="right")))
        holes = np.flatnonzero(begins[at + 1 : end] - ends[at : end - 1] > HOLE_SIZE)
        end = at + 1 + int(holes[0]) if len(holes) else end
        base = int(begins[at]) - CHECKSUM_SIZE
        yield Piece(at, end, base, int(ends[end - 1]) - base)
        at = end

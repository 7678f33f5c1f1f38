"""Messages of one range of sequences from the files of a store directory, as Arrow batches.

A segment at a time: its entries tell which messages are there and wanted, and pieces of about a megabyte are read and
decoded, each record checked. Where one does not check out its whole segment is read by its records, as the server
does, and what is damaged is lost: told and counted, or the end of the read (failOnDataLoss).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from pyjs_spark import fast
from pyjs_spark.decode import entries
from pyjs_spark.decode.entries import CHAINED, ERASED, FULL, TAKEN, Decoding
from pyjs_spark.read.batches import BatchMaker, decoded_columns
from pyjs_spark.read.ranges import BATCH_SIZE_MAX, Losses, ReadRange, Report, check_range
from pyjs_spark.store import snapshot
from pyjs_spark.store.api import info_of, snapshot_of
from pyjs_spark.store.contents import Contents
from pyjs_spark.store.image import HeldImage, Image, Unusable, open_image
from pyjs_spark.store.pieces import pieces
from pyjs_spark.store.place import StoreDirectory
from pyjs_spark.store.purge import matching
from pyjs_spark.store.snapshot import Snapshot

if fast.IS_THERE:
    from pyjs_spark_fast.entries import Decoder
else:
    from pyjs_spark.decode.entries import Decoder  # type: ignore[assignment]

LOG = logging.getLogger("pyjs_spark")


def read_range(
    place: StoreDirectory, what: ReadRange, report: Report | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the range in order; see pull.read_range()."""
    report = report or Report()
    check_range(what)
    if what.low >= what.high:
        return
    losses = Losses(what, report)
    found = snapshot_of(place, what.stream)
    info = info_of(found) if found is not None else None
    if info is not None and found is not None and found.is_consumed:
        info["state"]["first_seq"] = min(what.low, info["state"]["first_seq"])  # what was consumed is no loss
    if not losses.of_stream(info, what.low):
        return
    assert found is not None
    for lost in found.lost:
        losses.damaged(lost.low, lost.high, lost.why)
    read = _Read(place, found, what, losses)
    maker = BatchMaker(what)
    for _ in read.batches():
        report.rows += read.decoder.rows
        yield maker.make(read.decoder.take())


class _Read:
    """One read of a range."""

    def __init__(self, place: StoreDirectory, found: Snapshot, what: ReadRange, losses: Losses) -> None:
        self._place = place
        self._found = found
        self._what = what
        self._losses = losses
        self._needs_records = entries.needs_records(what.columns, what.headers)
        self._chosen = [subject.encode().split(b".") for subject in what.subjects]
        self.decoder: Decoding = Decoder(
            decoded_columns(what.columns), what.headers, what.bulk_batch_rows, BATCH_SIZE_MAX
        )
        self.decoder.listen(what.low, what.high)
        self._is_deleted = False  # the stream, since the read began

    def batches(self) -> Iterator[None]:
        """Yield whenever the decoder has a batch to be taken."""
        what = self._what
        for segment in self._found.segments:
            if self._is_deleted:
                break
            if segment.next_seq > what.low and segment.base_seq < what.high:
                yield from self._segment(segment)
        if self.decoder.rows:
            yield None

    def _segment(self, segment: Contents) -> Iterator[None]:
        """Read what is wanted of one segment; again, by its records, where one of them does not check out."""
        path = f"{self._found.stream.messages}/{segment.number:08d}.seg"
        for is_doubted in (False, True):
            try:
                image = open_image(path, self._found.stream.metadata.key)
            except (FileNotFoundError, Unusable):
                self._removed(segment)
                return
            try:
                if (yield from self._from_image(image, segment, is_doubted, path)):
                    return
            except (FileNotFoundError, Unusable):
                self._removed(segment)
                return
            finally:
                image.close()
        self._losses.damaged(
            self.decoder.last_seq + 1, segment.next_seq, f"{path}: its records do not follow"
        )

    def _from_image(
        self, image: Image, segment: Contents, is_doubted: bool, path: str
    ) -> Generator[None, None, bool]:
        """Decode what is wanted of an open segment; return whether all of it checked out."""
        stream = self._found.stream
        image = HeldImage(image) if is_doubted else image
        contents = snapshot.contents_of(stream, image, segment.number, segment.base_seq, is_doubted)
        self._check_erased(contents, path)
        rows = self._wanted(contents, image)
        if is_doubted:
            self._count_damage(segment, contents, path)
        # What a scan takes by its rules, as a record whose checksum alone is damaged, is not doubted.
        return (yield from self._rows(rows, image, check=not is_doubted))

    def _removed(self, segment: Contents) -> None:
        """Take note of a segment that is gone since the read began: its messages were removed, or are lost."""
        low = max(segment.base_seq, self.decoder.last_seq + 1)
        again = snapshot_of(self._place, self._what.stream)
        created_ns = self._found.stream.metadata.created_ns
        if again is None or again.stream.metadata.created_ns != created_ns:
            self._is_deleted = True
            self._losses.of_stream(info_of(again) if again is not None else None, low)
            return
        for lost in again.lost:
            self._losses.damaged(max(lost.low, low), min(lost.high, segment.next_seq), lost.why)
        if not self._found.is_consumed:
            high = min(segment.next_seq, self._what.high)
            self._losses.of_batch(info_of(again), low, high, segment.messages)

    def _wanted(self, contents: Contents, image: Image) -> Any:
        """Return the entries of messages that are there, in the range and of the subjects asked for."""
        rows = self._found.live(contents.entries)
        bounds = np.array([max(self._what.low, self.decoder.last_seq + 1), self._what.high], np.uint64)
        first, last = np.searchsorted(rows["seq"], bounds)
        rows = rows[first:last]
        if not self._chosen or not len(rows):
            return rows
        return rows[matching(contents, rows, image, self._chosen)]

    def _rows(self, rows: Any, image: Image, check: bool) -> Generator[None, None, bool]:
        """Decode these entries; return whether all of them checked out."""
        if not self._needs_records:
            return (yield from self._piece(rows, None, 0, False))
        for piece in pieces(rows):
            data = image.read(piece.base, piece.size)
            if not (yield from self._piece(rows[piece.first : piece.end], data, piece.base, check)):
                return False
        return True

    def _piece(self, rows: Any, data: bytes | None, base: int, check: bool) -> Generator[None, None, bool]:
        """Decode the entries of one piece; return whether all of them checked out."""
        table, at = np.ascontiguousarray(rows).view(np.uint8), 0
        while at < len(rows):
            at = self.decoder.add(table, at, data, base, CHAINED if check else 0)
            if self.decoder.state == FULL:
                yield None
            elif self.decoder.state != TAKEN:
                return False
        return True

    def _check_erased(self, contents: Contents, path: str) -> None:
        """Count messages that are overwritten although nothing says that they were removed."""
        erased = contents.entries["seq"][contents.entries["flags"] & ERASED != 0]
        for seq in erased.tolist():
            if not self._found.is_removed(seq):
                self._losses.damaged(
                    seq, seq + 1, f"{path}: message {seq} is overwritten but was never removed"
                )

    def _count_damage(self, segment: Contents, contents: Contents, path: str) -> None:
        """Count the entries of the index file that have no record; `contents` is from the records."""
        by_index = snapshot.load(self._found.stream, segment.number, segment.base_seq)
        for problem in contents.problems:
            LOG.warning("%s %s", path, problem)
        if not contents.problems:
            LOG.warning("%s is whole, and its index file says something else: that counts for nothing", path)
            return
        seqs = self._found.live(by_index.entries)["seq"]
        gone = seqs[~np.isin(seqs, contents.entries["seq"])]
        gone = gone[(gone > np.uint64(self.decoder.last_seq)) & (gone < np.uint64(self._what.high))]
        if len(gone):
            why = f"{path}: {'; '.join(contents.problems) or 'records are damaged'}"
            self._losses.damaged(int(gone[0]), int(gone[0]) + len(gone), why)

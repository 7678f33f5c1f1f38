"""Archives of streams, in every format: which ranges are archived or missing, and the files that tasks write.

Ranges end at multiples of `rows_per_file`; the last range ends where the stream ended when it was read. A task reads
one range and writes one file for each UTC day; so a repeated run writes the same files. Tasks write to a place that
readers ignore, and the driver makes the files of one attempt visible (tables/). So Spark may run a task several
times, even at the same time. The attempts may write different files, for example if messages were deleted in between.

Only one run at a time may write to an archive. The root is a directory that all workers can access, or a URI
that pyarrow supports (s3://, hdfs://, gs://). This module knows nothing of formats.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyjs_spark.errors import DataLoss, OptionError
from pyjs_spark.lake.files import file_system, sync
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options.reading import Options
from pyjs_spark.read import ranges
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.plan import Span, StreamState
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.times import EPOCH

if TYPE_CHECKING:
    import pyarrow as pa

# the path of a file has the stream and the date
COLUMNS = ("seq", "ts", "ts_ns", "subject", "headers", "data")
US_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Written:
    """One new file of the archive."""

    stream: str
    path: str
    low: int
    high: int  # exclusive
    rows: int


@dataclass(frozen=True, slots=True)
class File:
    """One file of the archive, which covers the sequences [low, high)."""

    path: str
    low: int
    high: int
    size: int  # bytes; 0 if the range has no message


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that a task wrote: messages of one date, with sequences in [low, high)."""

    path: str  # below parts_folder
    date: str
    low: int
    high: int  # exclusive
    rows: int
    size: int
    seqs: Sequence[int]  # sequences of the first and the last row
    times_ns: Sequence[int]  # the lowest and the highest storage time


@dataclass(frozen=True, slots=True)
class Holding:
    """The sequences of one stream: those in an archive, and those in the stream now."""

    state: StreamState
    # [low, high) of each file, sorted; a table has a single range for all its files.
    covered: tuple[tuple[int, int], ...]
    said: Mapping[str, Any] | None  # contents of _archive.json; None if the stream is not in the archive yet
    files: int  # number of files that contain its rows

    @property
    def next(self) -> int:
        """Return the sequence after the last archived sequence.

        For an empty archive, this is the first sequence of the stream.
        """
        return max((high for _, high in self.covered), default=self.state.first_seq)


def states(root: str, options: Options) -> list[StreamState]:
    """Return the state of each stream that the options name.

    Raises:
        OptionError: the root is a file, or pyarrow has no file system for it.
        StreamMissing: a stream does not exist.
    """
    system, base = file_system(root)
    if system.get_file_info(base).is_file:
        raise OptionError(f"folder {root}: this is a file; name a folder, which need not be there yet")
    return list(Planner(options, api_of(options)).states().values())


def lacking(root: str, options: Options, holdings: Iterable[Holding], rows_per_file: int) -> list[ReadRange]:
    """Return the ranges that the next run will write, and change nothing.

    Raises:
        OptionError, DataLoss: as in lakes.archive().
    """
    found: list[ReadRange] = []
    for holding in holdings:
        state = holding.state
        _check_same(root, holding, options)
        _check_lost(holding, options)
        for low, high in missing(state.first_seq, state.end, holding.covered, rows_per_file):
            found.append(range_of(options, state.name, low, high, state.created))
    return found


def range_of(options: Options, stream: str, low: int, high: int, created: str) -> ReadRange:
    """Return the range [low, high) of a stream, as a task of an archive reads it."""
    span = Span(stream, low, high, created)
    return ranges.range_of(options, span, columns(options.include_headers), options.subjects)


def columns(headers: str) -> tuple[str, ...]:
    """Return the columns of the files; `headers` is the option includeHeaders."""
    return tuple(name for name in COLUMNS if name != "headers" or headers != "false")


def missing(
    first: int, end: int, covered: Iterable[tuple[int, int]], rows_per_file: int
) -> Iterator[tuple[int, int]]:
    """Yield the uncovered parts of [first, end), cut at the multiples of `rows_per_file`."""
    at = first
    for low, high in sorted([*covered, (end, end)]):
        stop = min(low, end)
        while at < stop:
            cut = min(stop, (at - 1) // rows_per_file * rows_per_file + rows_per_file + 1)
            yield at, cut
            at = cut
        at = max(at, high)


def _check_lost(holding: Holding, options: Options) -> None:
    """Raise DataLoss if the stream ends before its archive, or messages were removed before they were archived.

    Removed messages are accepted with failOnDataLoss=false, and if consumers of the stream remove messages.
    """
    state = holding.state
    if wrong := lost_end(holding):
        raise DataLoss(f"stream {state.name}: {wrong}; give the archive another root")
    if options.fail_on_data_loss and not state.is_consumed and holding.next < state.first_seq:
        raise DataLoss(
            f"stream {state.name}: messages {holding.next} to {state.first_seq - 1} were removed before they were "
            f"archived; set failOnDataLoss=false to go on after them"
        )


def lost_end(holding: Holding) -> str:
    """Return a description of the loss if the stream ends before its archive, otherwise "".

    This happens after a restore or a power failure.
    """
    state = holding.state
    if not holding.covered or holding.next <= state.end:
        return ""
    return (
        f"it ends at sequence {state.last_seq}, and the archive has messages up to {holding.next - 1}: the stream "
        "lost its end, and what comes now are other messages under those sequences"
    )


def _check_same(root: str, holding: Holding, options: Options) -> None:
    """Raise DataLoss if the archive is of another stream, and OptionError if it was begun with other options."""
    found, state = holding.said, holding.state
    ours = {"subjects": list(options.subjects), "headers": options.include_headers}
    if found is None:
        return
    if found["created"] != state.created:
        raise DataLoss(
            f"stream {state.name}: the archive at {root} is of the stream created at {found['created']}, there is "
            f"one of {state.created}; its sequences mean other messages: give it another root"
        )
    for name, option in (("subjects", "subjects"), ("headers", "includeHeaders")):
        if found[name] != ours[name]:
            raise OptionError(
                f"option {option}={ours[name]}: the archive at {root} was begun with {found[name]}"
            )


# -- progress -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """The progress of one stream's archive; ranges are [low, high)."""

    stream: str
    first: int  # the stream's first sequence
    last: int  # the stream's last sequence; 0 if there never was a message
    files: int
    next: int  # the sequence after the last archived sequence
    lag: int  # number of sequences that the next run will write
    lost: tuple[tuple[int, int], ...]  # ranges removed before they were archived
    other: str  # creation time of the archived stream, if the present stream is a different one; otherwise ""
    lost_end: str  # a description, if the stream has less than the archive; otherwise ""


@dataclass(frozen=True, slots=True)
class Planned:
    """One range that the next run will write; if it spans midnight, it becomes one file for each day."""

    stream: str
    low: int
    high: int  # exclusive
    rows: int  # approximate; at most the number of sequences in the range
    size: int  # approximate bytes in the stream; Parquet files are usually smaller


def progress(holding: Holding) -> ArchiveProgress:
    """Return the progress of one stream's archive."""
    state, covered = holding.state, holding.covered
    is_other = holding.said is not None and holding.said["created"] != state.created
    ends = [low for low, _ in covered[:1]]
    left = [] if is_other else missing(state.first_seq, state.end, covered, max(1, state.end))
    gone = missing(min(ends, default=state.first_seq), state.first_seq, covered, max(1, state.end))
    return ArchiveProgress(
        stream=state.name,
        first=state.first_seq,
        last=state.last_seq,
        files=holding.files,
        next=holding.next,
        lag=sum(high - low for low, high in left),
        lost=() if is_other or state.is_consumed else tuple(gone),
        other=str(holding.said["created"]) if is_other and holding.said is not None else "",
        lost_end="" if is_other else lost_end(holding),
    )


def planned(holdings: Iterable[Holding], ranges: Iterable[ReadRange]) -> list[Planned]:
    """Return the ranges of the next run; their rows and bytes are estimated from the averages of the stream."""
    states = {holding.state.name: holding.state for holding in holdings}
    found = []
    for each in ranges:
        state = states[each.stream]
        count, total = each.high - each.low, state.end - state.first_seq
        rows, size = (-(-whole * count // total) for whole in (state.messages, state.size))
        found.append(Planned(each.stream, each.low, each.high, rows, size))
    return found


# -- files ----------------------------------------------------------------------------------------------------------


def parts_folder(kind: str, stream: str) -> str:
    """Return the folder, below the root, in which tasks write the files of a stream."""
    return {"parquet": f"stream={quoted(stream)}/_tmp", "iceberg": f"{folder_name(stream)}/data"}.get(
        kind, folder_name(stream)
    )


def quoted(stream: str) -> str:
    """Return the name of a stream as it appears in paths."""
    return quote(stream, safe="")


def folder_name(stream: str) -> str:
    """Return the folder name of a stream.

    It has no percent signs, since the Delta library decodes these in some places.
    """
    return quoted(stream).replace("~", "%7E").replace("%", "~")


def write_files(
    settings: ConnectSettings, kind: str, root: str, what: ReadRange, report: Report | None = None
) -> list[TableFile]:
    """Read one range in a worker, write its files for a later commit, and return them.

    The list is empty if the range has no messages.
    """
    from pyjs_spark.read import modes  # imported lazily: needs pyarrow, which a plan does not

    system, base = file_system(root)
    folder = f"{base}/{parts_folder(kind, what.stream)}"
    files: list[TableFile] = []
    part: _Part | None = None
    for day, rows in _by_day(modes.read_range(settings, what, report)):
        if part is None or part.day != day:
            low = rows.column("seq")[0].as_py() if part is not None else what.low
            files += [part.closed(low)] if part is not None else []
            part = _Part(system, folder, day, low, rows.schema)
        part.write(rows)
    return [*files, part.closed(what.high)] if part is not None else files


class _Part:
    """A file with the rows of one day in a range, under a unique name.

    The sequences that the file covers end where those of the next file begin.
    """

    def __init__(self, system: Any, folder: str, day: int, low: int, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self.day = day  # days since 1970
        self._system = system
        self._folder = folder
        self._low = low
        self._date = f"{EPOCH + timedelta(days=day):%Y-%m-%d}"
        self._path = f"date={self._date}/part-{low:019}-{uuid.uuid4().hex}.parquet"
        self._seqs: list[int] = []  # the first and the last of each batch
        self._times_ns: list[int] = []  # the lowest and the highest of each batch
        self._rows = 0
        system.create_dir(f"{folder}/date={self._date}", recursive=True)
        self._writer = pq.ParquetWriter(
            f"{folder}/{self._path}", schema, filesystem=system, compression="zstd"
        )

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        import pyarrow.compute as pc

        self._writer.write_batch(rows)
        self._seqs += [rows.column("seq")[at].as_py() for at in (0, -1)]
        self._times_ns += pc.min_max(rows.column("ts_ns")).as_py().values()
        self._rows += rows.num_rows

    def closed(self, high: int) -> TableFile:
        """Finish the file, which covers the sequences below `high`, and return its description."""
        self._writer.close()
        path = f"{self._folder}/{self._path}"
        sync(self._system, path)  # before a rename or a commit makes the file visible
        return TableFile(
            path=self._path,
            date=self._date,
            low=self._low,
            high=high,
            rows=self._rows,
            size=self._system.get_file_info(path).size,
            seqs=(self._seqs[0], self._seqs[-1]),
            times_ns=(min(self._times_ns), max(self._times_ns)),
        )


def _by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of batches in parts of one UTC day each; a part comes with its day (days since 1970)."""
    import numpy as np

    for batch in batches:
        days = batch.column("ts").cast("int64").to_numpy() // US_PER_DAY
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
        for low, high in pairwise(cuts):
            yield int(days[low]), batch.slice(low, high - low)

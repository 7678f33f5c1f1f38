"""Archive of streams as Parquet files; the name of a file has its first and last sequence.

    <root>/stream=<name>/date=<UTC day>/seq=<first>-<last>.parquet    both numbers with 19 digits
    <root>/stream=<name>/_archive.json      identity of the stream, and the options of the archive
    <root>/stream=<name>/_none/             empty files of such names, for ranges without a message
    <root>/stream=<name>/_tmp/              files that are being written

The names alone record the progress: the next run reads the sequences that no file covers, and after a kill it writes
the unfinished files again. A file covers its whole range of sequences, including those without a message. Ranges
end at multiples of `rows_per_file`, at midnight, and where the stream ended when it was read, so that a repeated
run writes the same files. No file is ever changed; a complete file is renamed into place.

One run at a time may write to an archive. Any engine reads it as a table partitioned by stream and date, without the
files that begin with `_`. Root is a directory that all workers can access, or a URI that pyarrow supports
(s3://, hdfs://, gs://).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyjs_spark import strict_json
from pyjs_spark.errors import DataLoss, OptionError, SparkError, StreamMissing
from pyjs_spark.lake.files import file_system, sync, write_text
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options import uses
from pyjs_spark.options.reading import Options
from pyjs_spark.read import lookup
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.plan import StreamState
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.times import EPOCH

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from pyjs_spark.lake.watch import Watch

COLUMNS = ("seq", "ts", "ts_ns", "subject", "headers", "data")  # stream and date are in the path
NONE = "_none"  # the folder of empty files
FILE = re.compile(r"seq=(\d{19})-(\d{19})\.parquet")
US_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Written:
    """One file of the archive."""

    stream: str
    path: str
    low: int
    high: int  # exclusive
    rows: int


@dataclass(frozen=True, slots=True)
class NamedFile:
    """One file of the archive, from its name: sequences [low, high)."""

    path: str
    low: int
    high: int
    size: int  # bytes
    is_none: bool  # its range has no message


@dataclass(frozen=True, slots=True)
class Holding:
    """The sequences of one stream in an archive, and in the stream now."""

    state: StreamState
    covered: tuple[
        tuple[int, int], ...
    ]  # [low, high) of each file, sorted; a table has one for all its files
    said: Mapping[str, Any] | None  # _archive.json, or None while the archive does not have the stream
    files: int  # that hold its rows

    @property
    def next(self) -> int:
        """Return the sequence after the archive's last one; for an empty archive, the stream's first."""
        return max((high for _, high in self.covered), default=self.state.first_seq)


def archive(
    spark: SparkSession,
    root: str,
    options: Options,
    rows_per_file: int = 500_000,
    watch: Watch | None = None,
) -> list[Written]:
    """Write all messages that the archive lacks; return the new files.

    Raises:
        OptionError: the archive has other options.
        DataLoss: messages were removed before they were archived (with failOnDataLoss), or the stream is another one.
    """
    return write(spark, root, options, plan(root, options, rows_per_file), watch)


def plan(root: str, options: Options, rows_per_file: int) -> list[ReadRange]:
    """Return the ranges that the archive lacks, and create its directories. Raises as `archive` does."""
    holdings = look(root, options)
    ranges = lacking(root, options, holdings, rows_per_file)
    for holding in holdings:
        _claim(root, holding, options)
    return ranges


def look(root: str, options: Options) -> list[Holding]:
    """Return the archive of each stream that the options name; changes nothing. Raises StreamMissing."""
    uses.check(uses.ARCHIVE, options)
    found = []
    for state in states(root, options):
        covered = tuple((file.low, file.high) for file in named_files(root, state.name))
        found.append(Holding(state, covered, said(root, state.name), len(covered)))
    return found


def states(root: str, options: Options) -> list[StreamState]:
    """Return the state of each stream that the options name. Raises OptionError, StreamMissing."""
    system, base = file_system(root)
    if system.get_file_info(base).is_file:
        raise OptionError(f"folder {root}: this is a file; name a folder, which need not be there yet")
    api = api_of(options)
    names = lookup.stream_names(api, options.streams)
    if not names:
        raise StreamMissing(f"option stream={','.join(options.streams)}: no stream has such a name")
    found = []
    for name in names:
        state = lookup.stream_state(api, name)
        if state is None:
            raise lookup.missing(api, name)
        found.append(state)
    return found


def lacking(root: str, options: Options, holdings: Iterable[Holding], rows_per_file: int) -> list[ReadRange]:
    """Return the ranges that the next run writes; changes nothing. Raises as `archive` does."""
    ranges: list[ReadRange] = []
    for holding in holdings:
        state = holding.state
        _check_same(root, holding, options)
        _check_lost(holding, options)
        for low, high in missing(state.first_seq, state.end, holding.covered, rows_per_file):
            ranges.append(_range(state, low, high, options))
    return ranges


def write(
    spark: SparkSession, root: str, options: Options, ranges: list[ReadRange], watch: Watch | None = None
) -> list[Written]:
    """Write planned ranges by the data source `jetstream-files`; return the new files."""
    if not ranges:
        return []
    from pyjs_spark.lake.ranges_source import write_ranges  # needs pyspark, which a plan does not

    task = partial(write_range, options.connect, root)
    found = write_ranges(spark, task, ranges, watch)
    return [Written(**file) for files in found for file in files]


def _range(state: StreamState, low: int, high: int, options: Options) -> ReadRange:
    return ReadRange(
        stream=state.name,
        low=low,
        high=high,
        subjects=options.subjects,
        created=state.created,
        columns=columns(options.include_headers),
        headers=options.include_headers,
        fail_on_data_loss=options.fail_on_data_loss,
        **options.transport(),
    )


def columns(headers: str) -> tuple[str, ...]:
    """Return the columns of the files; `headers` is the option includeHeaders."""
    return tuple(name for name in COLUMNS if name != "headers" or headers != "false")


def missing(
    first: int, end: int, covered: Iterable[tuple[int, int]], rows_per_file: int
) -> Iterator[tuple[int, int]]:
    """Yield the parts of [first, end) that are not covered, cut after the multiples of `rows_per_file`."""
    at = first
    for low, high in sorted([*covered, (end, end)]):
        stop = min(low, end)
        while at < stop:
            cut = min(stop, (at - 1) // rows_per_file * rows_per_file + rows_per_file + 1)
            yield at, cut
            at = cut
        at = max(at, high)


def _check_lost(holding: Holding, options: Options) -> None:
    """Raise DataLoss if messages after the archive's last one were removed, or archived ones were replaced."""
    state = holding.state
    if wrong := lost_end(holding):
        raise DataLoss(f"stream {state.name}: {wrong}; give the archive another root")
    if options.fail_on_data_loss and not state.is_consumed and holding.next < state.first_seq:
        raise DataLoss(
            f"stream {state.name}: messages {holding.next} to {state.first_seq - 1} were removed before they were "
            f"archived; set failOnDataLoss=false to go on after them"
        )


def lost_end(holding: Holding) -> str:
    """Return a description if the stream ends before its archive (a restore, a power failure), or ""."""
    state = holding.state
    if not holding.covered or holding.next <= state.end:
        return ""
    return (
        f"it ends at sequence {state.last_seq}, and the archive has messages up to {holding.next - 1}: the stream "
        "lost its end, and what comes now are other messages under those sequences"
    )


def _check_same(root: str, holding: Holding, options: Options) -> None:
    """Raise an error if the archive belongs to another stream or has other options."""
    found, state, ours = holding.said, holding.state, _claims(holding.state, options)
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


def _claims(state: StreamState, options: Options) -> dict[str, Any]:
    return {"created": state.created, "subjects": list(options.subjects), "headers": options.include_headers}


# -- files ----------------------------------------------------------------------------------------------------------


def write_range(
    settings: ConnectSettings, root: str, what: ReadRange, report: Report | None = None
) -> list[Written]:
    """Read one range and write its files, one for each day; runs in a worker."""
    fs, base = file_system(root)
    folder = f"{_stream_dir(base, what.stream)}/_tmp"
    files = write_days(settings, what, fs, lambda *_: f"{folder}/{uuid.uuid4().hex}", report)
    if not files:  # all were deleted, or none has a subject of the filter
        return [_publish_none(fs, base, what)]
    return [_publish(fs, base, what, file) for file in files]


def write_days(
    settings: ConnectSettings,
    what: ReadRange,
    fs: Any,
    path_of: Callable[[int, int], str],
    report: Report | None = None,
) -> list[DayFile]:
    """Read one range and write a file for each day; together they cover the range. None if it has no message.

    `path_of` names a file by its day since 1970 and the first sequence that it covers.
    """
    import pyarrow.parquet as pq

    from pyjs_spark.read import modes as reading  # needs pyarrow, which a plan does not

    files: list[DayFile] = []
    for day, rows in _by_day(reading.read_range(settings, what, report)):
        if not files or files[-1].day != day:
            low = rows.column("seq")[0].as_py() if files else what.low
            if files:
                files[-1].close(low)
            path = path_of(day, low)
            writer = pq.ParquetWriter(path, rows.schema, filesystem=fs, compression="zstd")
            files.append(DayFile(day, low, path, writer))
        files[-1].write(rows)
    if files:
        files[-1].close(what.high)
    for file in files:
        sync(fs, file.path)  # before a name or a commit makes them visible
    return files


class DayFile:
    """One file of rows of one day; its range ends where the next file begins."""

    def __init__(self, day: int, low: int, path: str, writer: Any) -> None:
        self.day = day  # since 1970
        self.low = low
        self.high = low  # exclusive; set when it is closed
        self.path = path
        self.rows = 0
        self.seqs = (low, low)  # of its first and last row
        self.times_ns: list[int] = []  # the least and the greatest of each batch
        self._writer = writer

    @property
    def date(self) -> str:
        """Return the day, as in the names of folders."""
        return f"{EPOCH + timedelta(days=self.day):%Y-%m-%d}"

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows."""
        import pyarrow.compute as pc

        self._writer.write_batch(rows)
        seqs, times = rows.column("seq"), pc.min_max(rows.column("ts_ns")).as_py()
        self.seqs = (self.seqs[0] if self.rows else seqs[0].as_py(), seqs[-1].as_py())
        self.times_ns += times.values()
        self.rows += rows.num_rows

    def close(self, high: int) -> None:
        """Finish the file, which covers up to `high`."""
        self._writer.close()
        self.high = high


def _by_day(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut batches where the UTC day changes."""
    import numpy as np

    for batch in batches:
        days = batch.column("ts").cast("int64").to_numpy() // US_PER_DAY
        cuts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
        for low, high in pairwise(cuts):
            yield int(days[low]), batch.slice(low, high - low)


def _publish(fs: Any, base: str, what: ReadRange, file: DayFile) -> Written:
    folder = f"{_stream_dir(base, what.stream)}/date={file.date}"
    path = f"{folder}/{file_name(file.low, file.high)}"
    fs.create_dir(folder, recursive=True)
    fs.move(file.path, path)
    return Written(what.stream, path, file.low, file.high, file.rows)


def _publish_none(fs: Any, base: str, what: ReadRange) -> Written:
    """Write an empty file for a range without messages, so that it is not read again."""
    folder = f"{_stream_dir(base, what.stream)}/{NONE}"
    path = f"{folder}/{file_name(what.low, what.high)}"
    fs.create_dir(folder, recursive=True)
    fs.open_output_stream(path).close()
    return Written(what.stream, path, what.low, what.high, 0)


def file_name(low: int, high: int) -> str:
    """Return the name of the file that covers [low, high)."""
    return f"seq={low:019}-{high - 1:019}.parquet"


def _stream_dir(base: str, stream: str) -> str:
    return f"{base}/stream={quoted(stream)}"


def quoted(stream: str) -> str:
    """Return the name of a stream as it is in paths."""
    return quote(stream, safe="")


def named_files(root: str, stream: str) -> list[NamedFile]:
    """Return the files of a stream by their sequences, without those that are being written."""
    from pyarrow import fs

    system, base = file_system(root)
    folder = _stream_dir(base, stream)
    found = []
    for info in system.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True)):
        match = FILE.fullmatch(info.base_name)
        inside = info.path.removeprefix(folder).split("/")[1]
        if match and (inside == NONE or not inside.startswith("_")):
            low, last = map(int, match.groups())
            found.append(NamedFile(info.path, low, last + 1, info.size or 0, inside == NONE))
    return sorted(found, key=lambda file: (file.low, file.high, file.path))


def said(root: str, stream: str) -> dict[str, Any] | None:
    """Return the properties of the archive, or None if it has nothing of this stream."""
    system, base = file_system(root)
    path = f"{_stream_dir(base, stream)}/_archive.json"
    if not system.get_file_info(path).is_file:
        return None
    with system.open_input_stream(path) as source:
        text = source.read()
    try:
        found = strict_json.loads(text)
        return {name: found[name] for name in ("created", "subjects", "headers")}
    except (ValueError, TypeError, KeyError):
        raise SparkError(f"{path}: this says not whose archive it is; put back what was there") from None


def _claim(root: str, holding: Holding, options: Options) -> None:
    """Write the stream's identity into the archive, and create the folders that a run needs."""
    system, base = file_system(root)
    folder = _stream_dir(base, holding.state.name)
    system.create_dir(f"{folder}/_tmp", recursive=True)
    system.delete_dir_contents(f"{folder}/_tmp")
    if holding.said is None:
        claims = _claims(holding.state, options) | {"begun": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}
        write_text(root, f"stream={quoted(holding.state.name)}/_archive.json", json.dumps(claims))

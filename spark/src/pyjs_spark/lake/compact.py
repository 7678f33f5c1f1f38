"""Compaction: merges small files of an archive. Also writes snapshots: the last message of each subject of a stream.

Files. Within one day, adjacent files are merged into one, whose name covers the whole range:

    seq=1-5, seq=6-10, seq=11-12 of date=2026-11-20    become    seq=1-12

A merged range still ends at a multiple of `rows_per_file`, at midnight, and before a missing range. It contains no
missing range, because the next run of the archive reads only the ranges that no file name covers. It may contain
ranges that are known to have no message (_none/).

A day changes atomically: a new folder is built beside the archive, with hard links to unchanged files, and
replaces the old folder in one call (renameat2 with RENAME_EXCHANGE). After a kill at any point, the day has
either its old or its new files; the next run removes leftovers from _tmp/. This call exists only on Linux, and works
only for local folders; other places are refused.

Snapshots. <root>/stream=<name>/latest.parquet has the last message of each subject (frames.latest). It is replaced
atomically by a rename; _latest.json beside it has the stream's identity and the last sequence.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyjs_spark.decode.schema import spark_type
from pyjs_spark.errors import OptionError, SparkError, StreamMissing
from pyjs_spark.lake import archive
from pyjs_spark.lake.archive import quoted
from pyjs_spark.lake.files import file_system, uri, write_text
from pyjs_spark.lake.jobs import ROWS_PER_FILE, STREAM, Job, JobKind, Key, Outcome, Session
from pyjs_spark.lake.tables.parquet import FILE, file_name, rows_in
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.read import lookup
from pyjs_spark.read.plan import StreamState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXCHANGE = 2  # value of RENAME_EXCHANGE for renameat2
AT_FDCWD = -100
TIMES = "spark.sql.parquet.outputTimestampType"
AGAIN = "remove it, and the next run of the archive writes it again"
SNAPSHOT = "latest.parquet"
TABLES = ("_delta_log", "metadata")  # folders of table formats, which manage their own files


@dataclass(frozen=True, slots=True)
class DayFiles:
    """A group of files of one day that are merged into one file."""

    stream: str
    date: str  # the folder's name
    low: int
    high: int  # exclusive
    files: tuple[str, ...]  # names, in their order
    size: int  # total size of the files in bytes

    @property
    def name(self) -> str:
        """Return the name of the merged file."""
        return file_name(self.low, self.high)


# -- small files ----------------------------------------------------------------------------------------------------


def plan(root: str, streams: Iterable[str], rows_per_file: int) -> list[DayFiles]:
    """Return the groups of files that can be merged, and change nothing.

    Raises:
        OptionError: the root is not an archive of Parquet files in a local folder.
        StreamMissing: the archive has no such stream.
    """
    return [group for path in folders(root, streams) for group in _groups(path, rows_per_file)]


def folders(root: str, streams: Iterable[str]) -> list[Path]:
    """Return the folders of streams in an archive; a name in `streams` may be a pattern with *.

    Raises:
        OptionError: a folder is not local, does not exist, or is no archive of Parquet files.
        StreamMissing: the archive has no stream of this name.
    """
    if "://" in root:
        raise OptionError(
            f"folder {root}: only local folders can be compacted, where a folder takes the place of another at once"
        )
    system, _ = file_system(root)
    assert system is not None
    base = Path(root).absolute()
    if not base.is_dir():
        raise OptionError(f"folder {root}: there is no such folder; name that of an archive")
    found = []
    for wanted in streams:
        paths = [path for path in sorted(base.glob("stream=*")) if _is_named(path, wanted)]
        if not paths:
            raise StreamMissing(f"folder {root}: the archive has no stream {wanted}")
        found += paths
    for path in dict.fromkeys(found):
        _check_archive(path)
    return list(dict.fromkeys(found))


def _is_named(path: Path, wanted: str) -> bool:
    if not lookup.is_pattern(wanted):
        return path.name == f"stream={quoted(wanted)}"
    parts = [quoted(part) for part in wanted.split("*")]
    name = path.name.removeprefix("stream=")
    return lookup.fits("*".join(parts), name)


def _check_archive(path: Path) -> None:
    table = next((name for name in TABLES if (path / name).exists() or (path.parent / name).exists()), "")
    if table:
        raise OptionError(f"folder {path}: this is a table with a {table}; compact it with its own tools")
    if not (path / "_archive.json").is_file():
        raise OptionError(f"folder {path}: this is no archive of a stream, it has no _archive.json")


def _groups(folder: Path, rows_per_file: int) -> Iterator[DayFiles]:
    none = sorted(_ranges(folder / "_none"))
    for day in sorted(folder.glob("date=*")):
        there = sorted(_ranges(day))
        for run in _runs(there, [(low, high) for low, high, _ in none], rows_per_file):
            names = tuple(name for _, _, name in run)
            size = sum((day / name).stat().st_size for name in names)
            stream = folder.name.removeprefix("stream=")
            yield DayFiles(stream, day.name, run[0][0], run[-1][1], names, size)


def _ranges(folder: Path) -> Iterator[tuple[int, int, str]]:
    for path in folder.iterdir() if folder.is_dir() else ():
        match = FILE.fullmatch(path.name)
        if match:
            yield int(match[1]), int(match[2]) + 1, path.name


def _runs(
    there: list[tuple[int, int, str]], none: list[tuple[int, int]], rows_per_file: int
) -> list[list[tuple[int, int, str]]]:
    """Return runs of two or more adjacent files that no multiple of `rows_per_file` separates."""
    runs: list[list[tuple[int, int, str]]] = [[]]
    for each in there:
        low, high, _ = each
        run = runs[-1]
        if run and _end(run[-1][1], none, low) >= low and _is_block(run[0][0], high, rows_per_file):
            run.append(each)
        else:
            runs.append([each])
    return [run for run in runs if len(run) > 1]


def _end(at: int, none: list[tuple[int, int]], limit: int) -> int:
    """Return the end of the empty ranges in `none` that follow `at` without a gap, or `at` if there are none.

    Ranges that begin at or after `limit` are ignored.
    """
    for low, high in none:
        if low <= at < high and at < limit:
            at = high
    return at


def _is_block(low: int, high: int, rows_per_file: int) -> bool:
    return (low - 1) // rows_per_file == (high - 2) // rows_per_file


def compact(spark: SparkSession, root: str, groups: Iterable[DayFiles]) -> list[DayFiles]:
    """Merge each group of files, day by day; return the groups."""
    days: dict[tuple[str, str], list[DayFiles]] = {}
    for group in groups:
        days.setdefault((group.stream, group.date), []).append(group)
    for (stream, date), those in days.items():
        _compact_day(spark, Path(root).absolute() / f"stream={stream}", date, those)
    return [group for those in days.values() for group in those]


def clean(root: str, streams: Iterable[str]) -> None:
    """Remove the leftovers of a killed run. Only one run at a time may write to an archive."""
    for folder in folders(root, streams):
        shutil.rmtree(folder / "_tmp", ignore_errors=True)
        (folder / "_tmp").mkdir()


def _compact_day(spark: SparkSession, folder: Path, date: str, groups: list[DayFiles]) -> None:
    """Build a new folder for one day, and replace the old folder with the new one."""
    old, new = folder / date, folder / "_tmp" / uuid.uuid4().hex / date
    new.mkdir(parents=True)
    for group in groups:
        merge(spark, [old / name for name in group.files], new / group.name)
    merged = {name for group in groups for name in group.files}
    for path in old.iterdir():
        if path.name not in merged:
            os.link(path, new / path.name)
    _sync(new)
    exchange(new, old)
    _sync(folder)
    shutil.rmtree(new.parent)


def merge(spark: SparkSession, files: list[Path], target: Path) -> None:
    """Write the rows of several files to one file, in the order of their sequences.

    Raises:
        SparkError: a file is damaged, or its rows do not match its name.
    """
    rows = sum(_checked(path, files[0]) for path in files)
    part = write_one(spark.read.parquet(*(uri("", str(path)) for path in files)), target.parent)
    try:
        assert pq_rows(part) == rows
        os.replace(part, target)
    finally:
        shutil.rmtree(part.parent)
    with target.open("rb") as done:
        os.fsync(done.fileno())


def write_one(rows: DataFrame, folder: Path) -> Path:
    """Write rows in the order of their sequences to one Parquet file, and return the path of the file.

    The file is in a new folder below `folder`.
    """
    made, spark = folder / uuid.uuid4().hex, rows.sparkSession
    before = spark.conf.get(TIMES)
    spark.conf.set(TIMES, "TIMESTAMP_MICROS")  # Spark's default type has no statistics
    try:
        one = rows.coalesce(1).sortWithinPartitions("seq")
        one.write.option("compression", "zstd").parquet(uri("", str(made)))
    finally:
        spark.conf.set(TIMES, str(before))
    (part,) = made.glob("part-*.parquet")
    return part


def _checked(path: Path, first: Path) -> int:
    """Return the number of rows of a file.

    Raises:
        SparkError: the file is damaged, its sequences do not match its name, or its columns are not those of `first`.
    """
    import pyarrow.parquet as pq

    match = FILE.fullmatch(path.name)
    assert match is not None
    try:
        rows = rows_in(None, str(path), int(match[1]), int(match[2]) + 1)
    except ValueError as error:
        raise SparkError(f"{path}: {error}; {AGAIN}") from None
    if not pq.read_schema(path).equals(pq.read_schema(first)):
        raise SparkError(f"{path}: its columns are not those of {first.name}; both stay as they are")
    return rows


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders in one step.

    Raises:
        OptionError: the system or the file system does not support that.
        OSError: the exchange failed.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    names = os.fsencode(one), os.fsencode(other)
    done = -1 if call is None else call(AT_FDCWD, names[0], AT_FDCWD, names[1], EXCHANGE)
    if done == 0:
        return
    code = ctypes.get_errno() if call is not None else errno.ENOSYS
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        raise OptionError(
            f"folder {other}: this file system cannot exchange folders ({os.strerror(code)}), so it is left as it is"
        )
    raise OSError(code, os.strerror(code), str(other))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- snapshots ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LatestSnapshot:
    """A snapshot file, which has the last message of each subject of one stream."""

    stream: str
    path: str
    rows: int
    created: str  # of the stream
    last_seq: int  # the stream's last sequence when it was read
    subjects: tuple[str, ...]


def snapshot(spark: SparkSession, job: Job) -> list[LatestSnapshot]:
    """Write a snapshot of each stream that a job names, and return the snapshots.

    Raises:
        OptionError: the target is not a local folder, or has an archive of one of the streams.
        StreamMissing: a stream does not exist.
    """
    return [_snapshot(spark, job, state) for state in _states(job)]


def _states(job: Job) -> list[StreamState]:
    """Return the states of the streams that a job names.

    Raises:
        OptionError: the target is not a local folder, or has an archive of one of the streams.
        StreamMissing: a stream does not exist.
    """
    root = str(job["target"])
    if "://" in root:
        raise OptionError(f"folder {root}: snapshots are written to local folders only")
    states = archive.states(root, job.options)
    for state in states:
        if (_folder(root, state.name) / "_archive.json").is_file():
            raise OptionError(
                f"folder {root}: this holds an archive of {state.name}; give snapshots a folder of their own"
            )
    return states


def _folder(root: str, stream: str) -> Path:
    return Path(root).absolute() / f"stream={quoted(stream)}"


def _snapshot(spark: SparkSession, job: Job, state: StreamState) -> LatestSnapshot:
    from pyjs_spark.lake import frames  # imported lazily: needs pyspark

    folder, headers = _folder(str(job["target"]), state.name), job.options.include_headers
    kept = archive.columns(headers)
    schema = ", ".join(f"{name} {spark_type(name, headers)}" for name in ("stream", *kept))
    shutil.rmtree(folder / "_tmp", ignore_errors=True)  # leftovers of a killed run
    (folder / "_tmp").mkdir(parents=True)
    ends = {state.name: (state.first_seq, state.end)}
    own = {name: value for name, value in job.given.items() if name.lower() in ("subjects", "includeheaders")}
    if state.first_seq < state.end:
        messages = job.read_range(spark, schema, ends, **own)
    else:
        messages = spark.createDataFrame([], schema)
    part = write_one(frames.latest(messages).select(*kept), folder / "_tmp")
    rows = pq_rows(part)
    os.replace(part, folder / SNAPSHOT)
    shutil.rmtree(folder / "_tmp")
    made = LatestSnapshot(
        state.name, str(folder / SNAPSHOT), rows, state.created, state.last_seq, job.options.subjects
    )
    write_text(str(folder), "_latest.json", json.dumps(asdict(made)))
    return made


def pq_rows(path: Path) -> int:
    """Return the number of rows in a Parquet file."""
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


# -- the command ----------------------------------------------------------------------------------------------------


def _check_job(job: Job) -> None:
    """Raise OptionError for keys and options that exclude each other."""
    if job["latest"] and job["rows_per_file"] is not None:
        raise OptionError(
            "--rows-per-file is for merging files, and --latest writes one; leave one of them out"
        )
    uses.check(uses.LATEST if job["latest"] else "compact", job.options)


def _plan(job: Job) -> list[DayFiles]:
    return plan(job["target"], job.options.streams, job["rows_per_file"] or ROWS_PER_FILE.default)


def _run(job: Job, session: Session) -> Outcome:
    if job["latest"]:
        _states(job)  # called for its errors, before Spark starts
        with session() as spark:
            made = snapshot(spark, job)
        lines = [
            f"{each.stream}: {each.rows} rows up to sequence {each.last_seq} in {each.path}" for each in made
        ]
        return Outcome(lines, {"snapshots": [asdict(each) for each in made]})
    groups = _plan(job)
    clean(job["target"], job.options.streams)
    done: list[DayFiles] = []
    if groups:
        with session() as spark:
            done = compact(spark, job["target"], groups)
    files = sum(len(group.files) for group in done)
    told = f"{files} files became {len(done)}" if done else "nothing to do"
    return Outcome([told], {"files": [_shown(group) for group in done], "merged": files})


def _explain(job: Job) -> Outcome:
    if job["latest"]:
        names = [state.name for state in _states(job)]
        lines = [f"{name}: {job['target']}/stream={quoted(name)}/{SNAPSHOT}" for name in names]
        return Outcome(lines, {"streams": names})
    groups = _plan(job)
    lines = [f"{group.stream} {group.date}: {len(group.files)} files to {group.name}" for group in groups]
    files = sum(len(group.files) for group in groups)
    lines.append(f"{files} files would become {len(groups)}" if groups else "nothing to do")
    return Outcome(lines, {"files": [_shown(group) for group in groups], "merged": files})


def _shown(group: DayFiles) -> dict[str, Any]:
    return {**asdict(group), "files": list(group.files), "name": group.name}


KIND = JobKind(
    "compact",
    "merge small files of an archive, or write the last message of each subject (--latest)",
    (
        STREAM,
        Key("target", "folder of the archive, or of snapshots", is_positional=True, is_needed=True),
        Key("latest", "write a snapshot from the server", option_values.boolean, default=False),
        replace(ROWS_PER_FILE, default=None),  # no default, since --latest refuses a given key
    ),
    _run,
    _explain,
    _check_job,
)

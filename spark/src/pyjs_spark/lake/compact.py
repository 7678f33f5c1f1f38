"""Compaction: small files of an archive become large ones, and streams become snapshots of their last messages.

Files. Within one day, adjacent files become one, whose name covers the whole range:

    seq=1-5, seq=6-10, seq=11-12 of date=2026-11-20    become    seq=1-12

Ranges still end at multiples of `rows_per_file`, at midnight and where something is missing: the next run of the
archive reads each range that no file covers, so a name must cover archived messages only. Ranges that are known to
have no message (_none/) may lie between.

A day changes at once: its folder is rebuilt beside the archive, with hard links of the files that stay, and takes
the place of the old one by one call (renameat2 with RENAME_EXCHANGE). A kill at any point leaves the day as it was or
as it will be, never both and never less; the next run removes other remains from _tmp/. That call exists on Linux,
for local folders; others are refused.

Snapshots. <root>/stream=<name>/latest.parquet has the last message of each subject, read from the server. It is
replaced whole by being renamed; its metadata has the stream's identity and the last sequence.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyjs_spark.decode.schema import DEFAULT_COLUMNS
from pyjs_spark.errors import OptionError, SparkError, StreamMissing
from pyjs_spark.lake.archive import FILE, file_name, quoted
from pyjs_spark.lake.files import file_system
from pyjs_spark.lake.jobs import STREAM, Job, JobKind, Key, Outcome
from pyjs_spark.nats.client import connected
from pyjs_spark.nats.patient import PatientApi
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.options.reading import Options
from pyjs_spark.read import lookup
from pyjs_spark.read.ranges import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_FILE = 500_000
EXCHANGE = 2  # RENAME_EXCHANGE
AT_FDCWD = -100
BATCH_ROWS = 50_000
SNAPSHOT = "latest.parquet"
SNAPSHOT_COLUMNS = ("subject", "seq", "ts", "ts_ns", "headers", "data")
TABLES = ("_delta_log", "metadata")  # folders of table formats, whose files have an order of their own


@dataclass(frozen=True, slots=True)
class DayFiles:
    """Files of one day that become one."""

    stream: str
    date: str  # the folder's name
    low: int
    high: int  # exclusive
    files: tuple[str, ...]  # names, in their order
    size: int  # bytes of all of them

    @property
    def name(self) -> str:
        """Return the name of the file that they become."""
        return file_name(self.low, self.high)


# -- small files ----------------------------------------------------------------------------------------------------


def plan(root: str, streams: Iterable[str], rows_per_file: int) -> list[DayFiles]:
    """Return the files that can be merged; changes nothing. Raises OptionError, StreamMissing."""
    return [group for path in folders(root, streams) for group in _groups(path, rows_per_file)]


def folders(root: str, streams: Iterable[str]) -> list[Path]:
    """Return the folders of an archive's streams. Raises OptionError, StreamMissing."""
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
) -> Iterator[list[tuple[int, int, str]]]:
    """Yield runs of two or more adjacent files that no multiple of `rows_per_file` separates."""
    run: list[tuple[int, int, str]] = []
    for each in there:
        if (
            run
            and _end(run[-1][1], none, each[0]) >= each[0]
            and _is_block(run[0][0], each[1], rows_per_file)
        ):
            run.append(each)
            continue
        if len(run) > 1:
            yield run
        run = [each]
    if len(run) > 1:
        yield run


def _end(at: int, none: list[tuple[int, int]], limit: int) -> int:
    """Return the end of the range from `at` on, up to `limit`, that is known to be empty."""
    for low, high in none:
        if low <= at < high and at < limit:
            at = high
    return at


def _is_block(low: int, high: int, rows_per_file: int) -> bool:
    return (low - 1) // rows_per_file == (high - 2) // rows_per_file


def compact(root: str, groups: Iterable[DayFiles]) -> list[DayFiles]:
    """Merge the planned files, day by day; return the merged ones."""
    days: dict[tuple[str, str], list[DayFiles]] = {}
    for group in groups:
        days.setdefault((group.stream, group.date), []).append(group)
    for (stream, date), those in days.items():
        _compact_day(Path(root).absolute() / f"stream={stream}", date, those)
    return [group for those in days.values() for group in those]


def clean(root: str, streams: Iterable[str]) -> None:
    """Remove the remains of a killed run; one run at a time may write to an archive."""
    for folder in folders(root, streams):
        shutil.rmtree(folder / "_tmp", ignore_errors=True)
        (folder / "_tmp").mkdir()


def _compact_day(folder: Path, date: str, groups: list[DayFiles]) -> None:
    """Rebuild the day's folder and put it in the place of the old one."""
    old, new = folder / date, folder / "_tmp" / uuid.uuid4().hex / date
    new.mkdir(parents=True)
    for group in groups:
        merge([old / name for name in group.files], new / group.name, group)
    merged = {name for group in groups for name in group.files}
    for path in old.iterdir():
        if path.name not in merged:
            os.link(path, new / path.name)
    _sync(new)
    exchange(new, old)
    _sync(folder)
    shutil.rmtree(new.parent)


def merge(files: list[Path], target: Path, group: DayFiles) -> None:
    """Write the rows of some files, in their order, to one.

    Raises:
        SparkError: a file is damaged, or has other rows than its name says.
    """
    import pyarrow.parquet as pq

    writer, last_seq = None, group.low - 1
    try:
        for path in files:
            with _opened(path) as source:
                schema = source.schema_arrow
                writer = writer or pq.ParquetWriter(target, schema, compression="zstd")
                if not schema.equals(writer.schema):
                    raise SparkError(
                        f"{path}: its columns are not those of {files[0].name}; both stay as they are"
                    )
                for batch in source.iter_batches(BATCH_ROWS):
                    last_seq = _checked(path, batch, last_seq, group.high)
                    writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()
    with target.open("rb") as done:
        os.fsync(done.fileno())


def _opened(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SparkError(
            f"{path}: cannot be read: {error}; remove it, and the next run of the archive writes it again"
        ) from None


def _checked(path: Path, batch: pa.RecordBatch, last_seq: int, high: int) -> int:
    """Return the last sequence of a batch whose sequences rise from `last_seq` and end before `high`."""
    import numpy as np

    seqs = batch.column("seq").to_numpy()
    if not len(seqs):
        return last_seq
    if seqs[0] <= last_seq or seqs[-1] >= high or np.any(np.diff(seqs) <= 0):
        raise SparkError(
            f"{path}: sequences {seqs[0]} to {seqs[-1]} do not rise from {last_seq}, or pass what its name says; "
            "remove it, and the next run of the archive writes it again"
        )
    return int(seqs[-1])


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders in one step. Raises OptionError where that cannot be done."""
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
    """The last message of each subject of one stream."""

    stream: str
    path: str
    rows: int
    created: str  # of the stream
    last_seq: int  # the stream's last when it was read
    subjects: tuple[str, ...]


def snapshot(root: str, options: Options) -> list[LatestSnapshot]:
    """Write the snapshot of each stream that the options name. Raises StreamMissing, OptionError."""
    return [_snapshot(root, name, options) for name in _named(options)]


def _named(options: Options) -> list[str]:
    api = PatientApi(options.connect, options.idle_timeout_s)
    names = lookup.stream_names(api, options.streams)
    if not names:
        raise StreamMissing(f"option stream={','.join(options.streams)}: no stream has such a name")
    return names


def _snapshot(root: str, name: str, options: Options) -> LatestSnapshot:
    import pyarrow.parquet as pq

    from pyjs_spark.decode.schema import arrow_schema
    from pyjs_spark.read.latest import read_latest

    api = PatientApi(options.connect, options.idle_timeout_s)
    state = lookup.stream_state(api, name)
    if state is None:
        raise lookup.missing(api, name)
    if state.is_consumed:
        raise OptionError(
            f"stream {name}: a snapshot of a work queue or interest stream would need a consumer that takes its "
            "messages; name a stream with retention limits"
        )
    what = latest_range(name, options)
    system, base = file_system(root)
    folder = f"{base}/stream={quoted(name)}"
    if system.get_file_info(f"{folder}/_archive.json").is_file:
        raise OptionError(
            f"folder {root}: this holds an archive of {name}; give snapshots a folder of their own"
        )
    system.create_dir(f"{folder}/_tmp", recursive=True)
    system.delete_dir_contents(f"{folder}/_tmp")  # what a killed run left
    path, half = f"{folder}/{SNAPSHOT}", f"{folder}/_tmp/{uuid.uuid4().hex}"
    said = {
        "stream": name,
        "created": state.created,
        "last_seq": state.last_seq,
        "subjects": list(options.subjects),
    }
    schema = arrow_schema(what.columns, options.include_headers).with_metadata({"pyjs": json.dumps(said)})
    rows = 0
    with pq.ParquetWriter(half, schema, filesystem=system, compression="zstd") as writer:
        for batch in read_latest(connected(options.connect), what):
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
            rows += batch.num_rows
    system.move(half, path)
    return LatestSnapshot(name, path, rows, state.created, state.last_seq, options.subjects)


def latest_range(name: str, options: Options) -> ReadRange:
    """Return the range and mode for the last messages of a stream."""
    columns = tuple(
        each for each in SNAPSHOT_COLUMNS if each != "headers" or options.include_headers != "false"
    )
    assert set(columns) <= {*DEFAULT_COLUMNS, "ts_ns"}
    subjects = options.subjects or (">",)
    return ReadRange(
        name, 1, 1, subjects, columns=columns, headers=options.include_headers, **options.transport()
    )


# -- the command ----------------------------------------------------------------------------------------------------


def _check_job(job: Job) -> None:
    """Refuse keys and options that do not go together. Raises OptionError."""
    if job["latest"] and job["rows_per_file"] is not None:
        raise OptionError(
            "--rows-per-file is for merging files, and --latest writes one; leave one of them out"
        )
    uses.check(uses.LATEST if job["latest"] else "compact", job.options)


def _plan(job: Job) -> list[DayFiles]:
    return plan(job["target"], job.options.streams, job["rows_per_file"] or ROWS_PER_FILE)


def _run(job: Job) -> Outcome:
    if job["latest"]:
        made = snapshot(job["target"], job.options)
        lines = [
            f"{each.stream}: {each.rows} rows up to sequence {each.last_seq} in {each.path}" for each in made
        ]
        return Outcome(lines, {"snapshots": [asdict(each) for each in made]})
    groups = _plan(job)
    clean(job["target"], job.options.streams)
    done = compact(job["target"], groups)
    files = sum(len(group.files) for group in done)
    told = f"{files} files became {len(done)}" if done else "nothing to do"
    return Outcome([told], {"files": [_shown(group) for group in done], "merged": files})


def _explain(job: Job) -> Outcome:
    if job["latest"]:
        names = _named(job.options)
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
        Key(
            "rows_per_file",
            f"ranges end at its multiples; default {ROWS_PER_FILE}",
            option_values.count(high=1_000_000_000),
        ),
    ),
    _run,
    _explain,
    _check_job,
)

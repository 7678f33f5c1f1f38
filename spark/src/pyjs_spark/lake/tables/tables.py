"""Archive of streams as tables of Delta or Iceberg, one for each stream, partitioned by the UTC day.

    <root>/<stream>/                                        the table; characters unfit for paths are ~XX
    <root>/<stream>/[data/]date=<day>/part-<first>-<attempt>.parquet

Tasks write files, which become part of the table when the driver commits them. The table itself holds the progress:
each commit stores the sequence after its last one, in the same atomic step that adds the files. A commit succeeds
only if the table ends where the files begin, so a run killed before its commit is repeated, one killed after it is
not, and of two concurrent runs the second fails. Ranges of many files are committed in parts, so that a kill costs
one part. Uncommitted files of a killed run are removed when they are a day old.

Knows nothing of the two libraries; see delta.py and iceberg.py.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyjs_spark.errors import OptionError
from pyjs_spark.lake import archive
from pyjs_spark.lake.archive import Holding, Written
from pyjs_spark.lake.files import file_system
from pyjs_spark.lake.tables.table import (
    Lake,
    Table,
    TableFile,
    TableProperties,
    check_installed,
    folder_name,
    told,
)
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options import uses
from pyjs_spark.options.reading import Options
from pyjs_spark.read.plan import StreamState
from pyjs_spark.read.ranges import ReadRange, Report
from pyjs_spark.times import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyjs_spark.lake.watch import Watch

PART_FILES = 256  # ranges that are committed together
PART = re.compile(r"part-(\d{19})-[0-9a-f]{32}\.parquet")
ORPHAN_AGE = timedelta(days=1)  # no run needs so long for one part


Task = Callable[..., list[TableFile]]  # of a range and, if that is wanted, a report
Run = Callable[[Task, Sequence[ReadRange]], list[list[TableFile]]]


def table_of(lake: Lake, stream: str) -> Table:
    """Return the table of a stream, even before it exists. Raises SparkMissing."""
    check_installed(lake.format)
    if lake.format == "delta":
        from pyjs_spark.lake.tables.delta import DeltaArchive

        return DeltaArchive(lake, stream)
    from pyjs_spark.lake.tables.iceberg import IcebergArchive

    return IcebergArchive(lake, stream)


# -- what there is --------------------------------------------------------------------------------------------------


def look(lake: Lake, options: Options) -> list[Holding]:
    """Return the archive of each stream that the options name; changes nothing. Raises as archive.look."""
    check_installed(lake.format)
    uses.check(uses.ARCHIVE, options)
    return [_holding(lake, state) for state in archive.states(lake.root, options)]


def _holding(lake: Lake, state: StreamState) -> Holding:
    table = table_of(lake, state.name)
    with told(table):
        record = table.record()
    if record is None:
        return Holding(state, (), None, 0)
    said = {"created": record.created, "subjects": list(record.subjects), "headers": record.headers}
    return Holding(state, ((record.first, record.next),), said, record.files)


def plan(lake: Lake, options: Options, rows_per_file: int) -> list[ReadRange]:
    """Return the ranges that the tables lack, and create missing tables. Raises as archive.plan."""
    holdings = look(lake, options)
    ranges = archive.lacking(lake.root, options, holdings, rows_per_file)
    for holding in holdings:
        table = table_of(lake, holding.state.name)
        if holding.said is None:
            first = holding.state.first_seq
            record = TableProperties(
                holding.state.created, tuple(options.subjects), options.include_headers, first, first
            )
            with told(table):
                table.create(record)
        else:
            _remove_orphans(table, holding.next)
    return ranges


def _remove_orphans(table: Table, next_seq: int) -> None:
    """Remove the files of a killed run that were never committed."""
    from pyarrow import fs

    system, base = file_system(table.folder)
    selector = fs.FileSelector(f"{base}{table.data}", recursive=True, allow_not_found=True)
    oldest = datetime.now(UTC) - ORPHAN_AGE
    for info in system.get_file_info(selector):
        match = PART.fullmatch(info.base_name)
        if match and int(match[1]) >= next_seq and info.mtime is not None and info.mtime < oldest:
            system.delete_file(info.path)


# -- writing --------------------------------------------------------------------------------------------------------


def write(
    spark: SparkSession,
    lake: Lake,
    options: Options,
    ranges: Sequence[ReadRange],
    watch: Watch | None = None,
) -> list[Written]:
    """Write planned ranges, each as a task, and commit them part by part; return the new files."""
    from pyjs_spark.lake.ranges_source import write_ranges  # needs pyspark, which a plan does not

    def run(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        found = write_ranges(spark, task, part, watch)
        return [[TableFile(**file) for file in files] for files in found]

    return write_parts(run, lake, options, ranges, PART_FILES)


def write_parts(
    run: Run, lake: Lake, options: Options, ranges: Sequence[ReadRange], part_size: int
) -> list[Written]:
    """Write ranges part by part: `run` executes one task for each range of a part, then the part is committed."""
    written: list[Written] = []
    tables = {name: table_of(lake, name) for name in sorted({each.stream for each in ranges})}
    at = {name: _begin(table, ranges) for name, table in tables.items()}
    task = task_of(lake, options)
    for part in _parts(ranges, part_size):
        pairs = zip(part, run(task, part), strict=True)
        for name, own in groupby(pairs, key=lambda pair: pair[0].stream):
            written += _commit(tables[name], at, list(own))
    return written


def task_of(lake: Lake, options: Options) -> Task:
    """Return a worker's function for one range of the tables."""
    return partial(write_files, options.connect, lake.root, table_of(lake, "").data, "")


def _commit(
    table: Table, at: dict[str, int], done: Sequence[tuple[ReadRange, Sequence[TableFile]]]
) -> list[Written]:
    """Commit the files of one stream; `at` has the end of its table, and is advanced."""
    files = [file for _, own in done for file in own]
    high = done[-1][0].high
    with told(table):
        table.append(at[table.stream], high, files)
    at[table.stream] = high
    base = f"{table.folder}{table.data}"
    return [Written(table.stream, f"{base}/{each.path}", each.low, each.high, each.rows) for each in files]


def _begin(table: Table, ranges: Iterable[ReadRange]) -> int:
    """Return the end of the table. Raises SparkError if the ranges were planned from another one."""
    low = min(each.low for each in ranges if each.stream == table.stream)
    with told(table):
        record = table.record()
    if record is None or record.next > low:
        raise table.moved(low, record.next if record else None)
    return record.next


def _parts(ranges: Sequence[ReadRange], size: int) -> list[Sequence[ReadRange]]:
    return [ranges[at : at + size] for at in range(0, len(ranges), size)]


def write_files(
    settings: ConnectSettings, root: str, data: str, run: str, what: ReadRange, report: Report | None = None
) -> list[TableFile]:
    """Read one range and write its files, visible only after the commit; runs in a worker.

    Without a name for the `run`, each attempt has its own: Spark may repeat a task while the first attempt
    still writes, on a machine that Spark has lost.
    """
    run = run or uuid.uuid4().hex
    fs, base = file_system(root)
    folder = f"{base}/{folder_name(what.stream)}{data}"

    def path_of(day: int, low: int) -> str:
        date = f"{EPOCH + timedelta(days=day):%Y-%m-%d}"
        fs.create_dir(f"{folder}/date={date}", recursive=True)
        return f"{folder}/date={date}/part-{low:019}-{run}.parquet"

    return [_written(fs, folder, file) for file in archive.write_days(settings, what, fs, path_of, report)]


def _written(fs: Any, folder: str, file: archive.DayFile) -> TableFile:
    return TableFile(
        path=file.path.removeprefix(f"{folder}/"),
        date=file.date,
        low=file.low,
        high=file.high,
        rows=file.rows,
        size=fs.get_file_info(file.path).size,
        seqs=file.seqs,
        times_ns=(min(file.times_ns), max(file.times_ns)),
    )


def refuse_other(lake: Lake, stream: str) -> None:
    """Raise OptionError if the archive of a stream has another format."""
    system, base = file_system(lake.root)
    begun = {
        "parquet": f"{base}/stream={archive.quoted(stream)}/_archive.json",
        "delta": f"{base}/{folder_name(stream)}/_delta_log",
        "iceberg": f"{base}/{folder_name(stream)}/metadata",
    }
    for kind, path in begun.items():
        if kind != lake.format and system.get_file_info(path).type.name != "NotFound":
            raise OptionError(
                f"format={lake.format}: the archive of {stream} at {lake.root} was begun with format={kind}; "
                f"go on with that one, or name another target"
            )

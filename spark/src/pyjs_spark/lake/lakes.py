"""Archives in every format: Parquet files, or a Delta or Iceberg table for each stream.

    <root>/<stream>/                                        a table; characters not allowed in paths are ~XX
    <root>/<stream>/[data/]date=<day>/part-<first>-<attempt>.parquet

Tasks write files, which become part of the archive when the driver commits them. The progress is in the archive
itself. For Parquet files, it is in the names of the files. For a table, it is the sequence that each commit stores
in the same atomic step in which it adds its files. A commit to a table succeeds only if the table ends where the
files begin. So a run killed before its commit is repeated, and a run killed after its commit is not. Of two
concurrent runs, the second fails. Many ranges are committed in parts, so that a kill loses at most one part. The
next run removes uncommitted files of the ranges that it will write again. In a table, it removes only uncommitted
files that are older than a day.

This module does not use the libraries of the formats; see tables/.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from pyjs_spark.errors import OptionError
from pyjs_spark.lake import archive as files
from pyjs_spark.lake.archive import Holding, TableFile, Written, folder_name, quoted, write_files
from pyjs_spark.lake.files import file_system
from pyjs_spark.lake.tables.parquet import ParquetArchive
from pyjs_spark.lake.tables.table import Lake, Table, check_installed
from pyjs_spark.options import uses
from pyjs_spark.options.reading import Options
from pyjs_spark.read.ranges import ReadRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyjs_spark.lake.watch import Watch

__all__ = ["Lake", "archive", "check_installed", "look", "plan", "table_of", "task_of", "write"]

# ranges in the first part; maximum of any part. Each part is one job, and one commit for each stream
AT_ONCE, PART_FILES = 16, 256
JOB_S = 10.0  # seconds; if a part took less, the next part has more ranges

Task = Callable[..., list[TableFile]]  # called with a range and, if wanted, a report
Run = Callable[[Task, Sequence[ReadRange]], list[list[TableFile]]]


def table_of(lake: Lake, stream: str) -> Table | ParquetArchive:
    """Return the archive of a stream, which need not exist yet.

    Raises:
        SparkMissing: the library of the format is not installed.
    """
    check_installed(lake.format)
    if lake.format == "parquet":
        return ParquetArchive(lake.root, stream)
    if lake.format == "delta":
        from pyjs_spark.lake.tables.delta import DeltaArchive

        return DeltaArchive(lake, stream)
    from pyjs_spark.lake.tables.iceberg import IcebergArchive

    return IcebergArchive(lake, stream)


def archive(
    spark: SparkSession,
    lake: Lake,
    options: Options,
    rows_per_file: int = 500_000,
    watch: Watch | None = None,
) -> list[Written]:
    """Write all messages that the lake lacks, and return the new files.

    Raises:
        OptionError: the archive was begun with other options.
        DataLoss: the stream is a different one, or messages were removed before they were archived (with
            failOnDataLoss).
    """
    return write(spark, lake, options, plan(lake, options, rows_per_file), watch)


def look(lake: Lake, options: Options) -> list[Holding]:
    """Return the archive of each stream that the options name; changes nothing.

    Raises:
        OptionError: an archive has another format.
        StreamMissing: a stream does not exist.
    """
    uses.check(uses.ARCHIVE, options)
    found = []
    for state in files.states(lake.root, options):
        refuse_other(lake, state.name)
        found.append(table_of(lake, state.name).holding(state))
    return found


def plan(lake: Lake, options: Options, rows_per_file: int) -> list[ReadRange]:
    """Return the ranges that the lake lacks, and create its folder or table if it is missing.

    Raises:
        OptionError, DataLoss: as in `archive`.
    """
    holdings = look(lake, options)
    ranges = files.lacking(lake.root, options, holdings, rows_per_file)
    for holding in holdings:
        table_of(lake, holding.state.name).prepare(holding, options)
    return ranges


def task_of(lake: Lake, options: Options) -> Task:
    """Return the function with which a worker writes one range."""
    return partial(write_files, options.connect, lake.format, lake.root)


def write(
    spark: SparkSession, lake: Lake, options: Options, ranges: list[ReadRange], watch: Watch | None = None
) -> list[Written]:
    """Write the planned ranges, each in its own task, and return the new files.

    Finished ranges are reported to `watch`.
    """
    from pyjs_spark.lake.ranges_source import write_ranges  # imported lazily: needs pyspark, a plan does not

    def run(task: Task, part: Sequence[ReadRange]) -> list[list[TableFile]]:
        return write_ranges(spark, lake, options, task, part, watch)

    written: list[Written] = []
    size = AT_ONCE
    while ranges:
        begun_s, part, ranges = time.monotonic(), ranges[:size], ranges[size:]
        written += write_parts(run, lake, options, part, size)
        size = min(PART_FILES, size * (2 if time.monotonic() - begun_s < JOB_S else 1))
    return written


def write_parts(
    run: Run, lake: Lake, options: Options, ranges: Sequence[ReadRange], part_size: int
) -> list[Written]:
    """Write ranges part by part, and return the new files.

    `run` executes a task for each range of a part; then the files of the part are committed.
    """
    written: list[Written] = []
    lows = {each.stream: each.low for each in reversed(ranges)}
    tables = {name: table_of(lake, name) for name in sorted(lows)}
    ends = {name: table.begin(lows[name]) for name, table in tables.items()}
    for at in range(0, len(ranges), part_size):
        part = ranges[at : at + part_size]
        pairs = zip(part, run(task_of(lake, options), part), strict=True)
        for name, own in groupby(pairs, key=lambda pair: pair[0].stream):
            done = list(own)
            written += tables[name].add(ends[name], done)
            ends[name] = done[-1][0].high
    return written


def refuse_other(lake: Lake, stream: str) -> None:
    """Raise OptionError if the archive of a stream has another format."""
    system, base = file_system(lake.root)
    begun = {
        "parquet": f"{base}/stream={quoted(stream)}/_archive.json",
        "delta": f"{base}/{folder_name(stream)}/_delta_log",
        "iceberg": f"{base}/{folder_name(stream)}/metadata",
    }
    for kind, path in begun.items():
        if kind != lake.format and system.get_file_info(path).type.name != "NotFound":
            raise OptionError(
                f"format={lake.format}: the archive of {stream} at {lake.root} was begun with format={kind}; "
                f"go on with that one, or name another target"
            )

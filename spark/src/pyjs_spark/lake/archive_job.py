"""The command `archive`: its arguments, its run and its output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyjs_spark.errors import OptionError
from pyjs_spark.exits import LOST
from pyjs_spark.lake import archive, lakes
from pyjs_spark.lake.archive import ArchiveProgress, Written, planned, progress
from pyjs_spark.lake.jobs import ROWS_PER_FILE, STREAM, Job, JobKind, Key, Outcome, Session
from pyjs_spark.lake.tables.table import FORMATS, Lake, check_own_catalog
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.read.ranges import ReadRange

SHOWN = 20  # number of ranges that `explain` shows; --json shows all of them
FORMAT = Key(
    "format", "parquet (default), delta or iceberg", option_values.one_of(*FORMATS), default="parquet"
)


def lake_of(root: str, kind: str, catalog: Mapping[str, str]) -> Lake:
    """Return the location of an archive.

    Raises:
        OptionError: the catalog does not match the format, or cannot be stored in the root.
    """
    if catalog and kind != "iceberg":
        raise OptionError(f"section catalog is for format=iceberg, and the format is {kind}; leave it out")
    if kind == "iceberg" and not catalog:
        check_own_catalog(root)
    return Lake(root, kind, catalog)


def _check_job(job: Job) -> Lake:
    uses.check(uses.ARCHIVE, job.options)
    lake = lake_of(job["target"], job["format"], job.catalog)
    lakes.check_installed(lake.format)
    return lake


def _explain(job: Job) -> Outcome:
    holdings = lakes.look(job.made, job.options)
    ranges = archive.lacking(job["target"], job.options, holdings, job["rows_per_file"])
    files = planned(holdings, ranges)
    total: dict[str, Any] = {"files": len(files), "rows": sum(each.rows for each in files)}
    total["bytes"] = sum(each.size for each in files)
    lines = table(
        ("stream", "first", "last", "rows about", "bytes about"),
        [(each.stream, each.low, each.high - 1, each.rows, each.size) for each in files[:SHOWN]],
    )
    lines += [f"... and {len(files) - SHOWN} more"] if len(files) > SHOWN else []
    filtered = ", before the subject filter" if job.options.subjects else ""
    lines.append(f"{total['files']} ranges, about {total['rows']} rows and {total['bytes']} bytes{filtered}")
    return Outcome(lines, {"ranges": [asdict(each) for each in files], **total})


def _status(job: Job) -> Outcome:
    found = [progress(holding) for holding in lakes.look(job.made, job.options)]
    troubles = [text for each in found for text in _troubles(each)]
    cells = [(each.stream, each.files, each.next, each.last, each.lag) for each in found]
    lines = table(("stream", "files", "next", "last in stream", "lag"), cells)
    said = {"streams": [asdict(each) for each in found]}
    if troubles and job.options.fail_on_data_loss:
        return Outcome(lines, said, LOST, "; ".join(troubles))
    return Outcome([*lines, *troubles], said)


def _troubles(each: ArchiveProgress) -> list[str]:
    if each.other:
        return [f"stream {each.stream}: the archive is of another one, which was created at {each.other}"]
    if each.lost_end:
        return [f"stream {each.stream}: {each.lost_end}"]
    return [
        f"stream {each.stream}: messages {low} to {high - 1} were removed before they were archived"
        for low, high in each.lost
    ]


def _run(job: Job, session: Session) -> Outcome:
    if not job.options.fail_on_data_loss:
        for holding in lakes.look(job.made, job.options):
            for text in _troubles(progress(holding)):
                session.watch.lost(text)
    # Planned before Spark starts, so that errors are reported at once, and no JVM is started for an empty
    # plan.
    ranges = lakes.plan(job.made, job.options, job["rows_per_file"])
    session.watch.plan(ranges)
    files: list[Written] = []
    if ranges:
        with session() as spark:
            files = lakes.write(spark, job.made, job.options, ranges, session.watch)
    lines = [_result(name, ranges, files) for name in sorted({each.stream for each in ranges})]
    said = {"files": [asdict(each) for each in files], "rows": sum(each.rows for each in files)}
    return Outcome(lines or ["nothing new"], said)


def _result(name: str, ranges: Iterable[ReadRange], files: Iterable[Written]) -> str:
    own = [each for each in files if each.stream == name]
    end = max(each.high for each in ranges if each.stream == name)
    return f"{name}: {len(own)} files, {sum(each.rows for each in own)} rows, next sequence {end}"


def table(head: tuple[str, ...], lines: Sequence[tuple[object, ...]]) -> list[str]:
    """Return the lines of a text table.

    The first column is aligned to the left, and all others to the right.
    """
    cells = [list(head), *([str(cell) for cell in line] for line in lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    padded = (
        [
            line[0].ljust(widths[0]),
            *(cell.rjust(wide) for cell, wide in zip(line[1:], widths[1:], strict=True)),
        ]
        for line in cells
    )
    return ["  ".join(line).rstrip() for line in padded]


KIND = JobKind(
    "archive",
    "write what is new in streams to Parquet files, or to tables of Delta or Iceberg",
    (
        STREAM,
        Key("target", "folder or URI of the archive", is_positional=True, is_needed=True),
        FORMAT,
        ROWS_PER_FILE,
    ),
    _run,
    _explain,
    _check_job,
    _status,
    is_watched=True,
    has_catalog=True,
)

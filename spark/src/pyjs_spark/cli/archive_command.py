"""The commands of archives: what they are told, and what they print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict

from pyjs_spark.cli import submit_command
from pyjs_spark.cli.kinds import Kind
from pyjs_spark.cli.own_spark import own_spark
from pyjs_spark.cli.say import PROGRAM, fail, print_json, print_table
from pyjs_spark.datasource import sessions
from pyjs_spark.errors import OptionError
from pyjs_spark.exits import LOST
from pyjs_spark.lake import archive, config, lakes
from pyjs_spark.lake.archive import Written
from pyjs_spark.lake.config import Pipeline
from pyjs_spark.lake.progress import ArchiveProgress, Planned, planned, progress
from pyjs_spark.lake.watch import Watch
from pyjs_spark.read.ranges import ReadRange

SHOWN = 20  # files that `explain` lists; --json has all


def add_arguments(parser: argparse.ArgumentParser, *, is_needed: bool = True) -> None:
    """Add the options of an archive without a file."""
    count = None if is_needed else "?"
    parser.add_argument("stream", nargs=count, help="name, comma list, or pattern with *")
    parser.add_argument("target", nargs=count, help="folder or URI of the archive")
    parser.add_argument("--format", help="parquet, delta or iceberg; default parquet")
    parser.add_argument("--rows-per-file", type=int, metavar="N", help=f"default {config.ROWS_PER_FILE}")
    parser.add_argument("--master", help="where Spark runs; default local[*]")


def from_arguments(said: argparse.Namespace, options: dict[str, str]) -> Pipeline:
    """Return the options of the command line. Raises OptionError."""
    if said.stream is None or said.target is None:
        raise OptionError("name a stream and a target, or give -c FILE")
    return config.make(
        said.stream,
        said.target,
        options,
        config.ROWS_PER_FILE if said.rows_per_file is None else said.rows_per_file,
        config.MASTER if said.master is None else said.master,
        lake_format="parquet" if said.format is None else said.format,
    )


def refuse_beside(path: str, said: argparse.Namespace) -> None:
    """Refuse options on the command line that belong in a file. Raises OptionError."""
    masters = () if said.command == submit_command.NAME else ("master",)  # there it says which cluster
    for name in ("format", "rows_per_file", *masters):
        if getattr(said, name, None) is not None:
            raise OptionError(f"--{name.replace('_', '-')} stands in {path}; leave it out here")


def validate(pipeline: Pipeline, said: argparse.Namespace) -> int:
    """Report that the pipeline is valid."""
    lakes.check_installed(pipeline.format)
    streams = ", ".join(pipeline.options.streams)
    if said.json:
        return print_json(
            {"kind": pipeline.kind, "streams": list(pipeline.options.streams), "is_valid": True}
        )
    kind = "" if pipeline.format == "parquet" else f" as {pipeline.format}"
    print(f"valid: {pipeline.kind} of {streams} to {pipeline.target}{kind}; no server was asked")
    return 0


def explain(pipeline: Pipeline, said: argparse.Namespace) -> int:
    """Show what the next run reads and writes; change nothing."""
    holdings = lakes.look(pipeline.lake, pipeline.options)
    ranges = archive.lacking(pipeline.target, pipeline.options, holdings, pipeline.rows_per_file)
    files = planned(holdings, ranges)
    total = {"files": len(files), "rows": sum(each.rows for each in files)}
    total["bytes"] = sum(each.size for each in files)
    if said.json:
        return print_json({"ranges": [asdict(each) for each in files], **total})
    print_table(("stream", "first", "last", "rows about", "bytes about"), _plan_lines(files[:SHOWN]))
    if len(files) > SHOWN:
        print(f"... and {len(files) - SHOWN} more")
    filtered = ", before the subject filter" if pipeline.options.subjects else ""
    print(f"{total['files']} ranges, about {total['rows']} rows and {total['bytes']} bytes{filtered}")
    return 0


def _plan_lines(files: Iterable[Planned]) -> list[tuple[object, ...]]:
    return [(each.stream, each.low, each.high - 1, each.rows, each.size) for each in files]


def status(pipeline: Pipeline, said: argparse.Namespace) -> int:
    """Show what the archive holds and what it lacks."""
    found = [progress(holding) for holding in lakes.look(pipeline.lake, pipeline.options)]
    troubles = [text for each in found for text in _troubles(each)]
    if said.json:
        print_json({"streams": [asdict(each) for each in found]})
    else:
        cells = [(each.stream, each.files, each.next, each.last, each.lag) for each in found]
        print_table(("stream", "files", "next", "last in stream", "lag"), cells)
    if troubles and pipeline.options.fail_on_data_loss:
        return fail("; ".join(troubles), LOST)
    for text in () if said.json else troubles:
        print(text)
    return 0


def _troubles(each: ArchiveProgress) -> list[str]:
    if each.other:
        return [f"stream {each.stream}: the archive is of another one, which was created at {each.other}"]
    if each.lost_end:
        return [f"stream {each.stream}: {each.lost_end}"]
    return [
        f"stream {each.stream}: messages {low} to {high - 1} were removed before they were archived"
        for low, high in each.lost
    ]


def run(pipeline: Pipeline, said: argparse.Namespace) -> int:
    """Write the messages of the streams that the archive lacks."""
    bar = sys.stderr if sys.stderr.isatty() else None
    watching = Watch(pipeline.kind, file=said.status_file, plot=said.plot, bar=bar)
    sessions.check_installed()
    with watching as watch:
        if not pipeline.options.fail_on_data_loss:
            _tell_losses(pipeline, watch)
        # Planned before Spark starts: what is wrong is told at once, and what is nothing to do costs no JVM.
        ranges = lakes.plan(pipeline.lake, pipeline.options, pipeline.rows_per_file)
        watch.plan(ranges)
        files = _written(pipeline, ranges, watch) if ranges else []
    if said.json:
        return print_json(
            {"files": [asdict(each) for each in files], "rows": sum(each.rows for each in files)}
        )
    if not files:
        print("nothing new")
    for name in sorted({each.stream for each in ranges}):
        _print_result(name, ranges, files)
    return 0


def _tell_losses(pipeline: Pipeline, watch: Watch) -> None:
    for holding in lakes.look(pipeline.lake, pipeline.options):
        for text in _troubles(progress(holding)):
            watch.lost(text)


def _written(pipeline: Pipeline, ranges: list[ReadRange], watch: Watch) -> list[Written]:
    # The watch has a bar of its own.
    settings = {"spark.ui.showConsoleProgress": "false", **pipeline.spark}
    with own_spark(PROGRAM, pipeline.master, settings) as spark:
        return lakes.write(spark, pipeline.lake, pipeline.options, ranges, watch)


def _print_result(stream: str, ranges: Iterable[ReadRange], files: Iterable[Written]) -> None:
    own = [each for each in files if each.stream == stream]
    end = max(each.high for each in ranges if each.stream == stream)
    print(f"{stream}: {len(own)} files, {sum(each.rows for each in own)} rows, next sequence {end}")


KIND = Kind(
    text="write what is new in streams to Parquet files, or to tables of Delta or Iceberg",
    add_arguments=add_arguments,
    from_arguments=from_arguments,
    from_tables=config.from_tables,
    run=run,
    validate=validate,
    explain=explain,
    status=status,
    is_watched=True,
)

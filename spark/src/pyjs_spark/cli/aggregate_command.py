"""The commands of aggregating pipelines: what they are told, and what they print."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyjs_spark.cli.kinds import Kind
from pyjs_spark.cli.own_spark import own_spark
from pyjs_spark.cli.say import print_json, print_table
from pyjs_spark.datasource import sessions
from pyjs_spark.errors import OptionError
from pyjs_spark.lake import aggregate, aggregate_run
from pyjs_spark.lake.aggregate import Aggregate

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

HEAD = ("checkpoint", "window", "slide", "late", "by", "emit", "time", "create", "master")
# Of a run: read; dropped, at least, for Spark counts them after it has joined those of one window in a task; windows
# that may still grow.
TOTALS = ("messages", "late", "open")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what makes an aggregate without a file."""
    parser.add_argument("stream", help="name, comma list, or pattern with *")
    parser.add_argument("target", help="kv:BUCKET or subject:SUBJECT")
    parser.add_argument("--checkpoint", required=True, metavar="FOLDER", help="where progress is kept")
    parser.add_argument("--window", required=True, metavar="TIME", help="such as 30s, 1m or 1h")
    parser.add_argument("--slide", metavar="TIME", help="begin a window so often; default its length")
    parser.add_argument("--late", metavar="TIME", help=f"how late messages may be; default {aggregate.LATE}")
    parser.add_argument("--by", metavar="WHAT", help="subject (default), all, or tokens such as $1.$3")
    parser.add_argument("--emit", metavar="WHEN", help="updates or final")
    parser.add_argument("--time", metavar="FIELD", help="JSON field with the time; default: of storing")
    parser.add_argument("--value", action="append", default=[], metavar="NAME=FUNCTION(FIELD)")
    parser.add_argument("--create", action="store_const", const="true", help="make the bucket if need be")
    parser.add_argument("--master", help="where Spark runs; default local[*]")


def from_arguments(said: argparse.Namespace, options: dict[str, str]) -> Aggregate:
    """Return the options of the command line. Raises OptionError."""
    head = {key: getattr(said, key) for key in HEAD if getattr(said, key) is not None}
    values: dict[str, str] = {}
    for name, function in map(_split, said.value):
        if name in values:
            raise OptionError(
                f"--value {name}={function}: there is a value {name} already; give it another name"
            )
        values[name] = function
    return aggregate.make({**head, "stream": said.stream, "target": said.target}, values, options)


def _split(value: str) -> tuple[str, str]:
    name, equals, function = value.partition("=")
    if not equals:
        raise OptionError(f"--value {value}: write it as name=function, such as --value revenue=sum(amount)")
    return name.strip(), function


def validate(pipeline: Aggregate, said: argparse.Namespace) -> int:
    """Report that the pipeline is valid."""
    if said.json:
        return print_json({"kind": "aggregate", "is_valid": True, **pipeline.definition()})
    streams = ", ".join(pipeline.options.streams)
    print(f"valid: aggregate of {streams} to {pipeline.target}; no server was asked")
    return 0


def explain(pipeline: Aggregate, said: argparse.Namespace) -> int:
    """Show what the next run reads and writes; change nothing."""
    found = aggregate_run.standing(pipeline)
    if not pipeline.create:
        aggregate_run.target_stream(pipeline)
    if said.json:
        return print_json({**pipeline.definition(), **_as_json(found)})
    cells = [(at.stream, at.next, at.last, at.lag) for at in found.positions]
    print_table(("stream", "first", "last", "messages at most"), cells)
    values = ", ".join(f"{value.name}={value}" for value in pipeline.values)
    print(
        f"windows of {pipeline.window_s} s each {pipeline.slide_s} s by {pipeline.by}, late by {pipeline.late_s} s"
    )
    print(f"{values}; {pipeline.emit} to {pipeline.target}")
    return 0


def status(pipeline: Aggregate, said: argparse.Namespace) -> int:
    """Show the lag of the checkpoint for each stream."""
    found = aggregate_run.standing(pipeline)
    if said.json:
        return print_json(_as_json(found))
    cells = [(at.stream, at.next, at.last, at.lag) for at in found.positions]
    print_table(("stream", "next", "last in stream", "lag"), cells)
    print(f"{found.batches} batches; final up to: {found.watermark}{_open(found)}")
    return 0


def _open(found: aggregate_run.Standing) -> str:
    return "; one more was begun, and is done again by the next run" if found.is_open else ""


def _as_json(found: aggregate_run.Standing) -> dict[str, Any]:
    return {
        "batches": found.batches,
        "is_open": found.is_open,
        "watermark": found.watermark,
        "streams": [asdict(at) for at in found.positions],
    }


def run(pipeline: Aggregate, said: argparse.Namespace) -> int:
    """Run the query: once up to the end of the streams, or until it is interrupted."""
    sessions.check_installed()
    found = aggregate_run.standing(pipeline)  # what is wrong is told before Spark starts
    if not pipeline.create:
        aggregate_run.target_stream(pipeline)
    if (
        not said.continuous
        and found.batches
        and not found.is_open
        and not any(at.lag for at in found.positions)
    ):
        return print_json(dict.fromkeys(TOTALS, 0)) if said.json else _nothing_new()
    every_s = said.every if said.continuous else None
    with own_spark("pyjs-pipeline aggregate", pipeline.master, pipeline.spark) as spark:
        query = aggregate_run.start(spark, pipeline, every_s)
        try:
            totals = follow(query, show=sys.stderr.isatty())
        except KeyboardInterrupt:
            with suppress(Exception):  # of a JVM that was interrupted too
                query.stop()  # else it tells in a stack that Spark ended below it
            raise
    if said.json:
        return print_json(totals)
    late = f", at least {totals['late']} too late" if totals["late"] else ""
    print(f"{totals['messages']} messages{late}, {totals['open']} windows open, to {pipeline.target}")
    return 0


def _nothing_new() -> int:
    print("nothing new")
    return 0


def follow(query: StreamingQuery, *, show: bool) -> dict[str, int]:
    """Wait for the end of a query; return what it did. Raises what ended it."""
    totals = dict.fromkeys(TOTALS, 0)
    seen = ""  # when the last batch began that is counted; Spark keeps a hundred
    while True:
        is_over = query.awaitTermination(1)
        fresh = [each for each in query.recentProgress if each["timestamp"] > seen]
        for each in fresh:
            _add(totals, each)
            seen = each["timestamp"]
        if show and fresh:
            _show(fresh[-1])
        if is_over:
            return totals


def _add(totals: dict[str, int], batch: Mapping[str, Any]) -> None:
    totals["messages"] += batch["numInputRows"]
    for state in batch["stateOperators"]:
        totals["late"] += state["numRowsDroppedByWatermark"]
        totals["open"] = state["numRowsTotal"]


def _show(batch: Mapping[str, Any]) -> None:
    rate = batch["processedRowsPerSecond"] or 0
    line = f"batch {batch['batchId']}: {batch['numInputRows']} rows, {rate:.0f}/s"
    print(f"\r{line:<50}", end="", file=sys.stderr)


KIND = Kind(
    text="sum messages up by windows of time, into a bucket or a stream",
    add_arguments=add_arguments,
    from_arguments=from_arguments,
    from_tables=aggregate.from_tables,
    run=run,
    validate=validate,
    explain=explain,
    status=status,
    is_query=True,
)

"""The commands of replaying pipelines: what they are told, and what they print."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from pyjs_spark.cli.kinds import Kind
from pyjs_spark.cli.own_spark import own_spark
from pyjs_spark.cli.say import print_json, print_table
from pyjs_spark.datasource import sessions
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import run as replay_run
from pyjs_spark.lake.replay.ledger import BEGUN
from pyjs_spark.lake.replay.pipeline import Replay
from pyjs_spark.lake.replay.run import Plan, Replayed

HEAD = tuple(key for key in replay.KEYS if key not in ("kind", "map"))
SHOWN = 20  # batches that `explain` lists; --json has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what makes a replay without a file."""
    parser.add_argument("source", help="folder or URI of the archive")
    parser.add_argument("stream", help="the archived stream")
    parser.add_argument("target", help="the stream that stores the messages")
    parser.add_argument("--format", metavar="FORMAT", help="parquet (default), delta or iceberg")
    parser.add_argument("--id", required=True, help="of this replay: run again, it repeats nothing")
    parser.add_argument(
        "--map", action="append", default=[], metavar="'A.> -> B.>'", help="the first that matches"
    )
    parser.add_argument("--subjects", metavar="LIST", help="only these, as they are in the archive")
    parser.add_argument("--first-seq", metavar="SEQ", help="only from this sequence on")
    parser.add_argument("--last-seq", metavar="SEQ", help="only up to this sequence, inclusive")
    parser.add_argument("--since", metavar="TIME", help="only what was stored then or later")
    parser.add_argument("--until", metavar="TIME", help="only what was stored before")
    parser.add_argument("--rate", metavar="N", help="messages a second at most")
    parser.add_argument("--msg-ids", help="keep (default), or origin: <stream>:<seq> for all")
    parser.add_argument("--rows-per-batch", metavar="N", help=f"default {replay.ROWS_PER_BATCH}")
    parser.add_argument("--master", help="where Spark runs; default local[*]")


def from_arguments(said: argparse.Namespace, options: dict[str, str]) -> Replay:
    """Return the options of the command line. Raises OptionError."""
    head = {key: getattr(said, key) for key in HEAD if getattr(said, key) is not None}
    return replay.make(head, said.map, options)


def validate(found: Replay, said: argparse.Namespace) -> int:
    """Report that the pipeline is valid."""
    if said.json:
        return print_json({"kind": "replay", "is_valid": True, "id": found.id, **found.definition()})
    print(f"valid: replay of {found.stream} from {found.source} to {found.target}; no server was asked")
    return 0


def explain(found: Replay, said: argparse.Namespace) -> int:
    """Show what the next run reads and writes; change nothing."""
    planned = replay_run.plan(found)
    lines = [
        (batch.low, batch.high - 1, len(batch.files), replay_run.rows_of(found, batch), _size(batch.files))
        for batch in planned.batches
    ]
    total = {
        "batches": len(lines),
        "rows": sum(line[3] for line in lines),
        "bytes": sum(line[4] for line in lines),
    }
    if said.json:
        names = ("low", "last", "files", "rows", "bytes")
        return print_json({"ranges": [dict(zip(names, line, strict=True)) for line in lines], **total})
    print_table(("first", "last", "files", "rows about", "bytes in files"), lines[:SHOWN])
    if len(lines) > SHOWN:
        print(f"... and {len(lines) - SHOWN} more")
    rate = f", {found.rate}/s at most: {total['rows'] / found.rate:.0f} s" if found.rate else ""
    is_less = found.subjects or found.since_ns is not None or found.until_ns is not None
    filtered = ", before the filters" if is_less else ""
    print(f"{total['batches']} batches, about {total['rows']} rows{filtered}{rate}")
    for each in found.maps:
        print(f"map {each}")
    return 0


def _size(files: tuple[replay.File, ...]) -> int:
    return sum(file.size for file in files)


def status(found: Replay, said: argparse.Namespace) -> int:
    """Show how far the replay is in its archive."""
    planned = replay_run.plan(found)
    at = planned.ledger.next if planned.ledger.batch else 0
    lag = sum(batch.high - batch.low for batch in planned.batches)
    is_open = planned.ledger.state == BEGUN
    if said.json:
        return print_json({"id": found.id, "next": at, "end": planned.end, "lag": lag, "is_open": is_open})
    print_table(("replay", "next", "last in archive", "lag"), [(found.id, at, planned.end - 1, lag)])
    if is_open:
        print("a batch was begun, and is done again by the next run, which repeats nothing")
    return 0


def run(found: Replay, said: argparse.Namespace) -> int:
    """Write the archived messages that were not replayed yet."""
    sessions.check_installed()
    planned = replay_run.plan(
        found
    )  # what is wrong is told before Spark starts, and nothing to do costs no JVM
    done = _done(found, planned) if planned.batches else []
    rows, duplicates = sum(each.rows for each in done), sum(each.duplicates for each in done)
    if said.json:
        return print_json(
            {"batches": [asdict(each) for each in done], "rows": rows, "duplicates": duplicates}
        )
    if not done:
        print("nothing new")
        return 0
    known = f", {duplicates} of them not stored, whose ids it had already" if duplicates else ""
    print(f"{found.target}: {rows} messages in {len(done)} batches{known}, next sequence {done[-1].high}")
    return 0


def _done(found: Replay, planned: Plan) -> list[Replayed]:
    with own_spark("pyjs-pipeline replay", found.master, found.spark) as spark:
        return replay_run.run(spark, found, planned, _tell if sys.stderr.isatty() else _say_nothing)


def _tell(each: Replayed) -> None:
    print(f"\r{each.rows} messages up to sequence {each.high - 1}", file=sys.stderr)


def _say_nothing(each: Replayed) -> None:
    pass


KIND = Kind(
    text="write an archive back into a stream, in order and exactly once",
    add_arguments=add_arguments,
    from_arguments=from_arguments,
    from_tables=replay.from_tables,
    run=run,
    validate=validate,
    explain=explain,
    status=status,
)

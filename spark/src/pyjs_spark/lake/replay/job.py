"""The command `replay`: its arguments, its run and its output."""

from __future__ import annotations

from dataclasses import asdict

from pyjs_spark.lake.archive_job import table
from pyjs_spark.lake.jobs import Job, JobKind, Outcome, Session
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import run as replay_run
from pyjs_spark.lake.replay.ledger import BEGUN
from pyjs_spark.lake.replay.pipeline import Replay
from pyjs_spark.lake.replay.run import Replayed

SHOWN = 20  # batches that `explain` lists; --json has all


def _check_job(job: Job) -> Replay:
    return replay.of_values(job.values, job.given, job.options, job.catalog)


def _explain(job: Job) -> Outcome:
    found: Replay = job.made
    batches = [
        {
            "low": batch.low,
            "last": batch.high - 1,
            "files": len(batch.files),
            "rows": replay_run.rows_of(found, batch),
            "bytes": sum(file.size for file in batch.files),
        }
        for batch in replay_run.plan(found).batches
    ]
    rows, size = (sum(batch[name] for batch in batches) for name in ("rows", "bytes"))
    head = ("first", "last", "files", "rows about", "bytes in files")
    lines = table(head, [tuple(batch.values()) for batch in batches[:SHOWN]])
    lines += [f"... and {len(batches) - SHOWN} more"] if len(batches) > SHOWN else []
    rate = f", {found.rate}/s at most: {rows / found.rate:.0f} s" if found.rate else ""
    is_less = found.subjects or found.since_ns is not None or found.until_ns is not None
    lines.append(
        f"{len(batches)} batches, about {rows} rows{', before the filters' if is_less else ''}{rate}"
    )
    lines += [f"map {each}" for each in found.maps]
    return Outcome(lines, {"ranges": batches, "batches": len(batches), "rows": rows, "bytes": size})


def _status(job: Job) -> Outcome:
    planned = replay_run.plan(job.made)
    at = planned.ledger.next if planned.ledger.batch else 0
    lag = sum(batch.high - batch.low for batch in planned.batches)
    is_open = planned.ledger.state == BEGUN
    lines = table(("replay", "next", "last in archive", "lag"), [(job["id"], at, planned.end - 1, lag)])
    again = ["a batch was begun, and is done again by the next run, which repeats nothing"] if is_open else []
    said = {"id": job["id"], "next": at, "end": planned.end, "lag": lag, "is_open": is_open}
    return Outcome([*lines, *again], said)


def _run(job: Job, session: Session) -> Outcome:
    planned = replay_run.plan(job.made)  # reports errors before Spark starts
    done: list[Replayed] = []
    if planned.batches:
        with session() as spark:
            done = replay_run.run(spark, job.made, planned, lambda each: None)
    rows, duplicates = sum(each.rows for each in done), sum(each.duplicates for each in done)
    said = {"batches": [asdict(each) for each in done], "rows": rows, "duplicates": duplicates}
    if not done:
        return Outcome(["nothing new"], said)
    known = f", {duplicates} of them not stored, whose ids it had already" if duplicates else ""
    line = f"{job['target']}: {rows} messages in {len(done)} batches{known}, next sequence {done[-1].high}"
    return Outcome([line], said)


KIND = JobKind(
    "replay",
    "write an archive back into a stream, in order and exactly once",
    replay.KEYS,
    _run,
    _explain,
    _check_job,
    _status,
    parse=replay.sink_options,
    has_catalog=True,
)

"""Runs of a replay: check the archive, plan batches, and write the batches one after another.

Each batch is one Spark job that ends with a single task, so that the messages keep their order. The JVM
reads the Parquet files, filters and maps; the task passes the rows to the sink in the order of their
sequences. A batch has the same rows in every attempt, so the sink recognises a repeated batch by its number and
writes no row twice (ledger.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from pyjs_spark.datasource.sessions import activate
from pyjs_spark.errors import DataLoss, OptionError, SparkError
from pyjs_spark.lake import archive, files
from pyjs_spark.lake.archive import File
from pyjs_spark.lake.archive_job import table
from pyjs_spark.lake.jobs import Job, JobKind, Outcome, Session
from pyjs_spark.lake.replay import ledger as replay_ledger
from pyjs_spark.lake.replay import pipeline as replay
from pyjs_spark.lake.replay import source as replay_source
from pyjs_spark.lake.replay.ledger import BEGUN, DONE, Ledger
from pyjs_spark.lake.replay.pipeline import Batch, Limits, Replay
from pyjs_spark.lake.tables.parquet import rows_in
from pyjs_spark.nats.client import connected
from pyjs_spark.options.values import SEQ_MAX
from pyjs_spark.read import lookup
from pyjs_spark.write.columns import RowPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyjs_spark.write.marker import Progress

SHOWN = 20  # number of batches that `explain` shows; --json shows all of them


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run of a replay."""

    ledger: Ledger
    batches: tuple[Batch, ...]
    end: int  # the sequence after the archive's last sequence


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of one batch of a replay."""

    low: int
    high: int
    rows: int  # number of rows, including those that an earlier run had written
    duplicates: int = 0  # rows that the target did not store, since it already had their ids


# -- planning -------------------------------------------------------------------------------------------------------


def plan(found: Replay) -> Plan:
    """Return the batches of the next run; changes nothing.

    Raises:
        OptionError: the archive does not exist, or the id belongs to another replay.
        StreamMissing: the target does not exist.
        DataLoss: the archive lacks messages, or belongs to another stream than before.
    """
    source = replay_source.look(found)
    client = connected(found.options.connect)
    if lookup.stream_state(client, found.target) is None:
        raise lookup.missing(client, found.target)
    ledger = replay_ledger.read(client, found, source.created)
    replay_ledger.check_same(found, ledger, source.created)
    held = source.files
    end = max((file.high for file in held), default=1)
    begin = min((file.low for file in held), default=1)
    at = max(found.first_seq, begin) if ledger.batch == 0 else ledger.next
    _check_gap(found, held, at, min(end, found.last_seq + 1))
    until = ledger.high if ledger.state == BEGUN else None
    return Plan(ledger, tuple(replay.batches(found, held, at, until)), end)


def rows_of(found: Replay, batch: Batch) -> int:
    """Return the approximate number of rows in the range of a batch, before filters.

    Raises:
        SparkError: a file of the batch is damaged.
    """
    system, _ = files.file_system(found.source)
    total = 0
    for file in batch.files:
        try:
            rows = rows_in(system, file.path, file.low, file.high)
        except ValueError as error:
            raise SparkError(f"{file.path}: {error}; with quality you see what else is damaged") from None
        part = min(file.high, batch.high) - max(file.low, batch.low)
        total += -(-rows * part // (file.high - file.low))
    return total


def _check_gap(found: Replay, held: list[File], at: int, end: int) -> None:
    for low, high in archive.missing(at, end, [(file.low, file.high) for file in held], SEQ_MAX):
        raise DataLoss(
            f"source {found.source}: the archive of {found.stream} lacks messages {low} to {high - 1}; run "
            f"the archive again, or replay what lies after with first_seq={high} and another id"
        )


# -- writing --------------------------------------------------------------------------------------------------------


def run(
    spark: SparkSession, found: Replay, planned: Plan, tell: Callable[[Replayed], None]
) -> list[Replayed]:
    """Write the planned batches; call `tell` after each finished batch.

    Raises:
        OptionError: a message of the archive cannot be written; raised before the first write.
        RowRefused, ReplayDiffers, WriterReplaced, PublishFailed: the sink cannot write a batch.
    """
    from pyjs_spark.lake.replay import rows  # imported lazily: these need pyspark
    from pyjs_spark.lake.replay.paced import ReplaySource

    rows.check(spark, found, _limits(found, planned), [each for each in planned.batches if each.files])
    activate(spark)
    spark.dataSource.register(ReplaySource)
    _progress(found).keys.make_bucket(1)
    ledger, done = planned.ledger, []
    for batch in planned.batches:
        number = ledger.batch if ledger.state == BEGUN else ledger.batch + 1
        ledger = replace(ledger, batch=number, low=batch.low, high=batch.high, state=BEGUN)
        ledger = replay_ledger.write(connected(found.options.connect), found, ledger)
        done.append(_write(spark, found, batch, number))
        ledger = replay_ledger.write(connected(found.options.connect), found, replace(ledger, state=DONE))
        tell(done[-1])
    return done


def _write(spark: SparkSession, found: Replay, batch: Batch, number: int) -> Replayed:
    from pyjs_spark.lake.replay.rows import messages

    if not batch.files:
        return Replayed(batch.low, batch.high, 0)
    rows = messages(spark, found, [batch]).coalesce(1).sortWithinPartitions("seq")
    options = {**found.given, "stream": found.target, "sinkId": found.id}
    options["batch"] = str(number)
    if found.rate is not None:
        options["rate"] = str(found.rate)
    ready = rows.select("subject", "headers", "data", "msg_id")
    ready.write.format("jetstream-replay").mode("append").options(**options).save()
    marker = _progress(found).read().get(0)
    if marker is None or marker.batch != number:  # no row passed the filters
        return Replayed(batch.low, batch.high, 0)
    return Replayed(batch.low, batch.high, marker.rows, marker.duplicates)


def _progress(found: Replay) -> Progress:
    from pyjs_spark.write.marker import Progress  # imported lazily: needs pyarrow

    return Progress(connected(found.options.connect), found.options, found.id)


def _limits(found: Replay, planned: Plan) -> Limits:
    """Return the limits of the target for one message.

    Raises:
        OptionError: the target has no subjects, so it takes no messages itself.
    """
    from pyjs_spark.write import delivery  # imported lazily: needs pyarrow
    from pyjs_spark.write.rows import HEADERS_MAX, size_max

    client = connected(found.options.connect)
    info = client.api(f"STREAM.INFO.{found.target}")
    subjects = list(info["config"].get("subjects") or [])
    if not subjects:
        raise OptionError(f"target={found.target}: the stream takes no messages itself; name one that does")
    last = delivery.SinkPart(found.id, planned.ledger.batch + len(planned.batches), 0, "")
    framing = delivery.framing_of(found.options, last, b"")
    own = delivery.own_size(framing, RowPlan(data=2, subject=0, headers=1, msg_id=3))
    return Limits(subjects, size_max(client.info) - own, HEADERS_MAX - own)


# -- the command ----------------------------------------------------------------------------------------------------


def _check_job(job: Job) -> Replay:
    return replay.of_values(job.values, job.given, job.options, job.catalog)


def _explain(job: Job) -> Outcome:
    found: Replay = job.made
    batches = [
        {
            "low": batch.low,
            "last": batch.high - 1,
            "files": len(batch.files),
            "rows": rows_of(found, batch),
            "bytes": sum(file.size for file in batch.files),
        }
        for batch in plan(found).batches
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
    planned = plan(job.made)
    at = planned.ledger.next if planned.ledger.batch else 0
    lag = sum(batch.high - batch.low for batch in planned.batches)
    is_open = planned.ledger.state == BEGUN
    lines = table(("replay", "next", "last in archive", "lag"), [(job["id"], at, planned.end - 1, lag)])
    again = ["a batch was begun, and is done again by the next run, which repeats nothing"] if is_open else []
    said = {"id": job["id"], "next": at, "end": planned.end, "lag": lag, "is_open": is_open}
    return Outcome([*lines, *again], said)


def _run_job(job: Job, session: Session) -> Outcome:
    planned = plan(job.made)  # called for its errors, before Spark starts
    done: list[Replayed] = []
    if planned.batches:
        with session() as spark:
            done = run(spark, job.made, planned, lambda each: None)
    rows, duplicates = sum(each.rows for each in done), sum(each.duplicates for each in done)
    said = {"batches": [asdict(each) for each in done], "rows": rows, "duplicates": duplicates}
    if not done:
        return Outcome(["nothing new"], said)
    known = f", {duplicates} of them not stored because their ids were known" if duplicates else ""
    line = f"{job['target']}: {rows} messages in {len(done)} batches{known}, next sequence {done[-1].high}"
    return Outcome([line], said)


KIND = JobKind(
    "replay",
    "write an archive back into a stream, in order and exactly once",
    replay.KEYS,
    _run_job,
    _explain,
    _check_job,
    _status,
    parse=replay.sink_options,
    has_catalog=True,
)

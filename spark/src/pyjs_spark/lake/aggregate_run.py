"""Windowed aggregates as streaming queries: start, status, and resumption from a checkpoint.

Progress is Spark's checkpoint alone: the offsets of the stream and the windows that are still open. Beside them lies
`pyjs-aggregate.json` with the definition: with other values or windows the state would be meaningless, so another
definition is refused. Results that replace each other (`updates`) are written by a batch for each micro-
batch, since Spark takes no updates into a Python data source; a batch that is repeated writes the same values to the
same keys. Results that are written once (`final`) go through the sink as a stream, exactly once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyjs_spark import strict_json
from pyjs_spark.decode.schema import SPARK_TYPES
from pyjs_spark.errors import DataLoss, OptionError, SparkError, StreamMissing
from pyjs_spark.lake import aggregate, files
from pyjs_spark.lake.aggregate import Aggregate
from pyjs_spark.nats import buckets
from pyjs_spark.nats.client import connected
from pyjs_spark.nats.patient import PatientApi
from pyjs_spark.nats.settings import ConnectSettings
from pyjs_spark.options import uses
from pyjs_spark.options.writing import parse_sink_options
from pyjs_spark.read import lookup, offsets
from pyjs_spark.read.offsets import Offsets, StreamOffset
from pyjs_spark.read.planner import Planner
from pyjs_spark.times import EPOCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

DEFINITION = "pyjs-aggregate.json"
EARLIEST = {"startingOffsets": "earliest"}  # all there is, unless the pipeline says otherwise
NO_TIME = "no time yet"


@dataclass(frozen=True, slots=True)
class CheckpointPosition:
    """Position of a checkpoint in one stream."""

    stream: str
    next: int  # the first sequence that no finished batch read
    last: int  # of the stream
    lag: int  # messages that the next run reads, at most


@dataclass(frozen=True, slots=True)
class Standing:
    """The contents of a checkpoint, and the streams."""

    batches: int  # finished
    is_open: bool  # a batch was begun and not finished: the next run does it again
    watermark: str  # times before it are final
    positions: tuple[CheckpointPosition, ...]


# -- running --------------------------------------------------------------------------------------------------------


def start(spark: SparkSession, pipeline: Aggregate, every_s: float | None = None) -> StreamingQuery:
    """Start the query: it ends at the current end of the streams, or repeats at an interval.

    Raises:
        OptionError: the checkpoint is of another definition, or the session does not count time in UTC.
        StreamMissing: the bucket is not there.
    """
    if spark.conf.get("spark.sql.session.timeZone") not in ("UTC", "Etc/UTC"):
        raise OptionError("windows are told in UTC: set spark.sql.session.timeZone=UTC in this session")
    if pipeline.create:
        create_bucket(pipeline)
    options = sink_options(pipeline)
    claim(pipeline)
    found = results(spark, pipeline)
    if pipeline.emit == "updates":
        writer = found.writeStream.outputMode("update").foreachBatch(_Upsert(options))
    else:
        writer = found.writeStream.outputMode("append").format("jetstream").options(**options)
    writer = writer.option("checkpointLocation", pipeline.checkpoint)
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(every_s * 1000)} milliseconds").start()


def results(spark: SparkSession, pipeline: Aggregate) -> DataFrame:
    """Return the results as a stream of columns `subject` and `data`."""
    from pyspark.sql import functions as f

    schema = ", ".join(f"{name} {SPARK_TYPES[name]}" for name in aggregate.columns(pipeline))
    source = spark.readStream.format("jetstream").options(**{**EARLIEST, **pipeline.given}).schema(schema)
    taken = {name: f.expr(text) for name, text in aggregate.inputs(pipeline.values).items()}
    messages = source.load().withColumn("at", f.expr(aggregate.moment(pipeline)))
    messages = messages.withColumn("name", f.expr(aggregate.group(pipeline))).withColumns(taken)
    span = f.window("at", f"{pipeline.window_s} seconds", f"{pipeline.slide_s} seconds")
    grouped = messages.withWatermark("at", f"{pipeline.late_s} seconds").groupBy(span, "name")
    totals = grouped.agg(*(f.expr(each) for each in aggregate.aggregates(pipeline.values)))
    return totals.selectExpr(
        f"{aggregate.subject(pipeline)} AS subject",
        f"cast({aggregate.payload(pipeline.values)} AS binary) AS data",
    )


def sink_options(pipeline: Aggregate) -> dict[str, str]:
    """Return the options of the sink.

    Raises:
        StreamMissing: there is no such bucket, or no stream for the results' subject.
    """
    options = {**pipeline.sink, "stream": target_stream(pipeline)}
    if pipeline.emit == "updates" and not any(name.lower() == "delivery" for name in options):
        options["delivery"] = "atLeastOnce"  # a key that is put twice has the same value
    return options


def _connection_of_sink(pipeline: Aggregate) -> ConnectSettings:
    return parse_sink_options({**pipeline.sink, "stream": "RESULTS"}).connect


class _Upsert:
    """Writes the results of one micro-batch; a class, because Spark pickles it and it must hold no session."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write the rows; again writes the same."""
        rows.write.format("jetstream").mode("append").options(**self._options).save()


def target_stream(pipeline: Aggregate) -> str:
    """Return the stream that stores the results. Raises StreamMissing."""
    api = PatientApi(_connection_of_sink(pipeline), pipeline.options.idle_timeout_s)
    if pipeline.bucket:
        if lookup.stream_state(api, buckets.kv_stream(pipeline.bucket)) is None:
            raise StreamMissing(
                f"target {pipeline.target}: there is no such bucket; make it (nats kv add {pipeline.bucket}), with a "
                "time to live if old windows shall go, or give --create"
            )
        return buckets.kv_stream(pipeline.bucket)
    subject = pipeline.target.removeprefix("subject:")
    wanted = subject if pipeline.by == "all" else f"{subject}.>"
    names = api.api("STREAM.NAMES", {"subject": wanted}).get("streams") or []
    if len(names) != 1:
        found = f"the streams {', '.join(names)} do" if names else "no stream does"
        raise StreamMissing(f"target {pipeline.target}: one stream must store {wanted}, and {found}")
    return str(names[0])


def create_bucket(pipeline: Aggregate) -> None:
    """Make the bucket of the results if it is not there."""
    settings = _connection_of_sink(pipeline)
    api = PatientApi(settings, pipeline.options.idle_timeout_s)
    name = buckets.kv_stream(pipeline.bucket)
    if lookup.stream_state(api, name) is None:
        connected(settings).api(f"STREAM.CREATE.{name}", buckets.kv_config(pipeline.bucket))


# -- checkpoints ----------------------------------------------------------------------------------------------------


def claim(pipeline: Aggregate) -> None:
    """Write the definition beside the checkpoint. Raises OptionError if there is another one."""
    said, ours = definition(pipeline), pipeline.definition()
    if said is None:
        if files.names_in(pipeline.checkpoint, "offsets"):
            raise OptionError(
                f"checkpoint {pipeline.checkpoint}: this is of another query; name another folder"
            )
        files.write_text(pipeline.checkpoint, DEFINITION, json.dumps(ours))
        return
    check_same(pipeline, said)


def definition(pipeline: Aggregate) -> dict[str, Any] | None:
    """Return the identity of the checkpoint; None: there is none yet."""
    text = files.read_text(pipeline.checkpoint, DEFINITION)
    if text is None:
        return None
    try:
        said = strict_json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise SparkError(
            f"{pipeline.checkpoint}/{DEFINITION}: this says not what it is of; put back what was"
        )
    return said


def check_same(pipeline: Aggregate, said: Mapping[str, Any]) -> None:
    """Raise OptionError if the checkpoint is of another definition."""
    ours = pipeline.definition()
    other = [name for name in ours if said.get(name) != ours[name]]
    if other:
        name = other[0]
        raise OptionError(
            f"checkpoint {pipeline.checkpoint}: it was begun with {name}={said.get(name)}, now {name}={ours[name]} "
            "is asked for; name another folder, which reads everything again"
        )


def standing(pipeline: Aggregate) -> Standing:
    """Return the position of the checkpoint; sends requests, changes nothing. Raises DataLoss, StreamMissing."""
    said = definition(pipeline)
    if said is not None:
        check_same(pipeline, said)
    done = _numbers(pipeline.checkpoint, "commits")
    begun = _numbers(pipeline.checkpoint, "offsets")
    api = PatientApi(pipeline.options.connect, pipeline.options.idle_timeout_s)
    planner = Planner(pipeline.options, api)
    watermark, found = NO_TIME, Offsets()
    if done:
        watermark, found = _offsets(pipeline.checkpoint, done[-1])
    return Standing(
        batches=len(done) and done[-1] + 1,
        is_open=bool(begun) and begun[-1] not in done,
        watermark=watermark,
        positions=tuple(_positions(planner.newest(), found, _first(planner, api, pipeline))),
    )


def _first(planner: Planner, api: PatientApi, pipeline: Aggregate) -> Offsets:
    """Return the start of a query without a checkpoint."""
    if uses.START & {*pipeline.options.said}:
        return planner.initial()
    states = ((name, lookup.stream_state(api, name)) for name in planner.newest())
    return {name: StreamOffset(state.first_seq, state.created) for name, state in states if state is not None}


def _positions(newest: Offsets, found: Offsets, first: Offsets) -> list[CheckpointPosition]:
    positions = []
    for name, end in newest.items():
        at = found.get(name) or first.get(name, end)
        if at.created != end.created:
            raise DataLoss(
                f"stream {name}: the checkpoint is of the stream created at {at.created}, there is one of "
                f"{end.created}; name another checkpoint"
            )
        positions.append(CheckpointPosition(name, at.next, end.next - 1, max(0, end.next - at.next)))
    return positions


def _numbers(checkpoint: str, folder: str) -> list[int]:
    return sorted(int(name) for name in files.names_in(checkpoint, folder) if name.isdigit())


def _offsets(checkpoint: str, batch: int) -> tuple[str, Offsets]:
    """Return the watermark and the offsets after a batch. Source: OffsetSeqLog of Spark, version 1."""
    text = files.read_text(checkpoint, f"offsets/{batch}") or ""
    lines = text.splitlines()
    try:
        metadata, source = strict_json.loads(lines[1]), strict_json.loads(lines[2])
        at_ms = int(metadata.get("batchWatermarkMs", 0))
        found = offsets.from_json(source)
    except (IndexError, ValueError, AttributeError):
        raise SparkError(
            f"{checkpoint}/offsets/{batch}: this is no checkpoint of one stream source"
        ) from None
    since = datetime.fromtimestamp(at_ms / 1000, UTC)
    return (f"{since:%Y-%m-%dT%H:%M:%SZ}" if since > EPOCH else NO_TIME), found

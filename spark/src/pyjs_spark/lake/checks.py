"""The checks of `quality`, which summarize the DataFrames of faults that frames.py computes.

This module needs pyspark; so the command imports this module only for a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from pyjs_spark.lake import frames
from pyjs_spark.lake.jobs import Job
from pyjs_spark.read.plan import Span
from pyjs_spark.times import NS_PER_S

SHOWN = 100  # number of ranges in a report
SAMPLES = 10
TIMES = "stream string, seq bigint, ts_ns bigint"
HEADERS = "headers map<string,array<string>>"
LATE = "(ts_ns - event_ns) / 1e9"
Found = dict[str, Any]  # the findings of all checks about one stream


class Faults:
    """The first faults of each stream, and statistics of all its faults, computed in one Spark job."""

    def __init__(self, faults: DataFrame, order: str, shown: int, **figures: str) -> None:
        whole = Window.partitionBy("stream")
        place = f.row_number().over(whole.orderBy(order))
        totals = {name: f.expr(text).over(whole) for name, text in {"count": "count(1)", **figures}.items()}
        rows = faults.withColumns(
            {"place": place, **{f"all_{name}": column for name, column in totals.items()}}
        )
        self._rows: dict[str, list[Row]] = {}
        for row in rows.where(f.col("place") <= shown).orderBy("stream", "place").collect():
            self._rows.setdefault(row.stream, []).append(row)

    def of(self, stream: str) -> list[Row]:
        """Return the first faults of a stream."""
        return self._rows.get(stream, [])

    def figure(self, stream: str, name: str = "count") -> int:
        """Return a statistic of all faults of a stream, or 0 if the stream has no faults."""
        rows = self.of(stream)
        return int(rows[0][f"all_{name}"]) if rows else 0


def check(spark: SparkSession, job: Job, spans: list[Span], names: Iterable[str]) -> list[Found]:
    """Return the findings of the named checks for each stream."""
    messages = job.read(spark, TIMES).persist()  # read once for all checks that need only these columns
    totals = f.count("*").alias("messages"), f.min("seq").alias("first"), f.max("seq").alias("last")
    counts = {row.stream: row for row in messages.groupBy("stream").agg(*totals).collect()}
    found = [
        {
            "stream": span.stream,
            "low": span.low,
            "high": span.high,
            "rows": counts[span.stream].messages if span.stream in counts else 0,
        }
        for span in spans
    ]
    for name in names:
        if name == "gaps":
            _gaps(messages, spans, counts, found)
        elif name == "times":
            _times(messages, found)
        elif name != "archive":
            CHECKS[name](spark, job, found)
    messages.unpersist()
    return found


def _gaps(messages: DataFrame, spans: list[Span], counts: Mapping[str, Row], found: list[Found]) -> None:
    faults = Faults(frames.gaps(messages), "low", SHOWN, missing="sum(high - low)")
    for span, said in zip(spans, found, strict=True):
        name, row = span.stream, counts.get(span.stream)
        inner = [[gap.low, gap.high] for gap in faults.of(name)]
        ends = [[span.low, row.first], [row.last + 1, span.high]] if row else [[span.low, span.high]]
        ends = [[low, high] for low, high in ends if low < high]
        said["gaps"] = {
            "messages": faults.figure(name, "missing") + sum(high - low for low, high in ends),
            "ranges": sorted(inner + ends)[:SHOWN],
            "count": faults.figure(name) + len(ends),
        }


def _times(messages: DataFrame, found: list[Found]) -> None:
    faults = Faults(frames.backwards(messages), "seq", SAMPLES, largest="max(back_ns)")
    for said in found:
        name = said["stream"]
        said["times"] = {
            "backwards": faults.figure(name),
            "largest_s": faults.figure(name, "largest") / NS_PER_S,
            "samples": [row.seq for row in faults.of(name)],
        }


def _duplicates(spark: SparkSession, job: Job, found: list[Found]) -> None:
    twice = frames.duplicates(job.read(spark, f"stream string, seq bigint, {HEADERS}"))
    faults = Faults(twice, "first_seq", SAMPLES, repeated="sum(messages - 1)")
    for said in found:
        samples = [[row.first_seq, row.last_seq] for row in faults.of(said["stream"])]
        said["duplicates"] = {"messages": faults.figure(said["stream"], "repeated"), "samples": samples}


def _lateness(spark: SparkSession, job: Job, found: list[Found]) -> None:
    where = job["event_time"]
    column = HEADERS if where.startswith("header:") else "data binary"
    events = frames.event_times(job.read(spark, f"{TIMES}, {column}"), where).persist()
    told = events.where("event_ns IS NOT NULL")
    late_s = f.expr(LATE)
    figures = events.groupBy("stream").agg(
        f.count("event_ns").alias("messages"),
        f.count_if(f.col("event_ns").isNull()).alias("without"),
        f.min(late_s).alias("least_s"),
        f.avg(late_s).alias("mean_s"),
        *(f.percentile_approx(late_s, share / 100, 10_000).alias(f"p{share}_s") for share in (50, 95, 99)),
        f.max(late_s).alias("greatest_s"),
    )
    rows = {row.stream: row.asDict() for row in figures.collect()}
    limit = job["late_after"]
    late = Faults(told.where(f"{LATE} > {limit if limit is not None else 'double(NULL)'}"), "seq", SAMPLES)
    unordered = Faults(frames.backwards(told, "event_ns"), "seq", 1)
    for said in found:
        name = said["stream"]
        own = rows.get(name, dict.fromkeys(figures.columns) | {"messages": 0, "without": 0})
        said["lateness"] = {
            **{key: value for key, value in own.items() if key != "stream"},
            "late": late.figure(name),
            "out_of_order": unordered.figure(name),
            "samples": [row.seq for row in late.of(name)],
        }
    events.unpersist()


def _payloads(spark: SparkSession, job: Job, found: list[Found]) -> None:
    schema = frames.schema_text(job["schema"]) if job["schema"] else None
    messages = job.read(spark, "stream string, seq bigint, data binary")
    faults = Faults(frames.payload_faults(messages, schema), "seq", SAMPLES)
    for said in found:
        rows = faults.of(said["stream"])
        said["payloads"] = {
            "checked": said["rows"],
            "invalid": faults.figure(said["stream"]),
            "samples": [{"seq": row.seq, "why": row.why} for row in rows],
        }


CHECKS = {"duplicates": _duplicates, "lateness": _lateness, "payloads": _payloads}

"""Quality of streams: gaps, duplicates, times, lateness and payloads; and whether an archive is complete.

Each check is a DataFrame of faults (frames.py) among the messages that a batch read with these options would
return. Lateness is the time from an event (given in its message) to the storing of the message. A message is
out of order if an earlier message of the stream has a newer event.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pyjs_spark.errors import OptionError
from pyjs_spark.exits import FOUND, LOST
from pyjs_spark.lake import frames
from pyjs_spark.lake.jobs import STREAM, Job, JobKind, Key, Outcome, Session, explained
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.read.plan import Span
from pyjs_spark.read.planner import spans_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SHOWN = 100  # number of ranges in a report
SAMPLES = 10
NS = 1_000_000_000
TIMES = "stream string, seq bigint, ts_ns bigint"
HEADERS = "headers map<string,array<string>>"
LATE = "(ts_ns - event_ns) / 1e9"
Found = dict[str, Any]  # the findings of all checks about one stream


_event_time = option_values.like(
    r"header:[^\s:]+|json:[^\s]+", "header:NAME or json:FIELD, with dots between the names of nested fields"
)


def checks_of(job: Job) -> list[str]:
    """Return the names of the checks that a job requests."""
    is_asked = {
        "times": True,
        "gaps": not job.options.subjects,
        "duplicates": job.options.include_headers != "false",
        "lateness": bool(job["event_time"]),
        "payloads": bool(job["payload"] or job["schema"]),
        "archive": bool(job["target"]),
    }
    return [name for name, asked in is_asked.items() if asked]


def _check_job(job: Job) -> None:
    """Refuse keys and options that do not fit together. Raises OptionError."""
    uses.check("quality", job.options)
    if job["late_after"] is not None and not job["event_time"]:
        raise OptionError("--late-after needs --event-time, the time that lateness is counted from")
    if job["fail_on_gaps"] and job.options.subjects:
        raise OptionError("--fail-on-gaps does not go with the option subjects: other subjects are no gaps")
    if job.options.include_headers == "raw":
        raise OptionError(
            "option includeHeaders=raw is not allowed in quality; allowed: map, or false for no ids"
        )
    if job.options.include_headers == "false" and str(job["event_time"]).startswith("header:"):
        raise OptionError("--event-time in a header needs headers; leave out includeHeaders=false")


# -- checks ---------------------------------------------------------------------------------------------------------


class Faults:
    """The first faults of each stream, and statistics of all its faults, computed in one Spark job."""

    def __init__(self, faults: DataFrame, order: str, shown: int, **figures: str) -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        whole = Window.partitionBy("stream")
        place = f.row_number().over(whole.orderBy(order))
        totals = {name: f.expr(text).over(whole) for name, text in {"count": "count(1)", **figures}.items()}
        rows = faults.withColumns(
            {"place": place, **{f"all_{name}": column for name, column in totals.items()}}
        )
        self._figures = tuple(totals)
        self._rows: dict[str, list[Row]] = {}
        for row in rows.where(f.col("place") <= shown).orderBy("stream", "place").collect():
            self._rows.setdefault(row.stream, []).append(row)

    def of(self, stream: str) -> list[Row]:
        """Return the first faults of a stream."""
        return self._rows.get(stream, [])

    def figure(self, stream: str, name: str = "count") -> int:
        """Return a statistic of all faults of a stream; 0 if it has none."""
        rows = self.of(stream)
        return int(rows[0][f"all_{name}"]) if rows else 0


def check(spark: SparkSession, job: Job, spans: list[Span]) -> list[Found]:
    """Return the findings for each stream."""
    messages = job.read(spark, TIMES).persist()  # read once for all checks that need only these columns
    counts = {row.stream: row for row in messages.groupBy("stream").agg(*_counts()).collect()}
    found = [
        {
            "stream": span.stream,
            "low": span.low,
            "high": span.high,
            "rows": counts[span.stream].messages if span.stream in counts else 0,
        }
        for span in spans
    ]
    for name in checks_of(job):
        if name == "gaps":
            _gaps(messages, spans, counts, found)
        elif name == "times":
            _times(messages, found)
        elif name != "archive":
            CHECKS[name](spark, job, found)
    messages.unpersist()
    return found


def _counts() -> list[Any]:
    from pyspark.sql import functions as f

    return [f.count("*").alias("messages"), f.min("seq").alias("first"), f.max("seq").alias("last")]


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
            "largest_s": faults.figure(name, "largest") / NS,
            "samples": [row.seq for row in faults.of(name)],
        }


def _duplicates(spark: SparkSession, job: Job, found: list[Found]) -> None:
    twice = frames.duplicates(job.read(spark, f"stream string, seq bigint, {HEADERS}"))
    faults = Faults(twice, "first_seq", SAMPLES, repeated="sum(messages - 1)")
    for said in found:
        samples = [[row.first_seq, row.last_seq] for row in faults.of(said["stream"])]
        said["duplicates"] = {"messages": faults.figure(said["stream"], "repeated"), "samples": samples}


def _lateness(spark: SparkSession, job: Job, found: list[Found]) -> None:
    from pyspark.sql import functions as f

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


# -- the command ----------------------------------------------------------------------------------------------------


def _run(job: Job, session: Session) -> Outcome:
    spans = spans_of(job.options)
    if job["schema"]:
        frames.schema_text(job["schema"])  # called for its errors, before Spark starts
    losses, troubles, lines = [], [], []
    with session() as spark:
        streams = check(spark, job, spans)
        for said in streams:
            lost, wrong = _faults(job, said)
            if job["target"]:
                from pyjs_spark.lake.reconcile import reconcile, shown

                compared = reconcile(spark, job, said["stream"])
                said["archive"] = shown(compared)
                lost += [compared.loss] if compared.loss else []
                wrong += [compared.trouble] if compared.trouble else []
            lines += _lines(said)
            losses += [f"stream {said['stream']}: {text}" for text in lost]
            troubles += [f"stream {said['stream']}: {text}" for text in wrong]
    code = LOST if losses else FOUND if troubles else 0
    return Outcome(lines, {"streams": streams, "code": code}, code, "; ".join(losses + troubles))


def _faults(job: Job, said: Found) -> tuple[list[str], list[str]]:
    """Return sentences about the losses of a stream, and sentences about its other faults."""
    missing = said.get("gaps", {}).get("messages", 0)
    lost = [f"{missing} sequences have no message"] if missing and job["fail_on_gaps"] else []
    limit = timedelta(seconds=job["late_after"] or 0)
    sentences = {
        ("times", "backwards"): "messages were stored before the one in front of them",
        ("duplicates", "messages"): "messages repeat the id of another",
        ("lateness", "late"): f"messages were stored more than {limit} after their event",
        ("payloads", "invalid"): "payloads are not as they should be",
    }
    counts = {text: said.get(name, {}).get(key, 0) for (name, key), text in sentences.items()}
    return lost, [f"{count} {text}" for text, count in counts.items() if count]


def _lines(said: Found) -> list[str]:
    """Return the part of the text report about one stream."""
    head = f"{said['stream']}: {said['rows']} messages, sequences {said['low']} to {said['high'] - 1}"
    return [head, *(f"  {name}: {_figures(part)}" for name, part in said.items() if isinstance(part, dict))]


def _figures(part: Found) -> str:
    numbers = {name: value for name, value in part.items() if isinstance(value, int | float)}
    return ", ".join(f"{name} {value:.9g}" for name, value in numbers.items())


def _explain(job: Job) -> Outcome:
    names = sorted(checks_of(job))
    return explained(spans_of(job.options), f"checks: {', '.join(names)}", checks=names)


KIND = JobKind(
    "quality",
    "check the messages of streams, and that an archive has them all",
    (
        STREAM,
        Key("target", "folder or URI of an archive to compare with", is_positional=True),
        Key("event_time", "where the time of an event stands: header:NAME or json:FIELD", _event_time),
        Key("late_after", "what is stored later than this after its event is wrong, as 5m", option_values.seconds),
        Key("payload", "json: payloads must be JSON", option_values.one_of("json")),
        Key("schema", "a file with a JSON schema that payloads must fit"),
        Key("fail_on_gaps", "sequences without a message are a loss", option_values.boolean, default=False),
    ),
    _run,
    _explain,
    _check_job,
)  # fmt: skip

"""Quality of streams: gaps, duplicates, times, lateness and payloads; and whether an archive has all of it.

One pass over what the options of a batch read choose (starts, ends, subjects), and one more over sequences alone if
there is an archive to compare with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyjs_spark.errors import OptionError
from pyjs_spark.exits import FOUND, LOST
from pyjs_spark.lake.checks import Check, Duplicates, Gaps, Lateness, Payloads, Times
from pyjs_spark.lake.jobs import STREAM, Job, JobKind, Key, Outcome
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.options.reading import Options, check_batch
from pyjs_spark.read import lookup
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.plan import Span
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.pushdown import Bounds
from pyjs_spark.read.ranges import ReadRange


def _event_time(value: str) -> str:
    if not re.fullmatch(r"(header:[^\s:]+|json:[^\s]+)", value.strip()):
        raise ValueError("header:NAME or json:FIELD, with dots between the names of nested fields")
    return value.strip()


def _payload(value: str) -> str:
    if value.strip().lower() != "json":
        raise ValueError("json")
    return "json"


def spans_of(job: Job) -> list[Span]:
    """Return one range for each stream, possibly empty. Raises as a batch read does."""
    check_batch(job.options)
    options = replace(job.options, min_partitions=1)
    api = api_of(options)
    found: dict[str, Span] = {}
    for span in Planner(options, api).batch(Bounds()):
        first = found.setdefault(span.stream, span)
        found[span.stream] = replace(first, high=span.high)
    names = lookup.stream_names(api, options.streams)
    return [found.get(name, Span(name, 1, 1, "")) for name in names]


def checks_of(job: Job, span: Span) -> list[Check]:
    """Return the checks that a job asks for."""
    found: list[Check] = [Times()]
    if not job.options.subjects:
        found.append(Gaps(span.low, span.high, is_trouble=job["fail_on_gaps"]))
    if job.options.include_headers != "false":
        found.append(Duplicates())
    if job["event_time"]:
        found.append(Lateness(job["event_time"], job["late_after"]))
    if job["payload"] or job["schema"]:
        found.append(Payloads(job["schema"]))
    return found


def _check_job(job: Job) -> None:
    """Refuse keys and options that do not go together. Raises OptionError."""
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


def read(span: Span, columns: tuple[str, ...], options: Options) -> Iterator[Any]:
    """Yield the batches of a span with some columns."""
    from pyjs_spark.read import modes as reading

    return reading.read_range(options.connect, range_of(span, columns, options))


def range_of(span: Span, columns: tuple[str, ...], options: Options) -> ReadRange:
    """Return how a span is read."""
    return ReadRange(
        span.stream,
        span.low,
        span.high,
        options.subjects,
        created=span.created,
        columns=columns,
        headers="map",
        **options.transport(),
        fail_on_data_loss=options.fail_on_data_loss,
        has_bodies="data" in columns,
    )


def _run(job: Job) -> Outcome:
    streams, lines, losses, troubles = [], [], [], []
    for span in spans_of(job):
        said, lost, wrong = _stream(job, span)
        streams.append(said)
        lines += _lines(said)
        losses += [f"stream {span.stream}: {text}" for text in lost]
        troubles += [f"stream {span.stream}: {text}" for text in wrong]
    code = LOST if losses else FOUND if troubles else 0
    return Outcome(lines, {"streams": streams, "code": code}, code, "; ".join(losses + troubles))


def _stream(job: Job, span: Span) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the counts, the losses and the faults of one stream."""
    checks = checks_of(job, span)
    columns = tuple(sorted({name for check in checks for name in check.columns}))
    rows = 0
    for batch in read(span, columns, job.options):
        rows += batch.num_rows
        for check in checks:
            check.look(batch)
    said: dict[str, Any] = {"stream": span.stream, "low": span.low, "high": span.high, "rows": rows}
    said |= {check.name: check.said() for check in checks}
    lost = [check.trouble for check in checks if check.name == "gaps" and check.trouble]
    wrong = [check.trouble for check in checks if check.name != "gaps" and check.trouble]
    if job["target"]:
        from pyjs_spark.lake.reconcile import reconcile, shown

        found = reconcile(job["target"], span.stream, job.options)
        said["archive"] = shown(found)
        lost += [found.loss] if found.loss else []
        wrong += [found.trouble] if found.trouble else []
    return said, lost, wrong


def _lines(said: dict[str, Any]) -> list[str]:
    """Return a stream's part of the report for people."""
    head = f"{said['stream']}: {said['rows']} messages, sequences {said['low']} to {said['high'] - 1}"
    return [head, *(f"  {name}: {_figures(part)}" for name, part in said.items() if isinstance(part, dict))]


def _figures(part: dict[str, Any]) -> str:
    numbers = {name: value for name, value in part.items() if isinstance(value, int | float)}
    return ", ".join(f"{name} {value:.9g}" for name, value in numbers.items())


def _explain(job: Job) -> Outcome:
    spans = spans_of(job)
    names = sorted({check.name for span in spans for check in checks_of(job, span)})
    names += ["archive"] if job["target"] else []
    lines = [f"{span.stream}: sequences {span.low} to {span.high - 1}" for span in spans]
    said = [{"stream": span.stream, "low": span.low, "high": span.high} for span in spans]
    return Outcome([*lines, f"checks: {', '.join(names)}"], {"streams": said, "checks": names})


KIND = JobKind(
    "quality",
    "check the messages of streams, and that an archive has them all",
    (
        STREAM,
        Key("target", "folder or URI of an archive to compare with", is_positional=True),
        Key("event_time", "where the time of an event stands: header:NAME or json:FIELD", _event_time),
        Key("late_after", "what is stored later than this after its event is wrong, as 5m", option_values.seconds),
        Key("payload", "json: payloads must be JSON", _payload),
        Key("schema", "a file with a JSON schema that payloads must fit"),
        Key("fail_on_gaps", "sequences without a message are a loss", option_values.boolean, default=False),
    ),
    _run,
    _explain,
    _check_job,
)  # fmt: skip

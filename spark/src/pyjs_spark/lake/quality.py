"""Quality of streams: gaps, duplicates, times, lateness and payloads; and whether an archive is complete.

The checks (checks.py) look at the messages that a batch read with these options would return. Lateness is the time
from an event (given in its message) to the storing of the message. A message is out of order if an earlier message of
the stream has a newer event.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyjs_spark.errors import OptionError
from pyjs_spark.exits import FOUND, LOST
from pyjs_spark.lake.jobs import STREAM, Job, JobKind, Key, Outcome, Session, explained
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.read.planner import spans_of

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
    """Raise OptionError for keys and options that exclude each other."""
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


# -- the command ----------------------------------------------------------------------------------------------------


def _run(job: Job, session: Session) -> Outcome:
    from pyjs_spark.lake import checks, frames  # imported lazily: they need pyspark
    from pyjs_spark.lake.reconcile import reconcile, shown

    spans = spans_of(job.options)
    if job["schema"]:
        frames.schema_text(job["schema"])  # called for its errors, before Spark starts
    losses, troubles, lines = [], [], []
    with session() as spark:
        streams = checks.check(spark, job, spans, checks_of(job))
        for said in streams:
            lost, wrong = _faults(job, said)
            if job["target"]:
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
        ("times", "backwards"): "messages have an earlier time than the message before them",
        ("duplicates", "messages"): "messages have the id of another message",
        ("lateness", "late"): f"messages were stored more than {limit} after their event",
        ("payloads", "invalid"): "payloads are invalid",
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

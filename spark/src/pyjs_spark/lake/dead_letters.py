"""Dead letters: messages that consumers gave up on, found by joining advisories with the messages of streams.

A server publishes an advisory when a message reaches its consumer's max_deliver, and when a client ends a message
(+TERM). Advisories are ordinary messages: a stream with these subjects stores them, and is read like other streams.

    $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.<stream>.<consumer>
    $JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.<stream>.<consumer>

Each advisory names a message by stream and sequence. From each stream, the range from its first to its last
dead letter is read. If a message is newer than its advisory, the stream was re-created; the message is
treated as missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyjs_spark.errors import OptionError
from pyjs_spark.lake.files import file_system, write_text
from pyjs_spark.lake.jobs import STREAM, Job, JobKind, Key, Outcome, Session, explained
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.read import lookup
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.planner import spans_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MESSAGES = (
    "stream string, seq bigint, ts timestamp, subject string, headers map<string,array<string>>, data binary"
)
ADVISORIES = "seq bigint, ts timestamp, data binary"
GROUPS_MAX = 10_000
SHOWN = 20  # number of groups in the text output
SUBJECTS = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.> and $JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"


def letters_of(spark: SparkSession, job: Job, advisories: DataFrame) -> DataFrame:
    """Return the dead letters named in advisories, with their messages."""
    from pyjs_spark.lake import frames  # imported lazily: needs pyspark

    there = _there(job, frames.letter_ends(advisories).collect())
    messages = job.read_range(spark, MESSAGES, there) if there else spark.createDataFrame([], MESSAGES)
    return frames.dead_letters(advisories, messages)


def _there(job: Job, ends: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Return the range of messages to read from each existing stream in `ends`.

    Advisories may also name streams that do not exist.
    """
    api = api_of(job.options)
    found: dict[str, tuple[int, int]] = {}
    for name, first, last in ends:
        try:
            is_name = option_values.stream_names(name) == (name,) and not lookup.is_pattern(name)
        except ValueError:
            continue
        state = lookup.stream_state(api, name) if is_name else None
        if state is not None:
            low, high = max(first, state.first_seq), min(last + 1, state.end)
            found |= {name: (low, high)} if low < high else {}
    return found


def _target(value: str) -> str:
    if not value.strip().endswith((".parquet", ".json")):
        raise ValueError(
            "a path or URI that ends with .parquet (a folder with a row for each dead letter) or .json (the report)"
        )
    return value.strip()


def _run(job: Job, session: Session) -> Outcome:
    target = job["target"] or ""
    spans_of(job.options)  # called for its errors, before Spark starts
    if target.endswith(".json"):
        file_system(target)
    with session() as spark:
        advisories = job.read(spark, ADVISORIES).cache()
        letters = letters_of(spark, job, advisories).cache()
        said = _said(letters, job["samples"])
        said["others"] = advisories.count() - said["letters"]
        if said["others"] and not said["letters"]:
            raise OptionError(
                f"stream {','.join(job.options.streams)}: none of {said['others']} messages tells of a dead letter; "
                f"name a stream with the subjects {SUBJECTS}"
            )
        if target.endswith(".parquet"):
            letters.write.mode("overwrite").parquet(target)
        letters.unpersist()
        advisories.unpersist()
    if target.endswith(".json"):
        folder, _, name = target.rpartition("/")
        write_text(folder or ("/" if target.startswith("/") else "."), name, json.dumps(said, indent=1))
    return Outcome(_lines(said, target), said)


def _said(letters: DataFrame, samples: int) -> dict[str, Any]:
    from pyjs_spark.lake import frames

    counts = letters.selectExpr("count(*) AS letters", "count_if(NOT is_there) AS gone").first()
    assert counts is not None
    groups = frames.letter_groups(letters, samples).limit(GROUPS_MAX).collect()
    return {**counts.asDict(), "groups": [group.asDict(recursive=True) for group in groups]}


def _lines(said: Mapping[str, Any], target: str) -> list[str]:
    groups = said["groups"]
    lines = [
        f"{group['count']} of {group['stream']} by {group['consumer']}, {group['subject'] or 'message gone'}: "
        f"{group['kind']}{' (' + group['reason'] + ')' if group['reason'] else ''}, "
        f"up to {group['deliveries_max']} deliveries, "
        f"sequences {', '.join(str(sample['stream_seq']) for sample in group['samples']) or 'not asked for'}"
        for group in groups[:SHOWN]
    ]
    if len(groups) > SHOWN:
        lines.append(f"... and {len(groups) - SHOWN} more groups; --json has all")
    lines.append(f"{said['letters']} dead letters, {said['gone']} of messages that are gone")
    return [*lines, f"written to {target}"] if target else lines


def _explain(job: Job) -> Outcome:
    target = job["target"]
    return explained(spans_of(job.options), f"report to {target or 'stdout'}", target=target)


KIND = JobKind(
    "dlq-report",
    "report messages that consumers gave up, from a stream of advisories",
    (
        replace(STREAM, text="the stream that keeps the advisories"),
        Key("target", "a .parquet or .json to write", _target, is_positional=True),
        Key("samples", "messages shown of each group; default 3", option_values.count(low=0, high=1000), default=3),
    ),
    _run,
    _explain,
    lambda job: uses.check("dlq-report", job.options),
)  # fmt: skip

"""Rows of a replay: messages of an archive as rows for the sink, and the check for rows that cannot be written.

The rows are Spark expressions, which the JVM evaluates: no Python runs per message. This module knows the columns of
an archive and the subjects of the target, but uses no server. It needs pyspark; so a replay imports it only when it
writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pyjs_spark.errors import OptionError
from pyjs_spark.lake.files import uri
from pyjs_spark.lake.replay import mapping
from pyjs_spark.lake.replay.pipeline import Batch, Limits, Replay

COLUMNS = "seq bigint, ts_ns bigint, subject string, headers map<string,array<string>>, data binary"
HEADERS_SIZE = (  # SQL expression for the size of a message's headers, counted as the sink counts them
    "octet_length(msg_id) + aggregate(map_entries(headers), 0L, (sum, e) -> "
    "sum + aggregate(e.value, 0L, (part, v) -> part + octet_length(e.key) + octet_length(v) + 4))"
)
NOT_REPEATED = "(?i)(nats|pyjs)-.*"  # left out: some would have an effect again on a server or a sink


def messages(spark: SparkSession, found: Replay, batches: Sequence[Batch]) -> DataFrame:
    """Return the rows to write: columns seq, original, subject, headers, data and msg_id."""
    paths = sorted({file.path for batch in batches for file in batch.files})
    low, high = batches[0].low, batches[-1].high
    rows = spark.read.schema(COLUMNS).parquet(*(uri(found.source, path) for path in paths))
    rows = rows.where((f.col("seq") >= low) & (f.col("seq") < high))
    if found.subjects:
        rows = rows.where(f.col("subject").rlike(mapping.pattern_of(found.subjects)))
    if found.since_ns is not None:
        rows = rows.where(f.col("ts_ns") >= found.since_ns)
    if found.until_ns is not None:
        rows = rows.where(f.col("ts_ns") < found.until_ns)
    origin = f.concat(f.lit(f"{found.stream}:"), f.col("seq").cast("string"))
    given = f.expr("get(get(map_values(map_filter(headers, (k, v) -> lower(k) = 'nats-msg-id')), 0), 0)")
    given = f.nullif(given, f.lit(""))  # an empty id counts as no id, as on a server
    return rows.select(
        "seq",
        f.col("subject").alias("original"),
        _mapped(found).alias("subject"),
        _headers(found).alias("headers"),
        "data",
        (f.coalesce(given, origin) if found.msg_ids == "keep" else origin).alias("msg_id"),
    )


def _mapped(found: Replay) -> Column:
    subject = f.col("subject")
    if not found.maps:
        return subject
    chain: Any = f
    for each in found.maps:
        chain = chain.when(
            subject.rlike(each.pattern),
            f.regexp_replace(subject, f.lit(each.pattern), f.lit(each.replacement)),
        )
    return chain


def _headers(found: Replay) -> Column:
    kept = f.expr(f"map_filter(coalesce(headers, map()), (k, v) -> NOT k rlike '^{NOT_REPEATED}$')")
    # Computed without a zone: functions of timestamps would use the zone of the session.
    second = f.expr(
        "replace(CAST(TIMESTAMP_NTZ'1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, ts_ns DIV 1000000000) "
        "AS string), ' ', 'T')"
    )
    fraction = f.lpad(f.expr("ts_ns % 1000000000").cast("string"), 9, "0")
    ours = f.create_map(
        f.lit("Pyjs-Origin-Stream"), f.array(f.lit(found.stream)),
        f.lit("Pyjs-Origin-Seq"), f.array(f.col("seq").cast("string")),
        f.lit("Pyjs-Origin-Ts"), f.array(f.concat(second, f.lit("."), fraction, f.lit("Z"))),
    )  # fmt: skip
    return f.map_concat(kept, ours)


def check(spark: SparkSession, found: Replay, limits: Limits, batches: Sequence[Batch]) -> None:
    """Raise OptionError if a row cannot be written; called before the first write of a replay."""
    if not batches:
        return
    rows = messages(spark, found, batches)
    is_taken = f.col("subject").rlike(mapping.pattern_of(limits.subjects))
    sized = rows.withColumn("heads", f.expr(HEADERS_SIZE)).withColumn("size", f.expr("heads + length(data)"))
    is_large = (f.col("size") > limits.size) | (f.col("heads") > limits.headers_size)
    wrong = sized.where(f.col("subject").isNull() | ~is_taken | is_large)
    first = wrong.select("seq", "original", "subject", is_taken, "heads", "size").first()
    if first is not None:
        raise OptionError(f"message {first[0]} {_why(found, limits, *first[1:])}")
    if found.msg_ids == "keep":
        _check_ids(rows)


def _why(
    found: Replay, limits: Limits, original: str, subject: str | None, is_taken: bool, heads: int, size: int
) -> str:
    """Return the reason why a message cannot be written."""
    if subject is None:
        return (
            f"has the subject {original}, which no mapping matches; add one ('> -> >' keeps the rest as it is), or "
            "leave it out with subjects"
        )
    if not is_taken:
        return (
            f"would go to {subject}, and stream {found.target} takes {', '.join(limits.subjects)}; map it there with "
            "map, or name another target"
        )
    part, count, most = ("headers", heads, limits.headers_size)
    if size > limits.size:
        part, count, most = ("headers and payload", size, limits.size)
    return (
        f"has {count} bytes of {part}, with those that a replay adds, and the server takes {most}; leave it out with "
        "subjects, first_seq or last_seq"
    )


def _check_ids(rows: DataFrame) -> None:
    """Raise OptionError if two archived messages have the same id.

    Within its duplicate window, the target would store only one of them.
    """
    twice = (
        rows.groupBy("msg_id")
        .agg(f.min("seq"), f.max("seq"), f.count("seq").alias("n"))
        .where("n > 1")
        .first()
    )
    if twice is not None:
        raise OptionError(
            f"messages {twice[1]} and {twice[2]} have the same Nats-Msg-Id {twice[0]}: the target would take one "
            "for a duplicate of the other; set msg_ids=origin"
        )

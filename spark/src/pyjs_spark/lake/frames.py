"""Functions on DataFrames of messages, for jobs on streams; each function returns an ordinary lazy plan.

The messages are from `format("jetstream")`, from one or more streams, or from an archive. The functions use no
SparkContext, so they also work over Spark Connect. This module needs pyspark; so a command imports this module only
for a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from pyjs_spark import strict_json
from pyjs_spark.errors import OptionError, SparkMissing

ADVISORY = "type string, stream string, consumer string, stream_seq bigint, deliveries bigint, reason string"
# kind of a dead letter -> last token of the advisory's type
KINDS = {"max_deliver": "max_deliveries", "terminated": "terminated"}
GROUP = ("stream", "consumer", "subject", "kind", "reason")  # columns by which dead letters are grouped
PREVIEW = 200  # number of characters shown of a payload
PLAIN = re.compile(r"[A-Za-z0-9_-]+")


def latest(messages: DataFrame) -> DataFrame:
    """Return the last message of each subject of each stream.

    `messages` must have the columns stream, seq and subject. The result has all columns of `messages`.
    """
    kept = f.max_by(f.struct(*messages.columns), "seq").alias("kept")
    return messages.groupBy("stream", "subject").agg(kept).select("kept.*")


# -- quality --------------------------------------------------------------------------------------------------------


def gaps(messages: DataFrame) -> DataFrame:
    """Return the gaps in the sequences of streams, in the columns stream, low and high (exclusive).

    Each stream is sorted by one task.
    """
    before = f.lag("seq").over(Window.partitionBy("stream").orderBy("seq"))
    pairs = messages.select("stream", (before + 1).alias("low"), f.col("seq").alias("high"))
    return pairs.where("low < high")


def duplicates(messages: DataFrame) -> DataFrame:
    """Return each message id that a stream has more than once, with its count and its first and last sequence.

    `messages` must have the columns stream, seq and headers. The headers must be maps.
    """
    msg_id = f.try_element_at("headers", f.lit("Nats-Msg-Id"))[0]
    found = messages.withColumn("msg_id", msg_id).where("msg_id IS NOT NULL").groupBy("stream", "msg_id")
    counted = found.agg(
        f.count("*").alias("messages"), f.min("seq").alias("first_seq"), f.max("seq").alias("last_seq")
    )
    return counted.where("messages > 1")


def backwards(messages: DataFrame, column: str = "ts_ns") -> DataFrame:
    """Return the messages whose time is lower than the time of an earlier message of the stream.

    `column` has the times. The result has the columns stream, seq and back_ns. Storage times go back if the clock was
    set back. Event times go back if events arrive out of order.
    """
    earlier = Window.partitionBy("stream").orderBy("seq").rowsBetween(Window.unboundedPreceding, -1)
    back = f.max(column).over(earlier) - f.col(column)
    return messages.select("stream", "seq", back.alias("back_ns")).where("back_ns > 0")


def event_times(messages: DataFrame, where: str) -> DataFrame:
    """Return stream, seq, ts_ns and event_ns of each message.

    `where` is the place of the event time, as header:NAME or json:FIELD. A time is a string in RFC 3339, or a number
    of s, ms, us or ns since 1970; the unit is derived from the size of the number. For any other value, event_ns is
    null.
    """
    kind, _, name = where.partition(":")
    if kind == "header":
        text = f.try_element_at("headers", f.lit(name))[0]
    else:
        path = "".join(f"['{part}']" if not PLAIN.fullmatch(part) else f".{part}" for part in name.split("."))
        text = f.get_json_object(f.col("data").cast("string"), f"${path}")
    return messages.select("stream", "seq", "ts_ns", _as_ns(f.trim(text)).alias("event_ns"))


def _as_ns(text: Column) -> Column:
    number = text.try_cast("decimal(28,9)")
    scale = f.when(number >= 10**17, 1).when(number >= 10**14, 10**3).when(number >= 10**11, 10**6)
    ns = f.try_multiply(number, scale.otherwise(10**9).cast("decimal(10,0)")).try_cast("bigint")
    is_number = text.rlike(r"^\d{1,19}(\.\d{1,9})?$") & (number > 0)
    is_time = text.rlike(r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[-+]\d\d:\d\d)$")
    micros = f.unix_micros(f.try_to_timestamp(f.upper(text)))
    return f.when(is_number, ns).when(is_time, f.try_multiply(micros, f.lit(1000)))


def payload_faults(messages: DataFrame, schema: str | None = None) -> DataFrame:
    """Return the messages whose payload is not JSON or does not match the schema.

    The result has the columns stream, seq and why (a description of the fault).
    """
    found = messages.select("stream", "seq", "data")
    return found.mapInArrow(partial(_faults, schema=schema), "stream string, seq bigint, why string")


def _faults(batches: Iterator[pa.RecordBatch], schema: str | None) -> Iterator[pa.RecordBatch]:
    names, check = ["stream", "seq", "why"], checker(schema)
    for batch in batches:
        whys = pa.array([check(data) for data in batch.column("data").to_pylist()], pa.string())
        wrong = pa.RecordBatch.from_arrays([batch.column("stream"), batch.column("seq"), whys], names)
        yield wrong.filter(whys.is_valid())


def checker(schema: str | None) -> Callable[[bytes], str | None]:
    """Return a function that describes the fault of a payload, or returns None if the payload has no fault.

    `schema` is the text of a valid JSON schema, or None to check only that payloads are JSON.
    """
    validator = None
    if schema is not None:
        from jsonschema import validators

        said = json.loads(schema)
        validator = validators.validator_for(said)(said)

    def fault(data: bytes) -> str | None:
        try:
            value = strict_json.loads(data)
        except ValueError as wrong:  # includes UnicodeDecodeError
            return f"no JSON: {wrong}"
        first = next(iter(validator.iter_errors(value)), None) if validator is not None else None
        return None if first is None else f"{first.json_path}: {first.message}"

    return fault


def schema_text(path: str) -> str:
    """Return the text of the JSON schema in a file.

    Raises:
        OptionError: the file cannot be read, or is not a valid JSON schema.
        SparkMissing: the package jsonschema is not installed.
    """
    try:
        from jsonschema import validators
        from jsonschema.exceptions import SchemaError
    except ImportError:
        raise SparkMissing("--schema needs the package jsonschema; pip install jsonschema") from None
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        schema = json.loads(text)
        validators.validator_for(schema).check_schema(schema)
    except OSError as error:
        raise OptionError(f"--schema={path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise OptionError(f"--schema={path}: this is no JSON: {error}") from None
    except SchemaError as error:
        raise OptionError(f"--schema={path}: this is no JSON schema: {error.message}") from None
    return text


def compared(held: DataFrame, there: DataFrame) -> DataFrame:
    """Return the sequences that differ between an archive (`held`) and its stream (`there`).

    Both inputs have seq and ts_ns. The result has the columns seq, held_ns and there_ns; null means that the sequence
    is missing. Two different times of one sequence mean two different messages, which happens if the stream lost its
    end.
    """
    ours = held.select("seq", f.col("ts_ns").alias("held_ns"))
    both = ours.join(there.select("seq", f.col("ts_ns").alias("there_ns")), "seq", "full")
    return both.where("NOT held_ns <=> there_ns")


# -- dead letters ---------------------------------------------------------------------------------------------------


def dead_letters(advisories: DataFrame, messages: DataFrame | None = None) -> DataFrame:
    """Return a row for each advisory about a message that a consumer gave up on; other advisories are left out.

    If `messages` of the streams are given, each row also has the columns subject, message_ts, headers and data of the
    message, and `is_there`. If the message no longer exists, these columns are null, and `is_there` is false. A
    message that is newer than its advisory was stored after the stream was re-created, so it counts as missing.
    """
    said = f.from_json(f.col("data").cast("string"), ADVISORY).alias("said")
    kinds = f.create_map(*(f.lit(word) for pair in KINDS.items() for word in pair))
    kind = f.try_element_at(kinds, f.substring_index("said.type", ".", -1)).alias("kind")
    letters = advisories.select(f.col("seq").alias("advisory_seq"), "ts", said).select(
        "advisory_seq", "ts", kind, *(f"said.{name.split()[0]}" for name in ADVISORY.split(", ")[1:])
    )
    letters = letters.where("kind IS NOT NULL AND stream IS NOT NULL AND stream_seq IS NOT NULL")
    if messages is None:
        return letters
    found = messages.select(
        f.col("stream").alias("of"),
        f.col("seq").alias("of_seq"),
        "subject",
        f.col("ts").alias("message_ts"),
        "headers",
        "data",
    )
    is_its = (f.col("stream") == f.col("of")) & (f.col("stream_seq") == f.col("of_seq"))
    joined = letters.join(found, is_its & (f.col("message_ts") <= f.col("ts")), "left")
    return joined.withColumn("is_there", f.col("of").isNotNull()).drop("of", "of_seq")


def letter_ends(advisories: DataFrame) -> DataFrame:
    """Return the lowest and the highest sequence of each stream's dead letters, in columns stream, low and last."""
    ends = f.min("stream_seq").alias("low"), f.max("stream_seq").alias("last")
    return dead_letters(advisories).groupBy("stream").agg(*ends)


def letter_groups(letters: DataFrame, samples: int = 3) -> DataFrame:
    """Return the dead letters grouped by stream, consumer, subject, kind and reason, the largest group first.

    Each group has up to `samples` of its messages.
    """
    place = f.row_number().over(Window.partitionBy(*GROUP).orderBy("advisory_seq"))
    preview = f.left(f.col("data").cast("string"), f.lit(PREVIEW)).alias("data")
    sample = f.struct("stream_seq", "deliveries", preview)
    time = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"
    groups = letters.withColumn("place", place).groupBy(*GROUP)
    return groups.agg(
        f.count("*").alias("count"),
        f.coalesce(f.max("deliveries"), f.lit(0)).alias("deliveries_max"),
        f.date_format(f.min("ts"), time).alias("first"),
        f.date_format(f.max("ts"), time).alias("last"),
        f.collect_list(f.when(f.col("place") <= samples, sample)).alias("samples"),
    ).orderBy(f.desc("count"), *GROUP)

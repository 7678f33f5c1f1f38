"""Jobs on streams as functions from DataFrames to DataFrames: each returns a plan that a user could have written.

They take what `format("jetstream")` reads, from one stream or several, as a batch or out of an archive, and use no
SparkContext, so they work over Spark Connect too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ADVISORY = "type string, stream string, consumer string, stream_seq bigint, deliveries bigint, reason string"
KINDS = {"max_deliver": "max_deliveries", "terminated": "terminated"}  # the end of an advisory's type


def latest(messages: DataFrame) -> DataFrame:
    """Return the last message of each subject of each stream, with the given columns.

    `messages` has stream, seq and subject.
    """
    from pyspark.sql import functions as f

    kept = f.max_by(f.struct(*messages.columns), "seq").alias("kept")
    return messages.groupBy("stream", "subject").agg(kept).select("kept.*")


def gaps(messages: DataFrame) -> DataFrame:
    """Return the gaps in the sequences: stream and [low, high). One task sorts a stream."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = f.lag("seq").over(Window.partitionBy("stream").orderBy("seq"))
    pairs = messages.select("stream", (before + 1).alias("low"), f.col("seq").alias("high"))
    return pairs.where("low < high")


def duplicates(messages: DataFrame) -> DataFrame:
    """Return the message ids of more than one message of a stream: their number, the first and the last sequence.

    `messages` has stream, seq and headers as a map.
    """
    from pyspark.sql import functions as f

    msg_id = f.try_element_at("headers", f.lit("Nats-Msg-Id"))[0]
    found = messages.withColumn("msg_id", msg_id).where("msg_id IS NOT NULL").groupBy("stream", "msg_id")
    counted = found.agg(
        f.count("*").alias("messages"), f.min("seq").alias("first_seq"), f.max("seq").alias("last_seq")
    )
    return counted.where("messages > 1")


def dead_letters(advisories: DataFrame, messages: DataFrame | None = None) -> DataFrame:
    """Return rows of advisories about messages that consumers gave up; other advisories are left out.

    With `messages` of the streams that they are of, each has its message beside it: subject, message_ts, headers and
    data, null where the message is gone.
    """
    from pyspark.sql import functions as f

    said = f.from_json(f.col("data").cast("string"), ADVISORY).alias("said")
    kinds = f.create_map(*(f.lit(word) for pair in KINDS.items() for word in pair))
    kind = f.try_element_at(kinds, f.substring_index("said.type", ".", -1)).alias("kind")
    letters = advisories.select(f.col("seq").alias("advisory_seq"), "ts", said).select(
        "advisory_seq", "ts", kind, *(f"said.{name.split()[0]}" for name in ADVISORY.split(", ")[1:])
    )
    letters = letters.where("kind IS NOT NULL AND stream_seq IS NOT NULL")
    if messages is None:
        return letters
    found = messages.select(
        "stream",
        f.col("seq").alias("stream_seq"),
        "subject",
        f.col("ts").alias("message_ts"),
        "headers",
        "data",
    )
    return letters.join(found, ["stream", "stream_seq"], "left")

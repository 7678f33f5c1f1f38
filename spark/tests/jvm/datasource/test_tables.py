"""Buckets and object stores in a real Spark: in SQL, with schemas, and as changes that resume from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from spark.tests.kv.test_kv import DEL, Bucket
from spark.tests.kv.test_objects import Store
from tests.conformance.harness.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def bucket(filler: Filler) -> Iterator[Bucket]:
    made = Bucket(filler)
    made.create()
    made.put_all([("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4")])
    made.put("b", b"", DEL)
    yield made
    made.delete()


def test_a_bucket_is_a_table_in_sql(spark: SparkSession, server: ServerProcess, bucket: Bucket) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW settings USING jetstream OPTIONS "
        f"(servers 'nats://127.0.0.1:{server.port}', bucket '{bucket.name}')"
    )

    found = spark.sql(
        "SELECT key, CAST(value AS string), revision, bucket FROM settings ORDER BY key"
    ).collect()

    assert found == [("a", "3", 3, bucket.name), ("c", "4", 4, bucket.name)]


def test_a_schema_of_keys_counts_them(spark: SparkSession, server: ServerProcess, bucket: Bucket) -> None:
    options = {"servers": f"nats://127.0.0.1:{server.port}", "bucket": bucket.name}
    read = spark.read.format("jetstream").options(**options)

    assert read.schema("key string").load().count() == 2
    told = read.option("includeDeletes", "true").schema("KEY string NOT NULL, operation string").load()
    assert sorted(told.collect()) == [("a", "PUT"), ("b", "DEL"), ("c", "PUT")]


def test_changes_go_on_from_a_checkpoint(
    spark: SparkSession, server: ServerProcess, bucket: Bucket, tmp_path: Path
) -> None:
    options = {
        "servers": f"nats://127.0.0.1:{server.port}",
        "bucket": bucket.name,
        "startingOffsets": "earliest",
    }

    def run() -> None:
        changes = spark.readStream.format("jetstream").options(**options).load()
        writer = changes.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    run()
    for turn in range(5):
        bucket.put("a", b"%d" % turn)
    bucket.put("c", b"", DEL)
    run()

    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("revision").collect()
    assert [(row.revision, row.key, row.operation) for row in rows] == [
        (1, "a", "PUT"),
        (2, "b", "PUT"),
        (3, "a", "PUT"),
        (4, "c", "PUT"),
        (5, "b", "DEL"),
        (8, "a", "PUT"),
        (9, "a", "PUT"),
        (10, "a", "PUT"),
        (11, "c", "DEL"),
    ]
    assert [row.value for row in rows if row.operation == "DEL"] == [None, None]


def test_objects_are_rows_with_their_contents(
    spark: SparkSession, server: ServerProcess, filler: Filler
) -> None:
    store = Store(filler)
    store.create()
    store.put("a", b"hello world", metadata={"k": "v"})
    store.describe("l", {"name": "l", "options": {"link": {"bucket": "other"}}})
    options = {"servers": f"nats://127.0.0.1:{server.port}", "objectStore": store.name}
    read = spark.read.format("jetstream").options(**options)

    plain = read.load().orderBy("name")
    whole = read.schema("name string, content binary, link struct<bucket:string,name:string>").load()
    rows = whole.orderBy("name").collect()
    listed = plain.select("name", "size", "metadata.k", "link.bucket").collect()
    store.delete()

    assert listed == [("a", 11, "v", None), ("l", 0, None, "other")]
    assert [(row.name, row.content) for row in rows] == [("a", bytearray(b"hello world")), ("l", None)]

"""The data source in a real Spark, with both servers: typical uses, and missing messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.lake.lakes import Lake, archive
from pyjs_spark.options.reading import parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Read = Callable[..., "DataFrame"]


@pytest.fixture
def orders(filler: Filler) -> Filler:
    """A stream of twelve messages with headers, on three subjects."""
    filler.create()
    filler.fill(12, headers=b"NATS/1.0\r\nKind: test\r\nKind: more\r\n\r\n")
    return filler


@pytest.fixture
def read(spark: SparkSession, server: ServerProcess, filler: Filler) -> Read:
    """Read the test's stream as a batch."""

    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("jetstream").option("servers", f"nats://127.0.0.1:{server.port}")
        reader = reader.option("stream", filler.name).options(**options)
        return (reader.schema(schema) if schema else reader).load()

    return load


class Pipe:
    """A streaming query from the test's stream to Parquet."""

    def __init__(self, spark: SparkSession, servers: str, stream: str, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.options = {"servers": servers, "stream": stream, "startingOffsets": "earliest"}

    def run(self, **options: str) -> StreamingQuery:
        """Read all existing messages, then end; return the ended query."""
        source = self.spark.readStream.format("jetstream").options(**{**self.options, **options}).load()
        writer = source.writeStream.format("parquet").option(
            "checkpointLocation", str(self.folder / "checkpoint")
        )
        query = writer.trigger(availableNow=True).start(str(self.folder / "out"))
        query.awaitTermination()
        return query

    def seqs(self) -> list[int]:
        """Return the written sequences, sorted."""
        found: list[Row] = self.spark.read.parquet(str(self.folder / "out")).select("seq").collect()
        return sorted(row.seq for row in found)


@pytest.fixture
def pipe(spark: SparkSession, server: ServerProcess, filler: Filler, tmp_path: Path) -> Pipe:
    return Pipe(spark, f"nats://127.0.0.1:{server.port}", filler.name, tmp_path)


def failure(act: Callable[[], Any]) -> str:
    """Return Spark's error text when `act` fails."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        act()
    return str(caught.value)


def rows_of(query: StreamingQuery) -> list[int]:
    """Return the number of rows of each batch that had any."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


# -- batch ----------------------------------------------------------------------------------------------------------


def test_a_batch_has_every_message_with_all_its_columns(read: Read, orders: Filler) -> None:
    before = datetime.now(UTC)

    rows = read().orderBy("seq").collect()

    assert [row.seq for row in rows] == list(range(1, 13))
    assert rows[0].asDict() == {
        "stream": orders.name,
        "seq": 1,
        "ts": rows[0].ts,
        "subject": f"{orders.subject.decode()}.1",
        "headers": {"Kind": ["test", "more"]},
        "data": bytearray(b"1"),
        "size": 1,
    }
    assert abs(before - rows[0].ts.replace(tzinfo=UTC)).total_seconds() < 300


def test_a_schema_of_the_user_is_a_projection(read: Read, orders: Filler) -> None:
    rows = read("SEQ long NOT NULL, subject string, ts_ns long").orderBy("seq").collect()

    assert rows[0].asDict() == {"SEQ": 1, "subject": f"{orders.subject.decode()}.1", "ts_ns": rows[0].ts_ns}
    assert rows[0].ts_ns > 1_700_000_000 * 10**9


@pytest.mark.parametrize("headers", ["map", "raw", "false"])
def test_headers_come_in_the_form_that_was_asked_for(read: Read, orders: Filler, headers: str) -> None:
    row = read(includeHeaders=headers).orderBy("seq").first()

    expected = {"map": {"Kind": ["test", "more"]}, "false": None}
    if headers == "raw":
        assert b"Kind: test" in bytes(row.headers)
    else:
        assert row.asDict().get("headers") == expected[headers]


@pytest.mark.parametrize("mode", ["auto", "consumer", "direct"])
def test_every_mode_reads_the_same(read: Read, orders: Filler, mode: str) -> None:
    orders.delete(2, 5)

    found = [row.seq for row in read(readMode=mode, minPartitions="3").orderBy("seq").collect()]

    assert found == [1, 3, 4, 6, 7, 8, 9, 10, 11, 12]


def test_an_empty_stream_has_no_rows(read: Read, filler: Filler) -> None:
    filler.create()

    assert read().count() == 0


def test_a_batch_is_read_by_as_many_tasks_as_asked_for(read: Read, orders: Filler) -> None:
    frame = read(minPartitions="4")

    assert frame.rdd.getNumPartitions() == 4
    assert frame.selectExpr("sum(seq) AS total", "count(DISTINCT seq) AS seqs").first() == (78, 12)


def test_a_view_in_sql(spark: SparkSession, server: ServerProcess, orders: Filler) -> None:
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders USING jetstream OPTIONS "
        f"(servers 'nats://127.0.0.1:{server.port}', stream '{orders.name}', subjects '{orders.subject.decode()}.0')"
    )

    found = spark.sql(
        "SELECT subject, count(*) AS n, max(seq) AS last FROM orders GROUP BY subject"
    ).collect()

    assert found == [(f"{orders.subject.decode()}.0", 4, 12)]


def test_a_password_in_an_address_does_not_show_in_plans(spark: SparkSession) -> None:
    options = "servers 'nats://ann:hush@127.0.0.1:1', stream 'S', user 'ann', password 'quiet'"

    rows = spark.sql(
        f"EXPLAIN EXTENDED CREATE TEMPORARY VIEW hushed USING jetstream OPTIONS ({options})"
    ).collect()

    plan = "\n".join(row[0] for row in rows)
    assert "127.0.0.1:1" in plan
    assert "hush@" not in plan
    assert "quiet" not in plan


def test_filters_go_into_the_plan(read: Read, orders: Filler) -> None:
    frame = read(pushdown="true").where(f"seq > 3 AND seq <= 9 AND subject = '{orders.subject.decode()}.0'")

    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert sorted(row.seq for row in frame.collect()) == [6, 9]
    assert "BatchScan jetstream" in plan
    assert "Filter " not in plan  # Spark has no filter left to apply


def test_a_filter_on_time_goes_into_the_plan_and_stays_in_it(read: Read, orders: Filler) -> None:
    frame = read(pushdown="true")
    third = frame.where("seq = 3").first().ts

    found = sorted(row.seq for row in frame.where(frame.ts >= third).collect())

    assert found == sorted(row.seq for row in read().collect() if row.ts >= third)


def test_without_the_option_filters_are_sparks_own(read: Read, orders: Filler, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read().where("seq = 5").count() == 1
        assert "DATA_SOURCE_PUSHDOWN_DISABLED" in failure(read(pushdown="true").where("seq = 5").count)
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_spark_finds_the_format_without_being_told(
    spark: SparkSession, server: ServerProcess, orders: Filler
) -> None:
    other = spark.newSession()  # the source is not registered in this session
    reader = other.read.format("jetstream").option("servers", f"nats://127.0.0.1:{server.port}")

    assert reader.option("stream", orders.name).load().count() == 12


def test_a_session_has_settings_that_fit_one_machine(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.sparkContext.uiWebUrl is None


def test_workers_run_the_python_of_the_session(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()

    assert found == [sys.executable]


# -- errors ---------------------------------------------------------------------------------------------------------


def test_a_bad_option_fails_before_any_job(read: Read) -> None:
    said = failure(lambda: read(maxRowPerTriger="5"))

    # Spark converts option names to lower case
    assert "option maxrowpertriger is unknown; did you mean maxRowsPerTrigger?" in said
    # If the user gives a schema, Spark creates the data source when it plans the query.
    assert "option readMode=bulky is not allowed" in failure(read("seq long", readMode="bulky").count)


def test_a_bad_schema_fails_before_any_job(read: Read, orders: Filler) -> None:
    assert "asks for seq as string; it is bigint" in failure(lambda: read("seq string").count())


def test_a_stream_that_is_not_there_is_told(read: Read, orders: Filler) -> None:
    assert "there is no such stream; did you mean" in failure(lambda: read(stream=orders.name + "X").count())


def test_a_server_that_is_not_there_is_told(read: Read) -> None:
    assert "ServerUnreachable" in failure(lambda: read(servers="nats://127.0.0.1:1").count())


# -- streaming ------------------------------------------------------------------------------------------------------


def test_a_query_goes_on_from_its_checkpoint(pipe: Pipe, orders: Filler) -> None:
    first = pipe.run()
    assert pipe.seqs() == list(range(1, 13))

    orders.fill(5)
    second = pipe.run()
    third = pipe.run()

    assert pipe.seqs() == list(range(1, 18))
    assert (rows_of(first), rows_of(second), rows_of(third)) == ([12], [5], [])


def test_a_query_that_reads_what_there_is_keeps_its_limit(pipe: Pipe, orders: Filler) -> None:
    query = pipe.run(maxRowsPerTrigger="5")

    assert rows_of(query) == [5, 5, 2]
    assert pipe.seqs() == list(range(1, 13))


def test_progress_says_how_far_behind_the_query_is(pipe: Pipe, orders: Filler) -> None:
    source = pipe.run(maxRowsPerTrigger="5").recentProgress[0]["sources"][0]

    assert f'"{orders.name}": {{"next": 6,' in source["endOffset"] or '"next":6' in source["endOffset"]
    assert "13" in source["latestOffset"]


def test_a_query_that_goes_on_reads_what_comes(
    spark: SparkSession, pipe: Pipe, orders: Filler, tmp_path: Path
) -> None:
    source = spark.readStream.format("jetstream").options(**pipe.options).load()
    query = source.writeStream.format("memory").queryName(f"q{orders.name}").start()
    try:
        query.processAllAvailable()
        orders.fill(3)
        query.processAllAvailable()
        found = spark.sql(f"SELECT seq FROM q{orders.name} ORDER BY seq").collect()
    finally:
        query.stop()

    assert [row.seq for row in found] == list(range(1, 16))


def test_a_batch_that_was_planned_and_not_committed_is_read_again_the_same(
    pipe: Pipe, orders: Filler
) -> None:
    pipe.run(maxRowsPerTrigger="7")
    (pipe.folder / "checkpoint" / "commits" / "1").unlink()
    for left in (pipe.folder / "checkpoint" / "commits").glob(".1.crc"):
        left.unlink()
    orders.fill(4)

    pipe.run()

    assert pipe.seqs() == list(range(1, 17))


def test_what_was_purged_before_it_was_read_ends_the_query(pipe: Pipe, orders: Filler) -> None:
    pipe.run()
    orders.fill(6)
    orders.api(f"STREAM.PURGE.{orders.name}", seq=16)

    said = failure(pipe.run)

    assert "DataLoss" in said
    assert "messages 13 to 15 are gone: the stream now begins at 16" in said
    pipe.run(failOnDataLoss="false")
    assert pipe.seqs() == [*range(1, 13), 16, 17, 18]


def test_a_recreated_stream_ends_the_query(pipe: Pipe, orders: Filler) -> None:
    pipe.run()
    orders.api(f"STREAM.DELETE.{orders.name}")
    orders.create()
    orders.fill(2)

    said = failure(pipe.run)

    assert "deleted and re-created" in said
    pipe.run(failOnDataLoss="false")
    assert pipe.seqs() == [1, 1, 2, 2, *range(3, 13)]


def test_a_query_over_a_pattern_takes_new_streams_in(pipe: Pipe, orders: Filler) -> None:
    pattern = f"{orders.name}*"
    pipe.run(stream=pattern)
    orders.name, orders.subject = f"{orders.name}_NEW", f"{orders.subject.decode()}_new".encode()
    orders.create()
    orders.fill(2)

    pipe.run(stream=pattern)

    assert pipe.seqs() == [1, 1, 2, 2, *range(3, 13)]


def test_a_query_leaves_nothing_on_the_server(pipe: Pipe, orders: Filler) -> None:
    pipe.run()

    assert orders.consumers() == []


def test_a_streaming_query_without_an_end_takes_none(pipe: Pipe) -> None:
    assert "endingTimestamp is not allowed in a streaming read" in failure(
        lambda: pipe.run(endingTimestamp="5")
    )


# -- archive --------------------------------------------------------------------------------------------------------


def test_an_archive_is_a_table_partitioned_by_stream_and_day(
    spark: SparkSession, server: ServerProcess, orders: Filler, tmp_path: Path
) -> None:
    options = parse_options({"stream": orders.name, "servers": f"nats://127.0.0.1:{server.port}"})

    files = archive(spark, Lake(str(tmp_path)), options, rows_per_file=5)
    again = archive(spark, Lake(str(tmp_path)), options, rows_per_file=5)

    table = spark.read.parquet(str(tmp_path))
    assert ([file.rows for file in files], again) == ([5, 5, 2], [])
    assert table.selectExpr("count(DISTINCT seq)", "max(seq)", "min(stream)").first() == (12, 12, orders.name)

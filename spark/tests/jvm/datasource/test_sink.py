"""Writes of a real Spark to both servers: batches, streaming queries, and repeated batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.conftest import Filler
from tests.conformance.harness.process import ServerProcess

import pyjs_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Copy:
    """A source stream, a target stream, and the query that copies from one to the other."""

    def __init__(self, spark: SparkSession, port: int, source: Filler, target: Filler, folder: Path) -> None:
        self.spark = spark
        self.source = source
        self.target = target
        self.folder = folder
        self.servers = f"nats://127.0.0.1:{port}"

    def read(self, name: str) -> DataFrame:
        reader = self.spark.read.format("jetstream").option("servers", self.servers)
        return reader.option("stream", name).load()

    def write(self, frame: DataFrame, **options: str) -> DataFrameWriter:
        said = {"servers": self.servers, "stream": self.target.name, **options}
        return frame.write.format("jetstream").options(**said).mode("append")

    def run(self, cuts: str = "150", **options: str) -> StreamingQuery:
        """Copy all existing messages, then end; `cuts` is the option maxRecordsPerPartition."""
        reader = self.spark.readStream.format("jetstream").option("servers", self.servers)
        reader = reader.options(
            startingOffsets="earliest", maxRowsPerTrigger="400", maxRecordsPerPartition=cuts
        )
        rows = reader.option("stream", self.source.name).load()
        rows = rows.selectExpr(f"'{self.target.subject.decode()}.x' AS subject", "headers", "data")
        writer = rows.writeStream.format("jetstream").options(servers=self.servers, stream=self.target.name)
        writer = writer.options(**options).option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def copied(self) -> list[int]:
        return sorted(int(bytes(row.data)) for row in self.read(self.target.name).select("data").collect())

    def forget_last_commit(self) -> None:
        """Remove the last commit from the checkpoint, as if a crash had prevented it."""
        commits = self.folder / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)


@pytest.fixture
def copy(spark: SparkSession, server: ServerProcess, filler: Filler, tmp_path: Path) -> Iterator[Copy]:
    filler.create()
    target = Filler(server.port, filler.name + "T")
    target.raw.close()
    target.raw = filler.raw  # two connections would receive each other's answers
    target.create(duplicate_window=100_000_000)
    yield Copy(spark, server.port, filler, target, tmp_path)
    target.raw.try_api(f"STREAM.DELETE.{target.name}")


def failure(act: Callable[[], Any]) -> str:
    """Return Spark's error text when `act` fails."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        act()
    return str(caught.value)


# -- batch ----------------------------------------------------------------------------------------------------------


def test_a_thread_writes_after_it_has_registered_the_format(copy: Copy) -> None:
    copy.source.fill(3)
    rows = copy.read(copy.source.name).selectExpr(f"'{copy.target.subject.decode()}.x' AS subject", "data")

    def write() -> None:
        pyjs_spark.register(copy.spark)
        copy.write(rows).save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()

    assert copy.copied() == [1, 2, 3]


def test_a_batch_is_written(copy: Copy) -> None:
    subject = f"{copy.target.subject.decode()}.n"
    frame = copy.spark.range(0, 1000, numPartitions=4).selectExpr(
        f"concat('{subject}', id % 7) AS subject",
        "map('Kind', array('a', 'b')) AS headers",
        "CAST(id AS string) AS data",
    )

    copy.write(frame).save()

    rows = copy.read(copy.target.name).collect()
    assert sorted(int(bytes(row.data)) for row in rows) == list(range(1000))
    assert {row.subject for row in rows} == {f"{subject}{n}" for n in range(7)}
    assert all(row.headers["Kind"] == ["a", "b"] for row in rows)


def test_a_batch_with_an_id_is_written_once(copy: Copy) -> None:
    frame = copy.spark.range(0, 100, numPartitions=2).selectExpr("CAST(id AS string) AS data")
    options = {"subject": f"{copy.target.subject.decode()}.x", "sinkId": f"b{copy.target.name}"}

    copy.write(frame, **options).save()
    copy.write(frame, **options).save()

    assert copy.copied() == list(range(100))


def test_what_is_wrong_is_told_before_a_task_runs(copy: Copy) -> None:
    frame = copy.spark.range(1).selectExpr("CAST(id AS string) AS data", "id AS seq")

    assert "the column seq is not written" in failure(lambda: copy.write(frame, subject="a").save())
    assert "did you mean maxInFlight" in failure(lambda: copy.write(frame, maxInFlite="1").save())
    overwrite = copy.write(frame.drop("seq"), subject="a").mode("overwrite")
    assert "a stream cannot be replaced by a write" in failure(overwrite.save)


def test_a_row_that_is_refused_fails_the_write_with_its_text(copy: Copy) -> None:
    frame = copy.spark.range(1).selectExpr("'no such.subject' AS subject", "CAST(id AS string) AS data")

    assert "the subject 'no such.subject' has a space" in failure(copy.write(frame).save)


def test_a_write_within_foreach_batch_knows_its_batch(copy: Copy) -> None:
    copy.source.fill(10)
    options = {"subject": f"{copy.target.subject.decode()}.x", "sinkId": f"f{copy.target.name}"}

    def write(frame: DataFrame, batch: int) -> None:
        copy.write(frame.select("data"), **options).save()

    def run() -> None:
        reader = copy.spark.readStream.format("jetstream").option("servers", copy.servers)
        rows = reader.options(stream=copy.source.name, startingOffsets="earliest").load()
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(copy.folder / "checkpoint")).start().awaitTermination()

    run()
    copy.forget_last_commit()
    run()
    copy.source.fill(3)
    run()

    assert copy.copied() == sorted([*range(1, 11), 1, 2, 3])


# -- streaming ------------------------------------------------------------------------------------------------------


def test_a_stream_is_copied_to_another_and_goes_on_from_its_checkpoint(copy: Copy) -> None:
    copy.source.fill(1000, headers=b"NATS/1.0\r\nKind: test\r\n\r\n")
    copy.run()
    assert copy.copied() == list(range(1, 1001))

    copy.source.fill(500)
    copy.run()
    copy.run()

    assert copy.copied() == sorted([*range(1, 1001), *range(1, 501)])
    assert copy.read(copy.target.name).where("headers['Kind'][0] = 'test'").count() == 1000


def test_a_batch_that_comes_again_after_the_window_adds_nothing(copy: Copy) -> None:
    copy.source.fill(1000)
    copy.run()

    copy.forget_last_commit()
    copy.run()

    assert copy.copied() == list(range(1, 1001))


def test_a_query_that_goes_on_with_other_options_cuts_its_pending_batch_as_before(copy: Copy) -> None:
    copy.source.fill(1000)
    copy.run()
    copy.forget_last_commit()

    copy.run(cuts="70")

    assert copy.copied() == list(range(1, 1001))


def test_a_replay_in_other_partitions_ends_the_query(copy: Copy) -> None:
    copy.source.fill(300)
    copy.run()
    copy.forget_last_commit()
    query = copy.spark.readStream.format("jetstream").option("servers", copy.servers)
    rows = query.options(stream=copy.source.name, startingOffsets="earliest").load().repartition(3)
    rows = rows.selectExpr(f"'{copy.target.subject.decode()}.x' AS subject", "headers", "data")
    writer = rows.writeStream.format("jetstream").options(servers=copy.servers, stream=copy.target.name)
    writer = writer.option("checkpointLocation", str(copy.folder / "checkpoint")).trigger(availableNow=True)

    said = failure(lambda: writer.start().awaitTermination())

    assert "ReplayDiffers" in said
    assert copy.copied() == list(range(1, 301))


def test_without_exactly_once_a_replay_adds_its_rows_again(copy: Copy) -> None:
    copy.source.fill(300)
    copy.run(delivery="atLeastOnce")
    copy.forget_last_commit()
    copy.run(delivery="atLeastOnce")

    assert copy.copied() == sorted([*range(1, 301)] * 2)

"""The archive as a streaming query: AvailableNow, at an interval, and repeated batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from spark.tests.kills.kill_driver import take_back_last_commit
from spark.tests.support.archived import archived
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.errors import DataLoss
from pyjs_spark.lake import archive_query, lakes
from pyjs_spark.lake.tables.table import Lake
from pyjs_spark.options.reading import Options, parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def options(server: ServerProcess, filler: Filler) -> Options:
    filler.create()
    filler.fill(12)
    return parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_every_message_is_archived_once_though_a_batch_comes_again(
    spark: SparkSession, options: Options, filler: Filler, tmp_path: Path, kind: str
) -> None:
    lake, checkpoint = Lake(str(tmp_path / "lake"), kind), str(tmp_path / "checkpoint-archive")

    def run() -> None:
        archive_query.start(spark, lake, options, 5, checkpoint=checkpoint).awaitTermination()

    run()
    first = archived(lake, filler.name)
    take_back_last_commit(tmp_path)
    filler.fill(6)
    run()

    assert first == list(range(1, 13))
    assert archived(lake, filler.name) == list(range(1, 19))
    assert lakes.plan(lake, options, 5) == []


def test_a_query_at_an_interval_takes_in_what_comes_and_fills_the_gap_of_a_killed_run(
    spark: SparkSession, options: Options, filler: Filler, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path), "parquet")
    lakes.archive(spark, lake, options, 5)
    next(tmp_path.rglob("seq=*6-*.parquet")).unlink()

    query = archive_query.start(spark, lake, options, 5, every="100 milliseconds")
    try:
        query.processAllAvailable()
        filled = archived(lake, filler.name)
        filler.fill(6)
        query.processAllAvailable()
    finally:
        query.stop()

    assert filled == list(range(1, 13))
    assert archived(lake, filler.name) == list(range(1, 19))
    assert lakes.archive(spark, lake, options, 5) == []


def test_what_went_before_it_was_archived_is_told_at_the_start(
    spark: SparkSession, options: Options, filler: Filler, tmp_path: Path
) -> None:
    lake = Lake(str(tmp_path), "parquet")
    archive_query.start(spark, lake, options, 5).awaitTermination()
    filler.fill(4)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=15)

    with pytest.raises(DataLoss, match="messages 13 to 14 were removed before they were archived"):
        archive_query.start(spark, lake, options, 5)

    assert archived(lake, filler.name) == list(range(1, 13))

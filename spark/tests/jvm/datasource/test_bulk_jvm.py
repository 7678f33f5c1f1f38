"""Ranges read in a real Spark: in bulk from our server, and from a store directory without a server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.conftest import JETSTREAM, Filler, our_command_from_anywhere
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.lake.lakes import Lake, archive
from pyjs_spark.options.reading import parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 3000
HEADERS = b"NATS/1.0\r\nKind: test\r\n\r\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bulk")


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[ServerProcess]:
    """Our server only, with a stream ORDERS that allows direct gets."""
    process = ServerProcess(our_command_from_anywhere(), JETSTREAM, home, with_http=False)
    process.start()
    orders = Filler(process.port, "ORDERS")
    orders.create(storage="file", allow_direct=True)
    orders.fill(ROWS, size=50, headers=HEADERS)
    orders.delete(7)
    orders.raw.close()
    yield process
    process.kill()


def load(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("jetstream").options(stream="ORDERS", **options).load()


def summary(frame: DataFrame) -> Any:
    return frame.selectExpr(
        "count(*) rows", "sum(seq) seqs", "sum(length(data)) bytes", "sum(size(headers)) headers"
    ).first()


def test_every_way_reads_the_same(spark: SparkSession, server: ServerProcess, home: Path) -> None:
    servers = f"nats://127.0.0.1:{server.port}"
    expected = (ROWS - 1, ROWS * (ROWS + 1) // 2 - 7, 50 * (ROWS - 1), ROWS - 1)

    for mode in ("auto", "bulk", "consumer"):
        assert tuple(summary(load(spark, servers=servers, readMode=mode))) == expected
    shutil.copytree(home / "store", home / "copy")
    assert tuple(summary(load(spark, path=str(home / "copy"), minPartitions="3"))) == expected


def test_a_directory_is_loaded_by_its_path_and_filtered(
    spark: SparkSession, server: ServerProcess, home: Path
) -> None:
    reader = spark.read.format("jetstream").option("stream", "ORD*").option("pushdown", "true")

    frame = reader.schema("seq long, subject string").load(str(home / "store"))

    found = frame.where("subject = 'orders.1' AND seq >= 10 AND seq < 20").collect()
    assert [(row.seq, row.subject) for row in found] == [(seq, "orders.1") for seq in (10, 13, 16, 19)]


def test_a_streaming_query_reads_in_bulk(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    options = {
        "servers": f"nats://127.0.0.1:{server.port}",
        "stream": "ORDERS",
        "startingOffsets": "earliest",
        "readMode": "bulk",
        "maxRowsPerTrigger": "1000",
    }
    source = spark.readStream.format("jetstream").options(**options).load()
    writer = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))

    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    assert spark.read.parquet(str(tmp_path / "out")).count() == ROWS - 1


def test_a_streaming_query_of_a_directory_is_refused(spark: SparkSession, home: Path) -> None:
    from pyspark.errors import PySparkException

    source = (
        spark.readStream.format("jetstream").option("stream", "ORDERS").option("path", str(home / "store"))
    )

    with pytest.raises(PySparkException, match="option path is not allowed in a streaming read"):
        source.load().writeStream.format("noop").start().awaitTermination()


def test_a_directory_is_archived(
    spark: SparkSession, server: ServerProcess, home: Path, tmp_path: Path
) -> None:
    options = parse_options({"path": str(home / "store"), "stream": "ORDERS"})

    files = archive(spark, Lake(str(tmp_path)), options, 2000)

    assert sum(file.rows for file in files) == ROWS - 1
    assert spark.read.parquet(str(tmp_path)).count() == ROWS - 1

"""`pyjs-pipeline archive` in the shared Spark: tables of a lake, and requirements that a worker lacks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.conftest import Filler
from spark.tests.support.archived import archived
from tests.conformance.harness.process import ServerProcess

from pyjs_spark.cli.own_spark import worker_error
from pyjs_spark.errors import DataLoss
from pyjs_spark.lake import lakes
from pyjs_spark.lake.lakes import AT_ONCE, Lake
from pyjs_spark.lake.watch import Done, Watch
from pyjs_spark.options.reading import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_archive_from_an_empty_folder_to_a_checked_table_of_a_lake(
    command: Callable[..., tuple[int, str, str]],
    server: ServerProcess,
    filler: Filler,
    tmp_path: Path,
    kind: str,
) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    filler.create()
    filler.fill(12)
    address, lake = f"nats://127.0.0.1:{server.port}", tmp_path / "lake"
    argv = [filler.name, str(lake), "--format", kind, "-s", address, "--rows-per-file", "5"]

    first = command("archive", *argv)
    again = command("archive", *argv)
    status = command("status", *argv, "--json")

    assert first == (0, f"{filler.name}: 3 files, 12 rows, next sequence 13\n", "")
    assert again == (0, "nothing new\n", "")
    (said,) = json.loads(status[1])["streams"]
    assert (said["files"], said["next"], said["lag"]) == (3, 13, 0)
    if kind == "delta":
        import deltalake

        table = deltalake.DeltaTable(f"{lake}/{filler.name}").to_pyarrow_table()
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("pyjs", type="sql", uri=f"sqlite:///{lake}/catalog.db")
        table = catalog.load_table(("jetstream", filler.name)).scan().to_arrow()
    assert sorted(table.column("seq").to_pylist()) == list(range(1, 13))
    assert sorted(int(data) for data in table.column("data").to_pylist()) == list(range(1, 13))


def test_an_archive_that_begins_while_another_one_writes_leaves_its_ranges_alone(
    spark: SparkSession, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(AT_ONCE + 4)
    options = parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})
    two = Lake(str(tmp_path / "two"), "parquet")

    class Between(Watch):
        def done(self, what: Done) -> None:
            lakes.archive(spark, two, options, 7)

    one = Lake(str(tmp_path / "one"), "parquet")
    written = lakes.archive(spark, one, options, 1, Between("archive"))

    assert [(file.low, file.high) for file in written] == [(seq, seq + 1) for seq in range(1, AT_ONCE + 5)]
    assert archived(one, filler.name) == archived(two, filler.name) == list(range(1, AT_ONCE + 5))


def test_the_loss_that_a_worker_meets_is_told_as_such(
    spark: SparkSession, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(6)
    options = parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})
    lake = Lake(str(tmp_path))
    ranges = lakes.plan(lake, options, 5)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=4)

    with pytest.raises(Exception, match="DataLoss") as caught:
        lakes.write(spark, lake, options, ranges)

    assert isinstance(found := worker_error(str(caught.value)), DataLoss)
    assert str(found).startswith(f"stream {filler.name}: ")

"""`pyjs-pipeline archive` as a user runs it: from an empty folder to a table that is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conformance.harness.process import ServerProcess
from tests.spark.conftest import Filler
from tests.style.tree import ROOT

from pyjs_spark.errors import DataLoss
from pyjs_spark.options import parse_options
from pyjs_spark.pipelines import archive
from pyjs_spark.pipelines.own_spark import worker_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pipeline(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with a Spark of its own."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "pyjs_spark.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=env)


def test_an_archive_from_an_empty_folder_to_a_checked_table(
    spark: SparkSession, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)
    lake, file = tmp_path / "lake", tmp_path / "pipeline.toml"
    file.write_text(
        f'[pipeline]\nkind = "archive"\nstream = "{filler.name}"\ntarget = "{lake}"\nrows_per_file = 5\n'
        f'master = "local[2]"\n[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
        '[spark]\n"spark.driver.memory" = "512m"\n'
    )

    status, plot = tmp_path / "status.json", tmp_path / "run.svg"

    first = pipeline("run", "-c", str(file), "--status-file", str(status), "--plot", str(plot))
    said = json.loads(status.read_text())
    again = pipeline("run", "-c", str(file))

    assert (first.returncode, first.stdout) == (0, f"{filler.name}: 3 files, 12 rows, next sequence 13\n"), (
        first.stderr
    )
    assert (again.returncode, again.stdout, again.stderr) == (0, "nothing new\n", "")
    assert (said["state"], said["rows"], said["lag"]) == ("done", 12, {filler.name: 0})
    assert said["batches"] == {"done": 3, "planned": 3}
    assert plot.read_text().count("<polyline") == 2
    table = spark.read.parquet(str(lake))
    assert table.selectExpr("count(DISTINCT seq)", "max(seq)", "min(stream)").first() == (12, 12, filler.name)
    assert sorted(int(row.data) for row in table.select("data").collect()) == list(range(1, 13))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_archive_from_an_empty_folder_to_a_checked_table_of_a_lake(
    server: ServerProcess, filler: Filler, tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    filler.create()
    filler.fill(12)
    address, lake = f"nats://127.0.0.1:{server.port}", tmp_path / "lake"
    argv = [filler.name, str(lake), "--format", kind, "-s", address, "--rows-per-file", "5"]
    local = ["--master", "local[1]"]

    first = pipeline("archive", *argv, *local)
    again = pipeline("archive", *argv, *local)
    status = pipeline("status", *argv, "--json")

    assert (first.returncode, first.stdout) == (0, f"{filler.name}: 3 files, 12 rows, next sequence 13\n"), (
        first.stderr
    )
    assert (again.returncode, again.stdout) == (0, "nothing new\n"), again.stderr
    (said,) = json.loads(status.stdout)["streams"]
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


def test_the_loss_that_a_worker_meets_is_told_as_such(
    spark: SparkSession, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(6)
    options = parse_options({"stream": filler.name, "servers": f"nats://127.0.0.1:{server.port}"})
    ranges = archive.plan(str(tmp_path), options, 5)
    filler.api(f"STREAM.PURGE.{filler.name}", seq=4)

    with pytest.raises(Exception, match="DataLoss") as caught:
        archive.write(spark, str(tmp_path), options, ranges)

    assert isinstance(found := worker_error(str(caught.value)), DataLoss)
    assert str(found).startswith(f"stream {filler.name}: ")

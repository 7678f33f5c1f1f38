"""`pyjs-pipeline archive` as a user runs it: from an empty folder to a table that is checked."""

from __future__ import annotations

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

    first = pipeline("run", "-c", str(file))
    again = pipeline("run", "-c", str(file))

    assert (first.returncode, first.stdout) == (0, f"{filler.name}: 3 files, 12 rows, next sequence 13\n"), (
        first.stderr
    )
    assert (again.returncode, again.stdout, again.stderr) == (0, "nothing new\n", "")
    table = spark.read.parquet(str(lake))
    assert table.selectExpr("count(DISTINCT seq)", "max(seq)", "min(stream)").first() == (12, 12, filler.name)
    assert sorted(int(row.data) for row in table.select("data").collect()) == list(range(1, 13))


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

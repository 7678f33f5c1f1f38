"""`pyjs-pipeline archive`, used as a user would: from an empty folder to a checked table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark.tests.conftest import Filler
from spark.tests.jvm.conftest import IS_MATRIX
from spark.tests.support.java import QUICK_JAVA
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess


def pipeline(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, with its own Spark."""
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-m", "pyjs_spark.cli", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=env)


@pytest.mark.skipif(not IS_MATRIX, reason="test_continuous.py shows the same: make spark-matrix runs it")
def test_an_archive_from_an_empty_folder_to_a_checked_table(
    server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    filler.create()
    filler.fill(12)
    lake, file = tmp_path / "lake", tmp_path / "pipeline.toml"
    file.write_text(
        f'[pipeline]\nkind = "archive"\nstream = "{filler.name}"\ntarget = "{lake}"\nrows_per_file = 5\n'
        f'master = "local[2]"\n[options]\nservers = "nats://127.0.0.1:{server.port}"\n'
        f'[spark]\n"spark.driver.memory" = "512m"\n"spark.driver.extraJavaOptions" = "{QUICK_JAVA}"\n'
    )

    status = tmp_path / "status.json"

    first = pipeline("run", "-c", str(file), "--status-file", str(status))
    said = json.loads(status.read_text())
    again = pipeline("run", "-c", str(file))

    assert (first.returncode, first.stdout) == (0, f"{filler.name}: 3 files, 12 rows, next sequence 13\n"), (
        first.stderr
    )
    assert (again.returncode, again.stdout, again.stderr) == (0, "nothing new\n", "")
    assert (said["state"], said["rows"], said["lag"]) == ("done", 12, {filler.name: 0})
    assert said["batches"] == {"done": 3, "planned": 3}
    table = dataset.dataset(lake, partitioning="hive").to_table()
    assert sorted(table["seq"].to_pylist()) == list(range(1, 13))
    assert sorted(int(data) for data in table["data"].to_pylist()) == list(range(1, 13))
    assert {*table["stream"].to_pylist()} == {filler.name}

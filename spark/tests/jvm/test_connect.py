"""The jobs over Spark Connect, where there is no SparkContext: a server in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark.tests.conftest import Filler
from spark.tests.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
JOBS = Path(__file__).with_name("connect_jobs.py")


def test_every_job_works_over_spark_connect(server: ServerProcess, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(12)
    again = f"{filler.name}AGAIN"
    filler.raw.api(f"STREAM.CREATE.{again}", name=again, subjects=[f"again.{filler.name.lower()}.>"])
    argv = [sys.executable, str(JOBS), f"nats://127.0.0.1:{server.port}", filler.name, str(tmp_path)]

    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "PYTHONPATH": PYTHONPATH},
    )

    filler.raw.api(f"STREAM.DELETE.{again}")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines == [
        "parquet 12 []", "delta 12 []", "iceberg 12 []", "replay 12", "replay 0", "latest 3 gaps 0",
    ]  # fmt: skip

"""The jobs over Spark Connect, without a SparkContext: the server is a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark.tests.conftest import Filler
from spark.tests.jvm.conftest import IS_MATRIX
from spark.tests.support.java import QUICK_JAVA, QUICK_PLANS
from spark.tests.support.places import PYTHONPATH
from tests.conformance.harness.process import ServerProcess

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
JOBS = Path(__file__).with_name("connect_jobs.py")


def test_every_job_works_over_spark_connect(server: ServerProcess, filler: Filler, tmp_path: Path) -> None:
    filler.create()
    filler.fill(12)
    again = f"{filler.name}AGAIN"
    filler.raw.api(f"STREAM.CREATE.{again}", name=again, subjects=[f"again.{filler.name.lower()}.>"])
    letters = f"{filler.name}DLQ"
    filler.raw.api(f"STREAM.CREATE.{letters}", name=letters, subjects=[f"dlq.{letters}"])
    advisory = {"type": "io.nats.jetstream.advisory.v1.terminated", "stream": filler.name, "consumer": "C"}
    told = json.dumps({**advisory, "stream_seq": 3}).encode()
    assert b'"seq"' in filler.raw.request(f"dlq.{letters}".encode(), told)
    settings = {"spark.sql.shuffle.partitions": "2", **({} if IS_MATRIX else QUICK_PLANS)}
    argv = [sys.executable, str(JOBS), f"nats://127.0.0.1:{server.port}", filler.name, str(tmp_path)]
    argv.append(json.dumps(settings))

    env = {
        **os.environ,
        "PYTHONPATH": PYTHONPATH,
        "SPARK_TESTING": "1",  # makes the server listen on a free port
        **({} if IS_MATRIX else {"JAVA_TOOL_OPTIONS": QUICK_JAVA}),
    }
    done = subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=env,
    )

    for name in (again, letters):
        filler.raw.api(f"STREAM.DELETE.{name}")
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines == [
        "parquet 12 []", "delta 12 []", "iceberg 12 []", "replay 12", "replay 0",
        "quality 0   archive: files 3, rows 12, checked 12, missing 0, replaced 0, removed_since 0, lag 0",
        "compact 0 3 files became 1", "compact 0 : 3 rows up to sequence 12",
        f"dlq-report 0 written to {tmp_path}/dead.parquet", "latest 3 gaps 0",
    ]  # fmt: skip

"""A query stopped with 2 cores continues with 4, and with another minPartitions; the story is in restarts.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spark.tests.jvm.conftest import IS_MATRIX
from tests.style.tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.skipif(not IS_MATRIX, reason="a JVM of its own: make spark-matrix runs it")
@pytest.mark.parametrize("server", ["ours", "peer"])
def test_a_query_continues_with_more_cores_and_other_partitions(server: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark.tests.kills.restarts", "--times", "3", "--server", server]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "3 of 3 continued with every message exactly once\n"), (
        done.stderr
    )

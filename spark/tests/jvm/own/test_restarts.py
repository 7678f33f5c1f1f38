"""A query stopped with 2 cores continues with 4, and with another minPartitions; restarts.py describes the trial."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark.tests.jvm.conftest import IS_MATRIX
from tests.style.tree import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not IS_MATRIX, reason="a JVM of its own: make spark-matrix runs it"),
]
# A Python whose first planning process takes longer to start than Spark waits for it.
SLOW_PYTHON = """#!/bin/sh
case "$*" in *streaming_source_runner*)
    [ -e {flag} ] || {{ touch {flag}; sleep 12; }} ;;
esac
exec {python} "$@"
"""


@pytest.mark.parametrize("server", ["ours", "peer"])
def test_a_query_continues_with_more_cores_and_other_partitions(server: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark.tests.kills.restarts", "--times", "3", "--server", server]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "3 of 3 continued with every message exactly once\n"), (
        done.stderr
    )


def test_a_query_whose_python_starts_too_slowly_is_started_again(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text(SLOW_PYTHON.format(flag=tmp_path / "flag", python=sys.executable))
    slow.chmod(0o755)
    command = [sys.executable, "-m", "spark.tests.kills.restarts", "--times", "1"]
    env = {**os.environ, "PYSPARK_PYTHON": str(slow)}

    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)

    assert done.stdout == "1 of 1 continued with every message exactly once\n", done.stderr
    assert [
        json.loads(line)["slow_starts"] for line in done.stderr.splitlines() if '"slow_starts"' in line
    ] == [1]

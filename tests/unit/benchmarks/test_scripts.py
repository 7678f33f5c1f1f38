"""Every benchmark starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SPARK = ("spark_", "bulk_read")  # these need packages that the server's tests do not install
SCRIPTS = sorted(
    path.name
    for path in BENCHMARKS.glob("*.py")
    if "ArgumentParser" in path.read_text() and not path.name.startswith(SPARK)
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_benchmark_tells_its_options(script: str) -> None:
    told = subprocess.run(
        [sys.executable, BENCHMARKS / script, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert "usage:" in told.stdout

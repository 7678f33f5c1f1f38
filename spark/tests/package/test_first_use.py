"""The pure wheel in an empty environment without a compiler: installed by pip, first DataFrame, Spark Connect.

Spark itself is installed with pip (500 MB), so only `make spark-matrix` runs this. test_wheels.py checks the contents
of the wheel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.tests.conftest import Filler, required
from spark.tests.jvm.conftest import IS_MATRIX, lacking
from tests.conformance.harness.process import ServerProcess
from tests.style.tree import ROOT, project_files

MISSING = "" if required("spark") else lacking()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("first use"),
    pytest.mark.skipif(not IS_MATRIX, reason="pip installs 500 MB: make spark-matrix runs it"),
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]
FIRST_S = 60.0  # seconds until the first DataFrame
# A machine with other work is slower, which is no fault of this package.
IS_QUIET = os.getloadavg()[0] < (os.cpu_count() or 1)


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command without a compiler and without access to this tree; return its output."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PYTHONHOME", "SPARK_HOME", "PYSPARK_PYTHON")
    }
    env = clean | {"CC": "false", "CXX": "false"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment with only the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("first")
    for path in project_files():
        if path.is_relative_to(ROOT / "spark" / "src") or path.parent == ROOT / "spark":
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        "dist",
        "./spark",
        cwd=folder,
    )
    run(sys.executable, "-m", "venv", "venv", cwd=folder)
    made = folder / "venv" / "bin" / "python"
    run(made, "-m", "pip", "install", "--quiet", *(folder / "dist").glob("*.whl"), cwd=folder)
    yield made
    shutil.rmtree(folder, ignore_errors=True)


def first_use(python: Path, server: ServerProcess, stream: str, folder: Path, remote: str) -> dict[str, Any]:
    """Run first_use.py with the environment's Python."""
    said = {"servers": f"nats://127.0.0.1:{server.port}", "stream": stream, "remote": remote}
    printed = run(python, ROOT / "spark" / "tests" / "support" / "first_use.py", json.dumps(said), cwd=folder)
    return dict(json.loads(printed.splitlines()[-1]))


def test_the_first_dataframe_comes_within_a_minute(
    python: Path, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    filler.create()
    filler.fill(12)

    found = first_use(python, server, filler.name, tmp_path, "")

    assert (found["rows"], found["copied"], found["again"]) == ([12, 12], 12, 13)
    assert "connect" not in found["kind"]
    assert found["seconds"] < FIRST_S or not IS_QUIET


def test_the_same_over_spark_connect(
    python: Path, server: ServerProcess, filler: Filler, tmp_path: Path
) -> None:
    run(python, "-m", "pip", "install", "--quiet", "pyspark[connect]", cwd=tmp_path)
    filler.create()
    filler.fill(12)

    found = first_use(python, server, filler.name, tmp_path, "local")

    assert (found["rows"], found["copied"], found["again"]) == ([12, 12], 12, 13)
    assert "connect" in found["kind"]

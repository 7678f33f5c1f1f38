"""The two wheels: a pure one that needs no compiler, and one with compiled decoders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from spark.tests.support.places import FAST, SOURCES
from tests.style.tree import ROOT, project_files

from pyjs_spark.version import VERSION

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHECK = """
import sys, pyjs_spark, pyjs_spark.options.reading
from pyjs_spark import fast
from pyjs_spark.decode import hashing
assert not any(name.partition(".")[0] == "pyjs" for name in sys.modules)
print(pyjs_spark.__version__, fast.IS_THERE)
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command without access to this tree; return its output."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Both wheels, built from copies of the files in git; the pure one is built without a compiler."""
    folder = tmp_path_factory.mktemp("wheels")
    for path in project_files():
        if path.is_relative_to(ROOT / "spark"):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", "dist")
    run(*pip, "./spark", cwd=folder, CC="/nonexistent")
    run(*pip, "./spark/fast", cwd=folder, CFLAGS="-O0")
    return sorted((folder / "dist").iterdir())


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
    return folder / "venv" / "bin" / "python"


def test_the_wheel_is_of_plain_python_and_works_without_the_other(wheels: list[Path], python: Path) -> None:
    plain, compiled = wheels
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps")

    run(*pip, plain, cwd=plain.parent)
    alone = run(python, "-c", CHECK, cwd=plain.parent)
    said = run(python.parent / "pyjs-pipeline", "--help", cwd=plain.parent)
    run(*pip, compiled, cwd=plain.parent)
    both = run(python, "-c", CHECK, cwd=plain.parent)

    assert plain.name == f"pyjs_spark-{VERSION}-py3-none-any.whl"
    assert (alone.split(), both.split()) == ([VERSION, "False"], [VERSION, "True"])
    assert "archive" in said


def test_the_wheels_hold_all_that_their_sources_have(wheels: list[Path]) -> None:
    plain, compiled = ({*zipfile.ZipFile(wheel).namelist()} for wheel in wheels)

    assert {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py*")} - plain == {
        path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.pyc")
    }
    assert not [name for name in plain if name.endswith((".so", ".pyx"))]
    modules = {path.stem for path in (FAST / "pyjs_spark_fast").glob("*.pyx")}
    assert {name.split("/")[1].split(".")[0] for name in compiled if name.endswith(".so")} == modules

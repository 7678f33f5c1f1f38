"""Which decoders are used: the compiled ones if they have the package's version, otherwise those in plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from spark.tests.conftest import arrow_or_skip
from spark.tests.support.places import FAST, SOURCES

arrow_or_skip()

SCRIPT = """
from pyjs_spark.read import bulk
from pyjs_spark.write import delivery
from pyjs_spark.decode import hashing
from pyjs_spark.write import publish
from pyjs_spark.read import pull
used = pull.Decoder, bulk.Decoder, delivery.frame_rows, publish.Acks
print(*sorted({each.__module__.partition(".")[0] for each in used}))
"""


def decoders_in(*paths: Path) -> str:
    """Return the packages whose decoders are used with these import paths."""
    env = {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """The package as a zip of its Python files, as --py-files of spark-submit ships it."""
    path = tmp_path / "pyjs_spark.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in (SOURCES / "pyjs_spark").rglob("*.py"):
            archive.write(file, file.relative_to(SOURCES))
    return path


@pytest.fixture
def other_version(tmp_path: Path) -> Path:
    """Compiled decoders of another version."""
    package = tmp_path / "pyjs_spark_fast"
    package.mkdir()
    for file in (FAST / "pyjs_spark_fast").glob("*.so"):
        (package / file.name).symlink_to(file)
    (package / "__init__.py").write_text('VERSION = "0.0.9"\n')
    return tmp_path


def test_a_zip_of_the_python_files_works_without_the_compiled_decoders(shipped: Path) -> None:
    assert decoders_in(shipped) == "pyjs_spark"


def test_the_compiled_decoders_are_used_where_they_are(shipped: Path) -> None:
    assert decoders_in(SOURCES, FAST) == "pyjs_spark_fast"
    assert decoders_in(shipped, FAST) == "pyjs_spark_fast"


def test_compiled_decoders_of_another_version_are_not_used(other_version: Path) -> None:
    assert decoders_in(SOURCES, other_version) == "pyjs_spark"

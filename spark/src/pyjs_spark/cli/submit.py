"""The files that a cluster needs to run a job: this package as a zip, an application, and the line for spark-submit.

The zip holds the Python files alone: `--py-files` carries no compiled code, so workers decode with the pure twin of
the decoder. Spark finds a format by itself only if the package is installed, not if it came with --py-files; so
the application registers it, as `pyjs_spark.session()` does. Workers also need a Python of the same
version with pyarrow: the same environment on all machines, or a shipped one (`--archives`, see docs/guide.md).

Knows no servers and starts nothing.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyjs_spark.errors import OptionError

ZIP = "pyjs_spark.zip"
APPLICATION = "pyjs_pipeline.py"
PACKAGES = ("pyjs_spark", "pyspark_jetstream")
SAME_TIME = (1980, 1, 1, 0, 0, 0)  # so that equal files give equal zips
PIPELINE = '''"""pyjs-pipeline as an application for spark-submit."""

import sys

from pyjs_spark.cli.main import main

sys.exit(main())
'''


def package(folder: str) -> tuple[str, str]:
    """Write the zip and the application into a folder; return their paths."""
    os.makedirs(folder, exist_ok=True)
    path, application = os.path.join(folder, ZIP), os.path.join(folder, APPLICATION)
    source = Path(__file__).parents[2]
    with zipfile.ZipFile(f"{path}.part", "w", zipfile.ZIP_DEFLATED) as made:
        for name in PACKAGES:
            for file in sorted((source / name).rglob("*.py")):
                entry = zipfile.ZipInfo(file.relative_to(source).as_posix(), SAME_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                made.writestr(entry, file.read_bytes())
    os.replace(f"{path}.part", path)
    Path(application).write_text(PIPELINE)
    return path, application


def line(
    master: str, package: str, application: str, argv: Sequence[str], settings: Mapping[str, str]
) -> list[str]:
    """Return the command as a list of words. Raises OptionError if `master` is not a cluster."""
    if master.startswith("local"):
        raise OptionError(
            f"--master {master} is no cluster; name one, such as spark://host:7077, yarn or k8s://host:443"
        )
    conf = {"spark.pyspark.python": sys.executable, **settings}
    words = [_program(), "--master", master, "--py-files", package]
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    return [*words, application, *argv]


def _program() -> str:
    """Return the path of spark-submit that a shell would find here."""
    found = shutil.which("spark-submit")
    spec = importlib.util.find_spec("pyspark")
    if found or spec is None or spec.origin is None:
        return found or "spark-submit"
    return os.path.join(os.path.dirname(spec.origin), "bin", "spark-submit")

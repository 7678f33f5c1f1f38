"""The command submit-args: packs this package, writes an application, and prints a spark-submit line for a job.

The zip contains only the Python files, since `--py-files` cannot transfer compiled code; workers then use the
decoder in plain Python. Without registration, Spark finds a format only in an installed package. A package from
--py-files is not installed, so the application registers the format, as `pyjs_spark.session()` does. Workers also
need a Python of the same version with pyarrow: either all machines have the same environment, or the job transfers
an environment (`--archives`, see docs/guide.md).

This module connects to no server and starts no process.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyjs_spark.errors import OptionError
from pyjs_spark.lake.jobs import MASTER, Job

NAME = "submit-args"
TEXT = "package this for a cluster, and print the line for spark-submit"
ZIP = "pyjs_spark.zip"
APPLICATION = "pyjs_pipeline.py"
PACKAGES = ("pyjs_spark", "pyspark_jetstream")
# timestamp of each file in the zip; fixed, so that equal files give equal zips
SAME_TIME = (1980, 1, 1, 0, 0, 0)
PIPELINE = '''"""pyjs-pipeline as an application for spark-submit."""

import sys

from pyjs_spark.cli.main import main

sys.exit(main())
'''


def package(folder: str) -> tuple[str, str]:
    """Write a zip of this package and an application into a folder, and return their paths."""
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
    """Return the spark-submit command as a list of words. Raises OptionError if `master` is local."""
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
    """Return the path of spark-submit from PATH, or else from the installed pyspark.

    If there is neither, "spark-submit" is returned.
    """
    found = shutil.which("spark-submit")
    spec = importlib.util.find_spec("pyspark")
    if found or spec is None or spec.origin is None:
        return found or "spark-submit"
    return os.path.join(os.path.dirname(spec.origin), "bin", "spark-submit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `submit-args` that the other commands do not have."""
    parser.add_argument("--app", metavar="FILE", help="an application of yours in place of a pipeline")
    parser.add_argument("--to", default=".", metavar="FOLDER", help="where the packaged files are written")


def run(job: Job, said: argparse.Namespace) -> int:
    """Package this program for a cluster, and print the command that submits a job.

    Returns the exit code.
    """
    options = [word for each in said.option for word in ("-o", each)]
    master = said.master or job.master
    if said.config is not None:
        argv = ["run", "-c", os.path.abspath(said.config)]
    else:
        argv = ["archive", said.stream, said.target, "--format", job["format"]]
        argv += ["--rows-per-file", str(job["rows_per_file"])]
    if said.server is not None:
        argv += ["-o", f"servers={said.server}"]
    return _print(said, master, None, [*argv, *options], job.spark)


def run_app(said: argparse.Namespace) -> int:
    """Package this program for a cluster, and print the command that submits the user's application.

    Returns the exit code.

    Raises:
        OptionError: the application does not exist, or a pipeline is given too, or the master is local.
    """
    if said.stream is not None or said.config is not None or said.option or said.server is not None:
        raise OptionError(
            f"--app {said.app} is in place of a pipeline; leave the pipeline and its options out"
        )
    if not os.path.isfile(said.app):
        raise OptionError(f"--app {said.app}: there is no such file")
    return _print(said, said.master or MASTER.default, os.path.abspath(said.app), (), {})


def _print(
    said: argparse.Namespace, master: str, app: str | None, argv: Sequence[str], spark: Mapping[str, str]
) -> int:
    folder = os.path.abspath(said.to)
    line(master, "", "", (), {})  # raises OptionError before any file is written
    path, application = package(folder)
    words = line(master, path, app or application, argv, spark)
    print(json.dumps({"command": words}) if said.json else shlex.join(words))
    return 0

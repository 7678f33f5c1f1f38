"""The command submit-args: packs the files for a cluster, and prints the command that runs a pipeline there."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence

from pyjs_spark.cli import submit
from pyjs_spark.cli.say import print_json
from pyjs_spark.errors import OptionError
from pyjs_spark.lake.jobs import MASTER, Job

NAME = "submit-args"
TEXT = "package this for a cluster, and print the line for spark-submit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command alone."""
    parser.add_argument("--app", metavar="FILE", help="an application of yours in place of a pipeline")
    parser.add_argument("--to", default=".", metavar="FOLDER", help="where the packaged files are written")


def run(job: Job, said: argparse.Namespace) -> int:
    """Print the command that submits a job of any kind."""
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
    """Print the command that submits an application."""
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
    submit.line(master, "", "", (), {})  # reports errors before anything is written
    path, application = submit.package(folder)
    words = submit.line(master, path, app or application, argv, spark)
    if said.json:
        return print_json({"command": words})
    print(shlex.join(words))
    return 0

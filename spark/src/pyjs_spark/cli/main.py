"""The command `pyjs-pipeline`: checks, explains and runs pipelines between streams and lakes.

Results are written to stdout, and each error as one line to stderr. The exit code is 0 after success, 2 if the
command line, a configuration, the credentials, a store directory or the installation is wrong, 3 if messages were
lost, 4 if the server cannot be reached, 5 if `quality` found faults, 130 after SIGINT, 143 after SIGTERM, and 1 after
any other failure. The keys and the output of each kind of job are defined in its module in `lake`. Spark is started
only if the command has work for it.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import NoReturn

from pyjs_spark.cli import config, submit
from pyjs_spark.cli.config import KINDS
from pyjs_spark.cli.own_spark import own_spark
from pyjs_spark.datasource import sessions
from pyjs_spark.errors import OptionError, SparkError
from pyjs_spark.exits import FAILED, INTERRUPTED, LOST, REFUSED, TERMINATED, UNREACHABLE
from pyjs_spark.lake.jobs import Job, Outcome, Session
from pyjs_spark.lake.watch import Watch
from pyjs_spark.options import values as option_values

CODES: Mapping[str, int] = {
    **dict.fromkeys(("OptionError", "SchemaError", "StreamMissing", "SparkMissing"), REFUSED),
    **dict.fromkeys(("AccessDenied", "BadCredentials"), REFUSED),
    **dict.fromkeys(("BadStore", "StoreKeyNeeded", "BulkRefused"), REFUSED),
    "DataLoss": LOST,
    **dict.fromkeys(("ServerUnreachable", "ConnectionLost", "RequestTimeout", "NoResponders"), UNREACHABLE),
    **dict.fromkeys(("ReadStalled", "NotAcknowledged"), UNREACHABLE),
}
OF_FILES = {  # commands for any pipeline that a file defines, or for an archive
    "validate": "check a pipeline without asking a server",
    "explain": "show what the next run would read and write",
    "status": "show the progress of a pipeline, and what is left to do",
    submit.NAME: submit.TEXT,
}
COMMANDS: Mapping[str, str] = {
    **{name: kind.text for name, kind in KINDS.items()},
    "run": "run the pipeline of a file",
    **OF_FILES,
}
PROGRAM = "pyjs-pipeline"
EVERY = "1m"  # the default interval of --continuous


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = sys.argv[1:] if argv is None else argv
    try:
        with _ended_by_sigterm():
            _check_command(given)
            return _act(_parser().parse_args(given))
    except SparkError as error:
        return _fail(str(error), CODES.get(type(error).__name__, FAILED))
    except OSError as error:
        return _fail(str(error), FAILED)
    except KeyboardInterrupt as error:
        code = TERMINATED if isinstance(error, Terminated) else INTERRUPTED
        return _fail("interrupted; what is written stays, the next run goes on after it", code)


def _fail(text: str, code: int) -> int:
    """Print an error as one line on stderr; return the exit code."""
    print(f"{PROGRAM}: {' '.join(text.split())}", file=sys.stderr)
    return code


class Terminated(KeyboardInterrupt):
    """Raised when SIGTERM arrives; it ends a command as Ctrl-C does."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Raise Terminated if SIGTERM arrives in the `with` block, so that status files and Spark are closed.

    Outside the main thread, which alone receives signals, nothing is changed.
    """

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not in the main thread; only that one receives signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _act(said: argparse.Namespace) -> int:
    """Run the command once, or repeatedly with --continuous, and return the exit code."""
    if hasattr(said, "every"):
        said.every = _seconds(said)
    if getattr(said, "app", None) is not None:
        return submit.run_app(said)
    job = job_of(said)
    if said.command == submit.NAME:
        return submit.run(job, said)
    _check_watched(job, said)
    command = "explain" if getattr(said, "dry_run", False) else said.command
    is_again = getattr(said, "continuous", False) and command != "explain"
    while (code := _show(_done(job, command, said), said)) == 0 and is_again:
        time.sleep(said.every)
    return code


def _done(job: Job, command: str, said: argparse.Namespace) -> Outcome:
    """Run a command, and return its outcome.

    Every command except `validate`, `explain` and `status` runs the job.

    Raises:
        OptionError: the command is `status`, and this kind of job stores no progress.
    """
    kind = job.kind
    if command == "validate":
        return kind.validate(job)
    if command == "explain":
        return kind.explain(job)
    if command == "status":
        if kind.status is None:
            raise OptionError(f"status shows stored progress; {kind.name} stores none")
        return kind.status(job)
    sessions.check_installed(job.master)
    start = partial(own_spark, f"{PROGRAM} {kind.name}", job.master, job.spark)
    with Watch(kind.name, file=getattr(said, "status_file", None)) as watch:
        return kind.run(job, Session(start, watch))


def _show(outcome: Outcome, said: argparse.Namespace) -> int:
    print(json.dumps(outcome.said) if said.json else "\n".join(outcome.lines))
    return _fail(outcome.trouble, outcome.code) if outcome.code else 0


# -- the command line -----------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises OptionError where argparse would print the usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; {self.prog} --help shows the usage")


def _check_command(given: Sequence[str]) -> None:
    """Raise OptionError if the command is missing or unknown."""
    first = given[0] if given else ""
    if not first:
        raise OptionError(f"name a command: {', '.join(COMMANDS)}")
    if not first.startswith("-"):
        config.refuse_unknown([first], tuple(COMMANDS), "command")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(PROGRAM, description="Pipelines between JetStream streams and lakes, on Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in COMMANDS.items():
        each = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        each.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE")
        each.add_argument("-s", "--server", metavar="URL", help="comma list; default nats://127.0.0.1:4222")
        each.add_argument("--json", action="store_true", help="print JSON")
        if name not in KINDS:
            each.add_argument("-c", "--config", metavar="FILE", help="a TOML file", required=name == "run")
        if name in KINDS:
            KINDS[name].add_arguments(each)
        elif name in OF_FILES:
            KINDS["archive"].add_arguments(each)
        if name == submit.NAME:
            submit.add_arguments(each)
        if name not in OF_FILES:
            _add_running(each)
        if name == "run" or (name in KINDS and KINDS[name].is_watched):
            each.add_argument(
                "--status-file", metavar="FILE", help="write the progress to FILE as JSON, again and again"
            )
    return parser


def _add_running(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for repeated runs."""
    often = parser.add_mutually_exclusive_group()
    often.add_argument("--once", action="store_true", help="process what there is, then exit (the default)")
    often.add_argument("--continuous", action="store_true", help="repeat until interrupted")
    parser.add_argument("--every", metavar="TIME", help="the interval of --continuous; default 1m")
    parser.add_argument("--dry-run", action="store_true", help="show what a run would do; change nothing")


def _check_watched(job: Job, said: argparse.Namespace) -> None:
    """Raise OptionError if --status-file is given for a kind of job that has no status file."""
    if getattr(said, "status_file", None) is not None and not job.kind.is_watched:
        raise OptionError("--status-file is only for archives; leave it out")


def job_of(said: argparse.Namespace) -> Job:
    """Return the job that the arguments of the command line define, or the job of the file that they name.

    Raises:
        OptionError: an argument or the file is not valid.
    """
    options = _options(said)
    path = getattr(said, "config", None)
    kind = KINDS.get(said.command, KINDS["archive"])
    texts = {key.name: getattr(said, key.name, None) for key in kind.keys}
    given = {name: text for name, text in texts.items() if text is not None}
    if path is None:
        return kind.job(given, options)
    if "stream" in given:
        raise OptionError(f"give a stream and a target, or -c {path}; not both")
    is_submitted = said.command == submit.NAME  # then `--master` selects the cluster
    for name in given:
        if not (is_submitted and name == "master"):
            raise OptionError(f"--{name.replace('_', '-')} cannot be given with -c; set it in {path}")
    return config.from_file(path, options)


def _options(said: argparse.Namespace) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in map(_split, said.option):
        if name.lower() in map(str.lower, options):
            raise OptionError(f"option {name} is given twice; give it once")
        options[name] = value
    if said.server is not None:
        if any(name.lower() == "servers" for name in options):
            raise OptionError("--server and option servers have the same meaning; give only one")
        options["servers"] = said.server
    return options


def _split(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals or not name:
        raise OptionError(f"--option {option}: write it as name=value, such as --option subjects=orders.new")
    return name, value


def _seconds(said: argparse.Namespace) -> float:
    """Return the interval of --continuous in seconds, by default one minute.

    Raises:
        OptionError: --every is invalid, or is given without --continuous.
    """
    if said.every is not None and not said.continuous:
        raise OptionError(
            "--every is the interval of --continuous; give --continuous too, or leave --every out"
        )
    try:
        return option_values.seconds(said.every or EVERY)
    except ValueError as wrong:
        raise OptionError(f"--every {said.every} is not allowed; allowed: {wrong}") from None

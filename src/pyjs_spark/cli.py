"""The command `pyjs-pipeline`: pipelines between streams and lakes, and what there is to know before they run.

What is asked for goes to stdout, every error is one line on stderr. Exit codes: 0 done, 1 failed for another reason,
2 the command line, a configuration or what is installed is wrong, 3 messages were lost, 4 the server cannot be
reached, 5 `quality` found something. Only what writes with Spark needs pyspark and Java, which is started when there
is something to write.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import NoReturn

from pyjs_spark import option_values, sessions
from pyjs_spark.errors import OptionError, SparkError
from pyjs_spark.pipelines import aggregate_command, archive, config, job_kinds, replay_command
from pyjs_spark.pipelines.archive import Written
from pyjs_spark.pipelines.config import Pipeline
from pyjs_spark.pipelines.kinds import Kind
from pyjs_spark.pipelines.own_spark import own_spark
from pyjs_spark.pipelines.progress import Planned, Progress, planned, progress
from pyjs_spark.pipelines.say import (
    FAILED,
    LOST,
    PROGRAM,
    REFUSED,
    UNREACHABLE,
    fail,
    print_json,
    print_table,
)
from pyjs_spark.ranges import ReadRange

CODES: Mapping[str, int] = {
    **dict.fromkeys(("OptionError", "SchemaError", "StreamMissing", "SparkMissing"), REFUSED),
    **dict.fromkeys(("AccessDenied", "BadCredentials"), REFUSED),
    "DataLoss": LOST,
    **dict.fromkeys(("ServerUnreachable", "ConnectionLost", "RequestTimeout", "NoResponders"), UNREACHABLE),
    "ReadStalled": UNREACHABLE,
}
LATER = (*config.KINDS_LATER, "submit-args")
SHOWN = 20  # files that `explain` lists; --json has all


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = sys.argv[1:] if argv is None else argv
    try:
        _check_command(given)
        return _act(_parser().parse_args(given))
    except SparkError as error:
        return fail(str(error), CODES.get(type(error).__name__, FAILED))
    except OSError as error:
        return fail(str(error), FAILED)
    except KeyboardInterrupt:
        return fail("interrupted; what is written stays, the next run goes on behind it", 130)


def _act(said: argparse.Namespace) -> int:
    """Do what was asked for: once, or again and again."""
    if hasattr(said, "every"):
        said.every = _seconds(said.every)
    verb = "explain" if getattr(said, "dry_run", False) else said.command
    kind = _kind(said)
    if kind is None:
        run = partial(COMMANDS[verb][0], _pipeline(said), said)
    else:
        run = partial(kind.verb(verb), _of_kind(kind, said), said)
    is_again = getattr(said, "continuous", False) and verb != "explain" and not (kind and kind.is_query)
    while (code := run()) == 0 and is_again:
        time.sleep(said.every)
    return code


# -- the command line -----------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and leave."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; {self.prog} --help shows how it is written")


def _check_command(given: Sequence[str]) -> None:
    """Say more than argparse does about a command that is not there."""
    first = given[0] if given else ""
    if first in LATER:
        raise OptionError(f"{first} is not there yet; there are {', '.join(COMMANDS)}")
    if not first:
        raise OptionError(f"name a command: {', '.join(COMMANDS)}")
    if not first.startswith("-"):
        config.refuse_unknown([first], tuple(COMMANDS), "command")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(PROGRAM, description="Pipelines between JetStream streams and lakes, on Spark.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, text) in COMMANDS.items():
        each = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        each.add_argument("-o", "--option", action="append", default=[], metavar="NAME=VALUE")
        each.add_argument("--json", action="store_true", help="print JSON")
        if name in KINDS:
            each.add_argument(
                "-s", "--server", metavar="URL", help="comma list; default nats://127.0.0.1:4222"
            )
            KINDS[name].add_arguments(each)
        elif name != "archive":
            each.add_argument("-c", "--config", metavar="FILE", help="a TOML file", required=name == "run")
        if name not in ("run", *KINDS):
            _add_pipeline(each, is_needed=name == "archive")
        if name in ("archive", "run", *KINDS):
            _add_running(each)
    return parser


def _add_running(parser: argparse.ArgumentParser) -> None:
    """Add how often a pipeline runs."""
    often = parser.add_mutually_exclusive_group()
    often.add_argument("--once", action="store_true", help="what there is, then end: the default")
    often.add_argument("--continuous", action="store_true", help="go on until it is interrupted")
    parser.add_argument(
        "--every", metavar="TIME", default="1m", help="how often --continuous looks; default 1m"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what a run would do; change nothing")


def _add_pipeline(parser: argparse.ArgumentParser, *, is_needed: bool) -> None:
    """Add what makes a pipeline without a file."""
    count = None if is_needed else "?"
    parser.add_argument("stream", nargs=count, help="name, comma list, or pattern with *")
    parser.add_argument("target", nargs=count, help="folder or URI of the archive")
    parser.add_argument("-s", "--server", metavar="URL", help="comma list; default nats://127.0.0.1:4222")
    parser.add_argument("--rows-per-file", type=int, default=config.ROWS_PER_FILE, metavar="N")
    parser.add_argument("--master", default=config.MASTER, help="where Spark runs; default local[*]")


def _kind(said: argparse.Namespace) -> Kind | None:
    """Return the kind of pipeline that is asked for, None for those of archives."""
    path = getattr(said, "config", None)
    if path is None:
        return KINDS.get(said.command)
    if getattr(said, "stream", None) is not None:
        raise OptionError(f"give a stream and a target, or -c {path}; not both")
    return KINDS.get(config.kind_of(path))


def _of_kind(kind: Kind, said: argparse.Namespace) -> object:
    """Return the pipeline of a kind that has modules of its own. Raises OptionError."""
    options = _options(said)
    path = getattr(said, "config", None)
    if path is None:
        return kind.from_arguments(said, options)
    return config.named(path, partial(kind.from_tables, config.tables_of(path), options))


def _options(said: argparse.Namespace) -> dict[str, str]:
    options = dict(_split(each) for each in said.option)
    server = getattr(said, "server", None)
    if server is not None:
        if any(name.lower() == "servers" for name in options):
            raise OptionError("--server and option servers say the same thing twice; give one")
        options["servers"] = server
    return options


def _seconds(said: str) -> float:
    try:
        return option_values.seconds(said)
    except ValueError as wrong:
        raise OptionError(f"--every {said} is not allowed; allowed: {wrong}") from None


def _pipeline(said: argparse.Namespace) -> Pipeline:
    """Return what the command line asks for. Raises OptionError."""
    options = _options(said)
    path, stream = getattr(said, "config", None), getattr(said, "stream", None)
    if path is not None:
        return config.from_file(path, options)
    if stream is None or said.target is None:
        raise OptionError("name a stream and a target, or give -c FILE")
    return config.make(stream, said.target, options, said.rows_per_file, said.master)


def _split(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not equals or not name:
        raise OptionError(f"--option {option}: write it as name=value, such as --option subjects=orders.new")
    return name, value


# -- commands -------------------------------------------------------------------------------------------------------


def _validate(pipeline: Pipeline, said: argparse.Namespace) -> int:
    streams = ", ".join(pipeline.options.streams)
    if said.json:
        return print_json(
            {"kind": pipeline.kind, "streams": list(pipeline.options.streams), "is_valid": True}
        )
    print(f"valid: {pipeline.kind} of {streams} to {pipeline.target}; no server was asked")
    return 0


def _explain(pipeline: Pipeline, said: argparse.Namespace) -> int:
    holdings = archive.look(pipeline.target, pipeline.options)
    ranges = archive.lacking(pipeline.target, pipeline.options, holdings, pipeline.rows_per_file)
    files = planned(holdings, ranges)
    total = {"files": len(files), "rows": sum(each.rows for each in files)}
    total["bytes"] = sum(each.size for each in files)
    if said.json:
        return print_json({"ranges": [asdict(each) for each in files], **total})
    print_table(("stream", "first", "last", "rows about", "bytes about"), _plan_lines(files[:SHOWN]))
    if len(files) > SHOWN:
        print(f"... and {len(files) - SHOWN} more")
    filtered = ", before the subject filter" if pipeline.options.subjects else ""
    print(f"{total['files']} ranges, about {total['rows']} rows and {total['bytes']} bytes{filtered}")
    return 0


def _plan_lines(files: Iterable[Planned]) -> list[tuple[object, ...]]:
    return [(each.stream, each.low, each.high - 1, each.rows, each.size) for each in files]


def _status(pipeline: Pipeline, said: argparse.Namespace) -> int:
    found = [progress(holding) for holding in archive.look(pipeline.target, pipeline.options)]
    troubles = [text for each in found for text in _troubles(each)]
    if said.json:
        print_json({"streams": [asdict(each) for each in found]})
    else:
        cells = [(each.stream, each.files, each.next, each.last, each.lag) for each in found]
        print_table(("stream", "files", "next", "last in stream", "lag"), cells)
    is_loss = bool(troubles) and pipeline.options.fail_on_data_loss
    if is_loss:
        return fail("; ".join(troubles), LOST)
    for text in () if said.json else troubles:
        print(text)
    return 0


def _troubles(each: Progress) -> list[str]:
    if each.other:
        return [f"stream {each.stream}: the archive is of another one, which was created at {each.other}"]
    return [
        f"stream {each.stream}: messages {low} to {high - 1} were removed before they were archived"
        for low, high in each.lost
    ]


def _archive(pipeline: Pipeline, said: argparse.Namespace) -> int:
    sessions.check_installed()
    # Planned before Spark starts: what is wrong is told at once, and what is nothing to do costs no JVM.
    ranges = archive.plan(pipeline.target, pipeline.options, pipeline.rows_per_file)
    files = _written(pipeline, ranges) if ranges else []
    if said.json:
        return print_json(
            {"files": [asdict(each) for each in files], "rows": sum(each.rows for each in files)}
        )
    if not files:
        print("nothing new")
    for name in sorted({each.stream for each in ranges}):
        _print_result(name, ranges, files)
    return 0


def _print_result(stream: str, ranges: Iterable[ReadRange], files: Iterable[Written]) -> None:
    own = [each for each in files if f"/stream={archive.quoted(stream)}/" in each.path]
    end = max(each.high for each in ranges if each.stream == stream)
    print(f"{stream}: {len(own)} files, {sum(each.rows for each in own)} rows, next sequence {end}")


def _written(pipeline: Pipeline, ranges: list[ReadRange]) -> list[Written]:
    """Run the tasks in a Spark of our own. Raises what a worker raised, as it was."""
    with own_spark(PROGRAM, pipeline.master, pipeline.spark) as spark:
        return archive.write(spark, pipeline.target, pipeline.options, ranges)


Command = Callable[[Pipeline, argparse.Namespace], int]
KINDS: dict[str, Kind] = {
    "replay": replay_command.KIND,
    "aggregate": aggregate_command.KIND,
    **{name: job_kinds.as_kind(kind) for name, kind in job_kinds.KINDS.items()},
}
COMMANDS: dict[str, tuple[Command, str]] = {
    "archive": (_archive, "write what is new in streams to Parquet files"),
    **{name: (_archive, kind.text) for name, kind in KINDS.items()},  # their verbs are the kind's own
    "run": (_archive, "run the pipeline of a file"),
    "validate": (_validate, "check a pipeline without asking a server"),
    "explain": (_explain, "show what the next run would read and write"),
    "status": (_status, "show how far a pipeline is, and what it lacks"),
}

if __name__ == "__main__":
    sys.exit(main())

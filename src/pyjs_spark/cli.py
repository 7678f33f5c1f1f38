"""The command `pyjs-pipeline`: pipelines between streams and lakes, and what there is to know before they run.

What is asked for goes to stdout, every error is one line on stderr. Exit codes: 0 done, 1 failed for another reason,
2 the command line, a configuration or what is installed is wrong, 3 messages were lost, 4 the server cannot be
reached. Only `archive` and `run` need pyspark and Java; Spark is started when there is something to write.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from pyjs_spark import errors, sessions
from pyjs_spark.errors import OptionError, SparkError
from pyjs_spark.pipelines import archive, config
from pyjs_spark.pipelines.archive import Written
from pyjs_spark.pipelines.config import Pipeline
from pyjs_spark.pipelines.progress import Planned, Progress, planned, progress
from pyjs_spark.ranges import ReadRange

PROGRAM = "pyjs-pipeline"
FAILED, REFUSED, LOST, UNREACHABLE = 1, 2, 3, 4
CODES: Mapping[str, int] = {
    **dict.fromkeys(("OptionError", "SchemaError", "StreamMissing", "SparkMissing"), REFUSED),
    **dict.fromkeys(("AccessDenied", "BadCredentials"), REFUSED),
    "DataLoss": LOST,
    **dict.fromkeys(("ServerUnreachable", "ConnectionLost", "RequestTimeout", "NoResponders"), UNREACHABLE),
    "ReadStalled": UNREACHABLE,
}
LATER = (*config.KINDS_LATER, "submit-args")
SHOWN = 20  # files that `explain` lists; --json has all
WORKER_ERROR = re.compile(r"pyjs_spark\.errors\.(\w+): (.+)")


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = sys.argv[1:] if argv is None else argv
    try:
        _check_command(given)
        said = _parser().parse_args(given)
        pipeline = _pipeline(said)
        return COMMANDS[said.command][0](pipeline, said)
    except SparkError as error:
        return _fail(str(error), CODES.get(type(error).__name__, FAILED))
    except OSError as error:
        return _fail(str(error), FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted; what is written stays, the next run goes on behind it", 130)


def _fail(text: str, code: int) -> int:
    print(f"{PROGRAM}: {' '.join(text.split())}", file=sys.stderr)
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
        if name != "archive":
            each.add_argument("-c", "--config", metavar="FILE", help="a TOML file", required=name == "run")
        if name != "run":
            _add_pipeline(each, is_needed=name == "archive")
    return parser


def _add_pipeline(parser: argparse.ArgumentParser, *, is_needed: bool) -> None:
    """Add what makes a pipeline without a file."""
    count = None if is_needed else "?"
    parser.add_argument("stream", nargs=count, help="name, comma list, or pattern with *")
    parser.add_argument("target", nargs=count, help="folder or URI of the archive")
    parser.add_argument("-s", "--server", metavar="URL", help="comma list; default nats://127.0.0.1:4222")
    parser.add_argument("--rows-per-file", type=int, default=config.ROWS_PER_FILE, metavar="N")
    parser.add_argument("--master", default=config.MASTER, help="where Spark runs; default local[*]")


def _pipeline(said: argparse.Namespace) -> Pipeline:
    """Return what the command line asks for. Raises OptionError."""
    options = dict(_split(each) for each in said.option)
    path, stream = getattr(said, "config", None), getattr(said, "stream", None)
    server = getattr(said, "server", None)
    if server is not None:
        if any(name.lower() == "servers" for name in options):
            raise OptionError("--server and option servers say the same thing twice; give one")
        options["servers"] = server
    if path is not None:
        if stream is not None:
            raise OptionError(f"give a stream and a target, or -c {path}; not both")
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
        return _print_json(
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
        return _print_json({"ranges": [asdict(each) for each in files], **total})
    _print_table(("stream", "first", "last", "rows about", "bytes about"), _plan_lines(files[:SHOWN]))
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
        _print_json({"streams": [asdict(each) for each in found]})
    else:
        cells = [(each.stream, each.files, each.next, each.last, each.lag) for each in found]
        _print_table(("stream", "files", "next", "last in stream", "lag"), cells)
    is_loss = bool(troubles) and pipeline.options.fail_on_data_loss
    if is_loss:
        return _fail("; ".join(troubles), LOST)
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
        return _print_json(
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
    from pyjs_spark import session

    # Errors of workers are told here, in one line; Spark would tell each with its stack, three times.
    quiet = {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": sys.stderr.isatty()}
    spark = None
    try:
        spark = session(PROGRAM, pipeline.master, **{**quiet, **pipeline.spark})
        return archive.write(spark, pipeline.target, pipeline.options, ranges)
    except SparkError:
        raise
    except Exception as error:  # Py4JJavaError and its kin: the worker's error stands in the text
        raise worker_error(str(error)) from error
    finally:
        if spark is not None:
            spark.stop()


def worker_error(text: str) -> SparkError:
    """Return the error of a worker that Spark told with its own text around."""
    match = WORKER_ERROR.search(text)
    kind = getattr(errors, match[1], None) if match else None
    if match is None or kind is None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return SparkError(f"Spark failed: {' '.join(lines[:2]) or 'without a word'}")
    if kind is errors.ApiError:
        return SparkError(match[2])
    found = kind(match[2])
    assert isinstance(found, SparkError)
    return found


def _print_json(value: Mapping[str, Any]) -> int:
    print(json.dumps(value))
    return 0


def _print_table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    """Print aligned columns: the first to the left, numbers to the right."""
    cells = [list(head), *([str(cell) for cell in line] for line in lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    for line in cells:
        padded = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join([line[0].ljust(widths[0]), *padded[1:]]).rstrip())


Command = Callable[[Pipeline, argparse.Namespace], int]
COMMANDS: dict[str, tuple[Command, str]] = {
    "archive": (_archive, "write what is new in streams to Parquet files"),
    "run": (_archive, "run the pipeline of a file"),
    "validate": (_validate, "check a pipeline without asking a server"),
    "explain": (_explain, "show what the next run would read and write"),
    "status": (_status, "show what an archive holds and what it lacks"),
}

if __name__ == "__main__":
    sys.exit(main())

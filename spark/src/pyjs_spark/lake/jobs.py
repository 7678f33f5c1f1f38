"""Jobs of `pyjs-pipeline`: each has one table of keys, with values from a TOML file or from the command line.

Each kind of job is a JobKind; cli/config.py lists all of them. In a file, the keys of a job are in the section
[pipeline]; on the command line they are flags (--name), or positional arguments. All values are handled as text and
parsed like options, so that files and the command line refuse the same values with the same error messages.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyjs_spark.errors import OptionError
from pyjs_spark.lake.watch import Watch
from pyjs_spark.options import uses
from pyjs_spark.options import values as option_values
from pyjs_spark.options.reading import parse_options
from pyjs_spark.read.plan import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_SERVERS = frozenset(name.lower() for name in uses.CONNECTION | uses.FILES | uses.PORTIONS)
Said = Mapping[str, Any]  # the text of each key, or a list of texts for a key that may be given several times


@dataclass(frozen=True, slots=True)
class Key:
    """One key in the configuration of a kind of job."""

    name: str  # as in files; on the command line with dashes instead of underscores
    text: str
    parse: Callable[[str], object] = option_values.text
    default: Any = None
    is_positional: bool = False
    is_needed: bool = False
    is_list: bool = False  # whether the key may be given several times, each time with one value

    @property
    def is_flag(self) -> bool:
        """Return whether the key is a flag without a value on the command line."""
        return self.parse is option_values.boolean

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add the key to the parser of a command.

        No key is required by the parser, since values_of() reports missing keys.
        """
        flag = "--" + self.name.replace("_", "-")
        if self.is_positional:
            parser.add_argument(self.name, nargs="?", help=self.text)
        elif self.is_flag:
            parser.add_argument(flag, action="store_const", const="true", help=self.text)
        else:
            action = "append" if self.is_list else "store"
            parser.add_argument(flag, action=action, metavar="VALUE", help=self.text)

    def value(self, said: object) -> object:
        """Return the parsed value of the key.

        Raises:
            OptionError: the value is not allowed.
        """
        if self.is_list and isinstance(said, list):
            return tuple(self.value(each) for each in said)
        try:
            return self.parse(str(said))
        except ValueError as wrong:
            raise OptionError(f"{self.name}={said} is not allowed; allowed: {wrong}") from None


def values_of(kind: str, keys: Iterable[Key], said: Said) -> dict[str, Any]:
    """Return the parsed value of each key, or its default.

    Raises:
        OptionError: a needed key is missing, or a value is not allowed.
    """
    values: dict[str, Any] = {}
    for key in keys:
        if str(said.get(key.name, "")).strip():
            values[key.name] = key.value(said[key.name])
        elif key.is_needed:
            raise OptionError(f"{kind} needs {key.name} ({key.text}); name it, or give -c FILE")
        else:
            values[key.name] = key.default
    return values


@dataclass(frozen=True, slots=True)
class Job:
    """One checked job: its options, and the values of its keys."""

    kind: JobKind
    options: Any  # Options of a read, or SinkOptions
    values: Mapping[str, Any]  # parsed values of all keys
    given: Mapping[str, str]  # options as given, in Spark's form
    spark: Mapping[str, str] = field(default_factory=dict)  # settings of the Spark session
    catalog: Mapping[str, str] = field(default_factory=dict)  # of Iceberg
    made: Any = None  # the return value of the kind's `check`

    @property
    def master(self) -> str:
        """Return the master URL of Spark."""
        return str(self["master"])

    def read(self, spark: SparkSession, schema: str = "", **more: object) -> DataFrame:
        """Return the rows that the options of the job select; `more` has additional options."""
        reader = spark.read.format("jetstream").options(**{**self.given, **more})
        return (reader.schema(schema) if schema else reader).load()

    def read_range(
        self, spark: SparkSession, schema: str, ends: Mapping[str, tuple[int, int]], **more: str
    ) -> DataFrame:
        """Return the messages [low, high) of each stream in `ends`, from the servers of this job.

        Deleted messages are not an error; `more` has additional options.
        """
        given = {name: value for name, value in self.given.items() if name.lower() in OF_SERVERS}
        lows, highs = (json.dumps({name: end[at] for name, end in ends.items()}) for at in (0, 1))
        bounds = {"startingOffsets": lows, "endingOffsets": highs, "failOnDataLoss": "false"}
        reader = spark.read.format("jetstream").options(**given, **bounds, **more, stream=",".join(ends))
        return reader.schema(schema).load()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job, as lines of text, as values for JSON, and as an exit code."""

    lines: list[str]
    said: Mapping[str, Any]
    code: int = 0
    trouble: str = ""  # one line for stderr, if the exit code is not 0


@dataclass(frozen=True, slots=True)
class Session:
    """The environment of a run: its Spark session and its observers."""

    open: Callable[[], AbstractContextManager[SparkSession]]
    watch: Watch

    def __call__(self) -> AbstractContextManager[SparkSession]:
        """Start a Spark session that stops at the end of the `with` block."""
        return self.open()


def explained(spans: Sequence[Span], more: str, **said: object) -> Outcome:
    """Return the outcome of `explain`: the ranges that a job reads, followed by the line `more`."""
    lines = [f"{span.stream}: sequences {span.low} to {span.high - 1}" for span in spans]
    streams = [{"stream": span.stream, "low": span.low, "high": span.high} for span in spans]
    return Outcome([*lines, more], {"streams": streams, **said})


def read_options(said: Said, options: Mapping[str, str]) -> tuple[dict[str, str], Any]:
    """Return the options of a job that reads the stream named in `said`, as strings and in parsed form.

    Raises:
        OptionError: an option is unknown or not allowed, or is the option `stream`.
    """
    if "stream" in map(str.lower, options):
        raise OptionError("option stream: the stream is named beside the other keys, not as an option")
    given = {**options, "stream": str(said["stream"])}
    return given, parse_options(given)


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job: its keys, and the functions that check and run such a job."""

    name: str
    text: str
    own_keys: tuple[Key, ...]
    run: Callable[[Job, Session], Outcome]
    explain: Callable[[Job], Outcome]  # describes what `run` would do, without changing anything
    check: Callable[[Job], object]  # refuses keys and options that do not fit together; raises OptionError
    # reports the job's progress; None: runs of this kind store no progress
    status: Callable[[Job], Outcome] | None = None
    parse: Callable[[Said, Mapping[str, str]], tuple[dict[str, str], Any]] = read_options
    is_watched: bool = False  # whether a run can write a status file
    has_catalog: bool = False  # whether the job reads or writes Iceberg tables

    @property
    def keys(self) -> tuple[Key, ...]:
        """Return the keys of this kind, and those common to all kinds."""
        return (*self.own_keys, MASTER)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the keys to the parser of a command."""
        for key in self.keys:
            key.add(parser)

    def job(
        self,
        said: Said,
        options: Mapping[str, str],
        spark: Mapping[str, str] | None = None,
        catalog: Mapping[str, str] | None = None,
    ) -> Job:
        """Return the job that the values define.

        Raises:
            OptionError: a key or an option is missing or not allowed.
        """
        values = values_of(self.name, self.keys, said)
        given, parsed = self.parse(said, options)
        found = Job(self, parsed, values, given, spark or {}, catalog or {})
        return replace(found, made=self.check(found))

    def validate(self, job: Job) -> Outcome:
        """Return the outcome of the subcommand `validate` for a valid job."""
        places = [
            f" {word} {job.values[name]}"
            for word, name in (("from", "source"), ("to", "target"))
            if job.values.get(name)
        ]
        kind = job.values.get("format", "parquet")
        shown = "" if kind == "parquet" else f" as {kind}"
        line = f"valid: {self.name} of {job['stream']}{''.join(places)}{shown}; no server was asked"
        said = {"kind": self.name, "streams": str(job["stream"]).split(","), "is_valid": True}
        return Outcome([line], said)


ROWS_PER_FILE = Key(
    "rows_per_file",
    f"ranges end at its multiples; default {option_values.RECORDS_PER_PARTITION}",
    option_values.count(high=1_000_000_000),
    default=option_values.RECORDS_PER_PARTITION,
)
STREAM = Key("stream", "name, comma list, or pattern with *", is_positional=True, is_needed=True)
MASTER = Key(
    "master", "where Spark runs: default local[*]; sc://host:15002 is Spark Connect", default="local[*]"
)

"""Pipelines beside the archive: what each is told, by a TOML file or by the command line, out of one table of keys.

A kind of job is a row of `job_kinds.KINDS`. Its keys stand in the section [pipeline] of a file under their names, and
on the command line as --name, or as a word without a name if they are positional. All of them are text here and are
parsed by the same parsers as options are, so that both ways refuse the same values with the same words.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyjs_spark.errors import OptionError
from pyjs_spark.options import values as option_values
from pyjs_spark.options.reading import Options, parse_options


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that a kind of job is told."""

    name: str  # as in files; dashes in place of underscores on the command line
    text: str
    parse: Callable[[str], object] = option_values.text
    default: Any = None
    is_positional: bool = False
    is_needed: bool = False

    @property
    def is_flag(self) -> bool:
        """Return whether the command line takes it without a value."""
        return self.parse is option_values.boolean

    @property
    def flag(self) -> str:
        """Return how it stands on the command line."""
        return self.name if self.is_positional else "--" + self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Job:
    """One job, checked."""

    kind: JobKind
    options: Options
    values: Mapping[str, Any]  # of all keys

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a job: for people, as JSON, and as an exit code."""

    lines: list[str]
    said: Mapping[str, Any]
    code: int = 0
    trouble: str = ""  # one line for stderr, if the code is not 0


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job."""

    name: str
    text: str
    keys: tuple[Key, ...]
    run: Callable[[Job], Outcome]
    explain: Callable[[Job], Outcome]  # what `run` would do; changes nothing
    check: Callable[[Job], None]  # refuses keys and options that do not go together; raises OptionError

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the keys to the parser of a command; nothing is required here: job() reports missing ones."""
        for key in self.keys:
            if key.is_positional:
                parser.add_argument(key.name, nargs="?", help=key.text)
            elif key.is_flag:
                parser.add_argument(key.flag, action="store_const", const="true", help=key.text)
            else:
                parser.add_argument(key.flag, metavar="VALUE", help=key.text)

    def job(self, said: Mapping[str, str], options: Mapping[str, str]) -> Job:
        """Return the job that the texts define. Raises OptionError."""
        if "stream" in map(str.lower, options):
            raise OptionError(
                f"option stream is not allowed in {self.name}: it is named beside the other keys"
            )
        values = {key.name: self._value(key, said) for key in self.keys}
        found = parse_options({**options, "stream": said["stream"]})
        made = Job(self, found, values)
        self.check(made)
        return made

    def _value(self, key: Key, said: Mapping[str, str]) -> object:
        if key.name not in said:
            if key.is_needed:
                raise OptionError(f"{self.name} needs {key.name} ({key.text}); name it, or give -c FILE")
            return key.default
        try:
            return key.parse(said[key.name])
        except ValueError as wrong:
            shown = key.name if key.is_positional else key.flag
            raise OptionError(f"{shown}={said[key.name]} is not allowed; allowed: {wrong}") from None


STREAM = Key("stream", "name, comma list, or pattern with *", is_positional=True, is_needed=True)

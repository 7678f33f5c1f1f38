"""Errors in a configuration: the place, the cause and the fix of each error.

This module knows nothing of the language or of the options. The text of an error reads `file:line:column: cause;
fix`, so that an editor can jump to the place; line and column start at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import PyjsError

if TYPE_CHECKING:
    from collections.abc import Iterable


WORD_SIZE_MAX = 64  # maximum size of a word to compare with known words


@dataclass(slots=True)
class Place:
    """A position in a configuration file. Line and column start at 1; line 0 means that there is no position."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Problem(NamedTuple):
    """One problem of a configuration: its place, its cause, and how to fix it."""

    place: Place
    cause: str
    fix: str

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place.file else ""
        return f"{where}{self.cause}; {self.fix}"


class ConfigError(PyjsError):
    """Raised for an invalid configuration; the exception's message has one line for each problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def at(cls, place: Place, cause: str, fix: str) -> ConfigError:
        """Return an error with a single problem."""
        return cls([Problem(place, cause, fix)])


class Refused(Exception):
    """Raised for an invalid value in a block; the reader of the block catches it and collects `problem`."""

    def __init__(self, place: Place, cause: str, fix: str) -> None:
        super().__init__(cause)
        self.problem = Problem(place, cause, fix)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return the word in `known` most similar to `word`.

    Return None if no known word is similar, or if `word` has more than WORD_SIZE_MAX characters.
    """
    import difflib  # imported lazily, since it takes 2 ms and only an error needs it

    if len(word) > WORD_SIZE_MAX:
        return None
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def suggestion(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return the fix for an unknown word: a question with the most similar known word, or else `otherwise`."""
    near = did_you_mean(word, known)
    return f'did you mean "{near}"?' if near else otherwise

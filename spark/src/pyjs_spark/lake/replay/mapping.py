"""Subject mappings in the notation of NATS: `orders.> -> replay.orders.>`, `orders.*.new -> new.$1`.

The first mapping whose source matches a subject determines the new subject. In its destination, `$1`, or
`{{wildcard(1)}}`, is the token that the first `*` of the source matched; a final `>` stands for the tokens that the
source's `>` matched. A subject without a match is not mapped; the caller must handle that. The JVM applies the
mappings: each is a regular expression and a replacement in Java's syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pyjs_spark.errors import OptionError
from pyjs_spark.subjects import is_subject

ARROW = "->"
WILDCARD = re.compile(r"\$([1-9]\d?)|\{\{\s*wildcard\(\s*([1-9]\d?)\s*\)\s*\}\}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Mapping:
    """One checked subject mapping."""

    source: str
    destination: str

    def __str__(self) -> str:
        return f"{self.source} {ARROW} {self.destination}"

    @property
    def pattern(self) -> str:
        """Return the regular expression of the source; each wildcard is a group."""
        return pattern_of([self.source])

    @property
    def replacement(self) -> str:
        """Return the destination as a replacement in the syntax of java.util.regex."""
        stars = self.source.split(".").count("*")
        return ".".join(self._replaced(token, stars) for token in self.destination.split("."))

    def _replaced(self, token: str, stars: int) -> str:
        number = _number(token)
        if number:
            return f"${number}"
        if token == ">":
            return f"${stars + 1}"
        return re.sub(r"([\\$])", r"\\\1", token)


def parse(said: str) -> Mapping:
    """Return the subject mapping in a string such as `orders.> -> replay.orders.>`.

    Raises:
        OptionError: the string is not a valid mapping.
    """
    source, arrow, destination = (part.strip() for part in said.partition(ARROW))
    if not arrow:
        raise _wrong(said, "write it as 'orders.> -> replay.orders.>'")
    if not is_subject(source):
        raise _wrong(said, f"{source or 'nothing'} is no subject")
    destination = re.sub(r"(?<![^.])\{\{[^{}]*\}\}(?![^.])", lambda each: _compact(each[0]), destination)
    tokens = destination.split(".")
    if not is_subject(destination):
        raise _wrong(said, f"{destination or 'nothing'} is no subject")
    if "*" in tokens:
        raise _wrong(said, "say which wildcard: $1 is what the first * of the source matched")
    if (tokens[-1] == ">") != source.endswith(">"):
        raise _wrong(said, "both sides end with >, or none does")
    stars = source.split(".").count("*")
    for token in tokens:
        if (number := _number(token)) > stars:
            raise _wrong(said, f"{token} is not there: the source has {stars} wildcards *")
        if not number and ("$" in token[:1] or "{{" in token):
            raise _wrong(said, f"{token} is no token: $1 and {{{{wildcard(1)}}}} stand alone between dots")
    return Mapping(source, _plain(tokens))


def _compact(token: str) -> str:
    """Return {{ wildcard( 1 ) }} as $1; return any other token unchanged."""
    return f"${_number(token)}" if _number(token) else token


def _plain(tokens: Iterable[str]) -> str:
    """Return a subject from tokens; wildcards are written as $1, so that equal mappings are equal strings."""
    return ".".join(_compact(token) for token in tokens)


def _number(token: str) -> int:
    """Return the number n if the token is $n or {{wildcard(n)}}, otherwise 0."""
    match = WILDCARD.fullmatch(token)
    return int(match[1] or match[2]) if match else 0


def _wrong(said: str, why: str) -> OptionError:
    return OptionError(f"map {said!r} is not allowed: {why}")


def pattern_of(subjects: Iterable[str]) -> str:
    """Return a regular expression that matches any of the subjects, valid in Python and in Java."""
    parts = [r"[.]".join(map(_regex, each.split("."))) for each in subjects]
    # Java and Python have different notations for the end of a text
    return rf"(?s)\A(?:{'|'.join(parts)})(?!.)"


def _regex(token: str) -> str:
    if token == "*":
        return r"([^.]+)"
    return r"(.+)" if token == ">" else re.escape(token)

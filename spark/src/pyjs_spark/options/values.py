"""Parsers of option values: from Spark's text to a checked Python value.

Spark passes every option as text. A parser returns the value of the text, or raises ValueError with a description
of the allowed values; `reading.py` prepends the name of the option and its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from pyjs_spark import strict_json
from pyjs_spark.errors import OptionError
from pyjs_spark.subjects import covers, is_subject
from pyjs_spark.times import NS_PER_MS, parse_rfc3339

SEQ_MAX = 2**63 - 1  # the largest value of a signed 64-bit column of Spark
RECORDS_PER_PARTITION = 500_000  # default of maxRecordsPerPartition and of rows_per_file
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SECONDS_MAX = 3650 * SECONDS["d"]  # sockets and servers cannot represent longer durations
SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?")
KAFKAS: dict[str, str] = {"-1": "latest", "-2": "earliest"}  # as written by users of Spark's Kafka source

Parser = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Position:
    """The start or end of a read: one word for all streams, or a sequence or word for each stream."""

    word: str = ""  # earliest, latest; "" if streams are named
    streams: tuple[tuple[str, int | str], ...] = ()  # (stream, seq or word), sorted by stream


def refuse(said: Collection[str], names: Iterable[str], why: str) -> None:
    """Raise OptionError if one of the options `names` was given; `why` is the end of the error's message."""
    for name in names:
        if name in said:
            raise OptionError(f"option {name} {why}")


def text(value: str) -> str:
    """Return the string without white space at its ends. Raises ValueError if nothing is left."""
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def boolean(value: str) -> bool:
    """Return True for "true" and False for "false" in any case. Raises ValueError for other strings."""
    words = {"true": True, "false": False}
    if value.strip().lower() not in words:
        raise ValueError("true or false")
    return words[value.strip().lower()]


def count(low: int = 1, high: int = SEQ_MAX) -> Callable[[str], int]:
    """Return a parser of integers from `low` to `high`, which raises ValueError for any other string."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"\d+", value.strip(), re.ASCII) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """Return a parser that accepts each of the given words in any case, and raises ValueError for other strings."""
    known = {word.lower(): word for word in words}

    def parse(value: str) -> str:
        if value.strip().lower() not in known:
            raise ValueError(" or ".join(filter(None, [", ".join(words[:-1]), words[-1]])))
        return known[value.strip().lower()]

    return parse


def like(pattern: str, hint: str) -> Callable[[str], str]:
    """Return a parser of strings that match a pattern; for other strings, it raises ValueError with `hint`."""

    def parse(value: str) -> str:
        if not re.fullmatch(pattern, value.strip()):
            raise ValueError(hint)
        return value.strip()

    return parse


def seconds(value: str) -> float:
    """Return a duration in seconds, from a number with the unit ms, s, m, h or d.

    A number without a unit is in seconds.

    Raises:
        ValueError: the string is not a duration above zero, or is longer than ten years.
    """
    match = DURATION.fullmatch(value.strip().lower())
    found = float(match[1]) * SECONDS[match[2] or "s"] if match is not None else 0.0
    if not 0 < found <= SECONDS_MAX:
        raise ValueError("a duration above zero and up to 3650d such as 500ms, 5s, 15m or 1h")
    return found


def byte_size(value: str) -> int:
    """Return a number of bytes; the suffixes k, m, g and t multiply by powers of 1024.

    Raises:
        ValueError: the string is not a number of bytes above zero.
    """
    match = SIZE.fullmatch(value.strip().lower())
    if match is None or int(match[1]) == 0:
        raise ValueError("a number of bytes above zero such as 1048576, 64m or 1g")
    return int(match[1]) * SIZES[match[2]]


def words(value: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated list, without repetitions.

    Raises:
        ValueError: a part is empty.
    """
    parts = [part.strip() for part in value.split(",")]
    if not all(parts):
        raise ValueError("a comma list without empty parts")
    return tuple(dict.fromkeys(parts))


def list_of(pattern: str, hint: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of comma-separated lists of strings that match a pattern.

    The parser raises ValueError with `hint` for other strings.
    """
    one = like(pattern, hint)
    return lambda value: tuple(one(name) for name in words(value))


# A name that contains * is a pattern.
STREAM_NAME = r"[^\s.>/\\\x00]+"
stream_names = list_of(
    STREAM_NAME, "names of streams, comma separated, each without spaces, '.', '>', '/', '\\'; * is any text"
)
bucket_names = list_of(
    "[A-Za-z0-9_*-]+",
    "names of buckets, comma separated, each of letters, digits, '-' and '_'; * is any text",
)
bucket_name = like("[A-Za-z0-9_-]+", "the name of one bucket, of letters, digits, '-' and '_'")


def subjects(value: str) -> tuple[str, ...]:
    """Return the filter subjects in a comma-separated list, without those that another subject of the list covers.

    The result is () if the subjects match every subject.

    Raises:
        ValueError: a part of the list is not a valid subject.
    """
    parts = words(value)
    if not all(is_subject(part) for part in parts):
        raise ValueError("subjects, comma separated, with tokens between dots and the wildcards * and >")
    wide = [part for part in parts if not any(covers(other, part) for other in parts if other != part)]
    return () if wide == [">"] else tuple(wide)


def domain(value: str) -> str:
    """Return the API prefix of a JetStream domain.

    Raises:
        ValueError: the string is not the name of a domain.
    """
    if not re.fullmatch(r"[^\s.*>$]+", value.strip()):
        raise ValueError("the name of a domain: one token without '.', '*', '>' and '$'")
    return f"$JS.{value.strip()}.API"


def api_prefix(value: str) -> str:
    """Return the subject prefix of the JetStream API, without a dot at its end.

    Raises:
        ValueError: the string is not a subject without wildcards.
    """
    prefix = value.strip().removesuffix(".")
    if not is_subject(prefix) or "*" in prefix or ">" in prefix:
        raise ValueError("a subject without wildcards such as $JS.hub.API")
    return prefix


def moment(value: str) -> int:
    """Return a point in time in ns since 1970, from RFC 3339 or from a number of ms since 1970.

    Raises:
        ValueError: the string is neither.
    """
    said = value.strip()
    if re.fullmatch(r"\d{1,14}", said, re.ASCII):
        return int(said) * NS_PER_MS
    try:
        return parse_rfc3339(said)
    except (ValueError, OverflowError):
        raise ValueError(
            "a time such as 2026-01-31T12:00:00Z (with zone), or milliseconds since 1970"
        ) from None


def headers(value: str) -> str:
    """Return map, raw or false; "true", as used with Kafka, means map.

    Raises:
        ValueError: the string is none of these words.
    """
    said = value.strip().lower()
    return "map" if said == "true" else one_of("map", "raw", "false")(said)


def moments(value: str) -> tuple[tuple[str, int], ...]:
    """Return sorted pairs (stream, ns since 1970) from JSON such as {"ORDERS": 1795000000000}.

    The numbers in the JSON are ms since 1970; a time in RFC 3339 is allowed too.

    Raises:
        ValueError: the string is not such a JSON object.
    """
    hint = 'JSON such as {"ORDERS": 1795000000000} (milliseconds since 1970, or a time with zone)'
    said = _streams(value, hint)
    try:
        return tuple(sorted((name, moment(str(at))) for name, at in said.items()))
    except ValueError:
        raise ValueError(hint) from None


def _streams(value: str, hint: str) -> dict[str, object]:
    """Return the value of each stream from a JSON object.

    A value {"0": x}, in which a user of Kafka names the partition 0, means x.

    Raises:
        ValueError: the string is not such an object; the error has `hint`.
    """
    try:
        said = strict_json.an_object(value)
    except ValueError:
        raise ValueError(hint) from None
    if not said:
        raise ValueError(hint)
    alone = {name: at["0"] if isinstance(at, dict) and set(at) == {"0"} else at for name, at in said.items()}
    if any(isinstance(at, dict) for at in alone.values()):
        raise ValueError(f"{hint}; a stream has no partitions, or 0 alone")
    return alone


def position(*allowed: str) -> Callable[[str], Position]:
    """Return a parser of a position: one of the words, or JSON of streams with their sequences.

    The parser raises ValueError for other strings.
    """
    hint = " or ".join([*allowed, 'JSON such as {"ORDERS": 1234}'])

    def parse(value: str) -> Position:
        word = value.strip().lower()
        if word in allowed:
            return Position(word)
        said = {name: KAFKAS.get(str(at), at) for name, at in _streams(value, hint).items()}
        if not all(_is_place(at, allowed) for at in said.values()):
            raise ValueError(f"{hint} (whole numbers from 1, a word, or -1 for latest and -2 for earliest)")
        return Position(streams=tuple(sorted(said.items())))  # type: ignore[arg-type]  # checked just now

    return parse


def _is_place(at: object, allowed: tuple[str, ...]) -> bool:
    if isinstance(at, str):
        return at in allowed
    return type(at) is int and 1 <= at <= SEQ_MAX

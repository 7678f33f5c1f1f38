"""Subjects and filters, matched token by token as in NATS."""

from __future__ import annotations

import re
from collections.abc import Iterable

Filters = list[list[bytes]]  # each filter as a list of tokens


def is_match(subject: list[bytes], wanted: list[bytes]) -> bool:
    """Return whether a subject matches a filter; both are given as tokens."""
    for at, token in enumerate(wanted):
        if token == b">":
            return len(subject) > at
        if at >= len(subject) or token not in (b"*", subject[at]):
            return False
    return len(subject) == len(wanted)


def filters_of(subjects: Iterable[str]) -> Filters:
    """Return filters in the form that is_any() needs."""
    return [subject.encode().split(b".") for subject in subjects]


def is_any(subject: bytes, filters: Filters) -> bool:
    """Return whether a subject matches at least one filter."""
    tokens = subject.split(b".")
    return any(is_match(tokens, wanted) for wanted in filters)


def is_subject(value: str) -> bool:
    """Return whether `value` is a valid filter: no empty token, no space, > only at the end."""
    tokens = value.split(".")
    return all(tokens) and ">" not in tokens[:-1] and not re.search(r"[\s\x00]", value)


def covers(wide: str, narrow: str) -> bool:
    """Return whether `wide` matches each subject that `narrow` matches."""
    outer, inner = wide.split("."), narrow.split(".")
    for index, token in enumerate(outer):
        if token == ">":
            return len(inner) > index
        if index >= len(inner) or inner[index] == ">":
            return False
        if token not in ("*", inner[index]):
            return False
    return len(outer) == len(inner)


def overlaps(one: str, other: str) -> bool:
    """Return whether any subject matches both filters."""
    first, second = one.split("."), other.split(".")
    for a, b in zip(first, second, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(first) == len(second)

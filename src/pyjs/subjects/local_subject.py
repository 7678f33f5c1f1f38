"""The subject of an import in the importing account, and the transforms between it and the exporter's subject.

An import may only rename subjects in a way that can be reversed: its local subject has each `*` of the exporter's
subject exactly once, as `$n` or `{{wildcard(n)}}`. This module knows nothing of accounts.

Source: nats.docs "Accounts"; nats-server 2.15.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyjs.base.rng import Rng
from pyjs.subjects.transform import SubjectTransform, TransformError

_WILDCARD = re.compile(r"\{\{[ \t\n\f\r]*[wW]ildcard[ \t\n\f\r]*\((.+)\)[ \t\n\f\r]*\}\}")
_INVALID = "invalid mapping destination: "


@dataclass(frozen=True, slots=True)
class LocalSubject:
    """The subject of an import in the importing account, and the transforms between it and the exporter's subject."""

    pattern: str  # the subject, with wildcards
    # Transforms the subject of a message: for a stream from the exporter's subject to the local one, for a
    # service the other way round. None: the local subject is literal, or the subject does not change.
    transform: SubjectTransform | None = None
    backward: SubjectTransform | None = None  # transforms the other way round
    same: bool = False  # both accounts use the same subjects


def of_stream_import(subject: str, to: str) -> LocalSubject:
    """Return the local subject of a stream import from the exporter's `subject` to the local subject `to`.

    Raises:
        TransformError: `to` is not a reversible renaming of `subject`.
    """
    if to == subject:
        return LocalSubject(to, same=True)
    if not _has_wildcard(subject):
        if _has_wildcard(to):
            raise TransformError("invalid subject")
        return LocalSubject(to)
    transform = _strict(subject, numbered(to))
    return LocalSubject(pattern_of(to)[0], transform, _reversed(subject, numbered(to)))


def of_service_import(subject: str, to: str) -> LocalSubject:
    """Return the local subject of a service import from the exporter's `subject` to the local subject `to`.

    Raises:
        TransformError: `to` is not a reversible renaming of `subject`.
    """
    if not _has_wildcard(subject):
        return LocalSubject(to, same=to == subject)
    if to == subject:
        return LocalSubject(to, same=True)
    source = pattern_of(subject)[0]
    backward = _strict(source, numbered(to))
    return LocalSubject(pattern_of(to)[0], _reversed(source, numbered(to)), backward)


def numbered(subject: str) -> str:
    """Return `subject` with `$1`, `$2`, ... in place of its `*` tokens, from left to right."""
    tokens = subject.split(".")
    stars = [at for at, token in enumerate(tokens) if token == "*"]
    for number, at in enumerate(stars, 1):
        tokens[at] = f"${number}"
    return ".".join(tokens)


def pattern_of(subject: str) -> tuple[str, list[str]]:
    """Return `subject` with each `$n` or `{{wildcard(n)}}` token replaced with `*`, and the list of these tokens."""
    marks = [token for token in subject.split(".") if _is_mark(token)]
    tokens = ["*" if _is_mark(token) else token for token in subject.split(".")]
    return ".".join(tokens), marks


def _is_mark(token: str) -> bool:
    return (len(token) > 1 and token[0] == "$" and "1" <= token[1] <= "9") or bool(_WILDCARD.search(token))


def _has_wildcard(subject: str) -> bool:
    return any(token in ("*", ">") for token in subject.split("."))


def _strict(source: str, destination: str) -> SubjectTransform:
    """Return the transform from `source` to `destination`.

    Raises:
        TransformError: the transform is invalid, does not use every `*` of `source`, or has a mapping function
            other than `wildcard`.
    """
    transform = SubjectTransform(source, destination, Rng())
    for token, piece in zip(destination.split("."), transform.pieces, strict=False):
        if callable(piece):
            raise TransformError(
                f"{_INVALID}the only mapping function allowed for import transforms is"
                f" {{{{Wildcard()}}}} in {token}"
            )
    if sum(isinstance(piece, int) for piece in transform.pieces) < source.split(".").count("*"):
        raise TransformError(f"{_INVALID}not using all of the token wildcard(s) in {destination}")
    return transform


def _reversed(source: str, destination: str) -> SubjectTransform:
    """Return the transform from `destination` to `source`.

    The n-th `*` of `source` is replaced with the n-th reference in `destination`, whatever its number, as in
    nats-server.
    """
    pattern, marks = pattern_of(destination)
    tokens = source.split(".")
    for at, token in enumerate(tokens):
        if token == "*":
            tokens[at] = marks.pop(0)
    return _strict(pattern, ".".join(tokens))

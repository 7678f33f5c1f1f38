"""Subject transforms: a source pattern, and a destination built from the tokens of a matching subject.

A destination token is a literal, `$n` or a mapping function in double braces; `n` is the number of a `*` in the
source, from 1. A trailing `>` copies the tokens matched by the source's `>`. This module knows nothing of its
callers: streams, republishing, sources and account mappings share this module.

Except for random mappings, results are cached for the last few thousand subjects: a repeated subject takes one
lookup, and a new subject takes some microseconds. Streams without a transform do not use this module.

Source: nats.docs "Subject Mapping and Partitioning", ADR-30; spellings, texts and corner cases probed on nats-server
2.15.1 (tests/conformance/scenarios/transform).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyjs.base.rng import Rng
from pyjs.subjects.tokens import is_valid_literal, subject_matches

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    # takes the tokens of the subject, returns a part of the destination
    Function: TypeAlias = Callable[[list[bytes]], bytes]
    # a literal token, the index of the token to copy, or a function
    Piece: TypeAlias = bytes | int | Function

REMEMBERED_MAX = 4096
INT32_MAX = 2**31 - 1
_BLANK = "[ \t\n\f\r]*"
_FUNCTION = re.compile(
    rf"\{{\{{{_BLANK}([pP]artition|[wW]ildcard|[sS]plit(?:[fF]rom(?:[lL]eft|[rR]ight))?"
    rf"|[sS]lice[fF]rom(?:[lL]eft|[rR]ight)|[lL]eft|[rR]ight|[rR]andom){_BLANK}\((.*)\){_BLANK}\}}\}}"
)
_COMMA = re.compile(f",{_BLANK}")
_INTEGER = re.compile("[+-]?[0-9]+")
_INVALID = "invalid transform"
_BAD_ARGUMENT = "function argument is invalid or in the wrong format"
_TOO_FEW = "not enough arguments passed to the function"
_TOO_MANY = "too many arguments passed to the function"
_OUT_OF_RANGE = "wildcard index out of range"


class TransformError(ValueError):
    """Raised for an invalid transform; its message is that of nats-server."""


class SubjectTransform:
    """A transform of subjects, parsed from a source pattern and a destination."""

    def __init__(self, source: str, destination: str, rng: Rng) -> None:
        """Parse the transform from `source` to `destination`; an empty `source` means `>`.

        Raises:
            TransformError: the transform is invalid; the error message is that of nats-server.
        """
        self.source = (source or ">").encode()
        self._same = self.source == b">" and destination == ">"
        self._chance = _Chance(rng)
        self.pieces, self.tail_from, self._by_chance = _read(source or ">", destination, self._chance)
        self._known: dict[bytes, bytes | None] = {}

    def apply(self, subject: bytes) -> bytes | None:
        """Return the transformed `subject`, or None if the source does not match it."""
        try:
            return self._known[subject]
        except KeyError:
            made = self._make(subject)
        if not self._by_chance:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[subject] = made
        return made

    def apply_by(self, key: bytes, subject: bytes) -> bytes | None:
        """Transform `subject` as `apply` does, with random numbers that are derived from `key`.

        Equal subjects with equal, non-empty keys give equal results.
        """
        if not self._by_chance:
            return self.apply(subject)
        self._chance.key = key
        try:
            return self._make(subject)
        finally:
            self._chance.key = b""

    def _make(self, subject: bytes) -> bytes | None:
        if self._same:
            return subject
        if not is_valid_literal(subject) or not subject_matches(subject, self.source):
            return None
        tokens = subject.split(b".")
        made = [_part(piece, tokens) for piece in self.pieces]
        if self.tail_from >= 0:
            made.extend(tokens[self.tail_from :])
        return b".".join(made)


def _part(piece: Piece, tokens: list[bytes]) -> bytes:
    if isinstance(piece, bytes):
        return piece
    return tokens[piece] if isinstance(piece, int) else piece(tokens)


def open_transform(source: str, destination: str, rng: Rng) -> SubjectTransform | None:
    """Return the transform from `source` to `destination`, or None if `destination` is empty.

    Raises:
        TransformError: the transform is invalid; the error message is that of nats-server.
    """
    return SubjectTransform(source, destination, rng) if destination else None


def check_transform(source: str, destination: str) -> None:
    """Check that a transform is valid; an empty `destination` is valid.

    Raises:
        TransformError: the transform is invalid; the error message is that of nats-server.
    """
    open_transform(source, destination, Rng())


def check_mapping(source: str, destination: str) -> None:
    """Check that a subject mapping is valid. As in nats-server, check the destination before the source.

    Raises:
        TransformError: the transform is invalid; the error message is that of nats-server.
    """
    ended = False
    for token in destination.split(".") if destination else ():
        if not token or ended:
            raise _fault(_INVALID, token)
        if _is_function(token):
            if not _FUNCTION.search(token):
                raise _fault("unknown function", token)
            continue
        ended = token == ">"
        if any(char in token for char in "\t\n\f\r "):
            raise _fault(_INVALID)
    check_transform(source, destination)


def _fault(reason: str, where: str = "") -> TransformError:
    return TransformError(f"invalid mapping destination: {reason}{f' in {where}' if where else ''}")


def _read(source: str, destination: str, chance: _Chance) -> tuple[list[Piece], int, bool]:
    """Parse a transform; return (pieces, tail_from, is_random).

    `pieces` are the parts of the destination without a final `>`. If the destination ends with `>`, the tokens of the
    subject from index `tail_from` on are copied; otherwise `tail_from` is -1. `is_random` means that a piece uses
    random numbers.

    Raises:
        TransformError: the transform is invalid.
    """
    given, made = source.split("."), destination.split(".")
    if not _well_formed(given) or not _well_formed(made):
        raise TransformError("invalid subject")
    if "*" in made or (given[-1] == ">") != (made[-1] == ">"):
        raise TransformError("invalid subject")
    tail_from = -1
    if made[-1] == ">":
        tail_from = len(given) - 1
        made.pop()
    stars = [at for at, token in enumerate(given) if token == "*"]
    reader = _Reader(stars, open_source=bool(stars) or tail_from >= 0, chance=chance)
    return [reader.piece(token) for token in made], tail_from, reader.by_chance


def _well_formed(tokens: list[str]) -> bool:
    return all(tokens) and ">" not in tokens[:-1]


def _is_function(token: str) -> bool:
    return len(token) > 4 and token.startswith("{{") and token.endswith("}}")


class _Reader:
    """A parser of the tokens of one destination."""

    def __init__(self, stars: list[int], open_source: bool, chance: _Chance) -> None:
        self._stars = stars  # positions of the `*` in the source
        self._open = open_source  # the source has wildcards
        self._chance = chance
        self.by_chance = False
        self._randoms = 0  # number of random tokens so far

    def piece(self, token: str) -> Piece:
        if token.startswith("$") and _INTEGER.fullmatch(token[1:]):
            return self._token_at(int(token[1:]), token)
        if not _is_function(token):
            return token.encode()
        found = _FUNCTION.search(token)
        if found is None:
            raise _fault("unknown function", token)
        name, args = found[1].lower(), _COMMA.split(found[2])
        if name == "partition":
            return self._partition(args, token)
        if name == "random":
            return self._random(args, token)
        return self._of_one_token(name, args, token)

    def _token_at(self, number: int, token: str) -> int:
        """Return the token index of the `number`-th `*` in the source, or 0 if `number` is below one.

        Raises:
            TransformError: the source has no wildcards, or has fewer than `number` tokens `*`.
        """
        if not self._open:
            raise _fault(_OUT_OF_RANGE, token)
        if number > len(self._stars):
            raise _fault(_OUT_OF_RANGE, f"{token}: [{number}]")
        return self._stars[number - 1] if number > 0 else 0

    def _partition(self, args: list[str], token: str) -> Piece:
        count = _integer(args[0], token, highest=INT32_MAX)
        numbers = [_integer(arg, token) for arg in args[1:]]
        if not self._open:
            numbers = []  # without numbers, the whole subject determines the partition
        return _partition([self._token_at(number, token) for number in numbers], count & 0xFFFFFFFF)

    def _random(self, args: list[str], token: str) -> Piece:
        if len(args) != 1:
            raise _fault(_TOO_FEW, token)
        limit = abs(_integer(args[0], token, highest=INT32_MAX))
        self.by_chance = True
        self._randoms += 1
        return _random(limit, self._chance, self._randoms)

    def _of_one_token(self, name: str, args: list[str], token: str) -> Piece:
        """Return the piece for the mapping function `name`, which uses one token of the subject.

        The first item of `args` is the number of the `*` in the source that matches this token.

        Raises:
            TransformError: the arguments are invalid.
        """
        wanted = 1 if name == "wildcard" else 2
        if len(args) < wanted or args == [""]:
            raise _fault(_TOO_FEW, token)
        if len(args) > wanted:
            raise _fault(_TOO_MANY, token)
        number = _integer(args[0], token)
        if name == "wildcard":
            return self._token_at(number, token)
        if name == "split":
            if " " in args[1]:
                raise _fault(_BAD_ARGUMENT, token)
            return _split(self._token_at(number, token), args[1].encode())
        size = _integer(args[1], token, lowest=-INT32_MAX - 1, highest=INT32_MAX)
        return _cut(_CUTS[name], self._token_at(number, token), size)


def _integer(text: str, token: str, lowest: int = -(2**63), highest: int = 2**63 - 1) -> int:
    text = text.strip(" ")
    value = int(text) if _INTEGER.fullmatch(text) else None
    if value is None or not lowest <= value <= highest:
        raise _fault(_BAD_ARGUMENT, token)
    return value


# -- pieces ------------------------------------------------------------------------------------------------


def _partition(places: list[int], count: int) -> Function:
    def piece(tokens: list[bytes]) -> bytes:
        key = b"".join([tokens[at] for at in places]) if places else b".".join(tokens)
        return b"%d" % (fnv1a(key) % count if count else 0)

    return piece


def fnv1a(key: bytes) -> int:
    """Return the 32-bit FNV-1a hash of `key`."""
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


class _Chance:
    """The source of the random numbers of one transform."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self.key = b""  # if set, numbers are derived from the key instead of being random

    def below(self, limit: int, place: int) -> int:
        """Return a number in [0, limit) for the `place`-th random token of the destination.

        If `self.key` is set, the number depends only on the key, `limit` and `place`.
        """
        return fnv1a(b"%d " % place + self.key) % limit if self.key else self._rng.below(limit)


def _random(limit: int, chance: _Chance, place: int) -> Function:
    return lambda tokens: b"%d" % (chance.below(limit, place) if limit else 0)


def _split(at: int, separator: bytes) -> Function:
    def piece(tokens: list[bytes]) -> bytes:
        # Separators at the start or end and repeated separators produce no empty tokens.
        first, *rest = tokens[at].split(separator) if separator else _characters(tokens[at])
        out = first
        for number, part in enumerate(rest):
            out += b"." + part if part and (number or first) else part
        return out

    return piece


def _characters(token: bytes) -> list[bytes]:
    return [char.encode("utf-8", "surrogateescape") for char in token.decode("utf-8", "surrogateescape")]


def _cut(cut: Callable[[bytes, int], bytes], at: int, size: int) -> Function:
    """Return the piece that applies `cut` with `size` to the token at index `at`.

    A token of at most `size` bytes stays unchanged, and so does every token if `size` is not above 0.
    """
    return lambda tokens: cut(tokens[at], size) if 0 < size < len(tokens[at]) else tokens[at]


def _slice_from_left(token: bytes, size: int) -> bytes:
    return b".".join([token[at : at + size] for at in range(0, len(token), size)])


def _slice_from_right(token: bytes, size: int) -> bytes:
    rest = len(token) % size
    parts = [token[at : at + size] for at in range(rest, len(token), size)]
    return b".".join([token[:rest], *parts] if rest else parts)


_CUTS: dict[str, Callable[[bytes, int], bytes]] = {
    "splitfromleft": lambda token, size: token[:size] + b"." + token[size:],
    "splitfromright": lambda token, size: token[:-size] + b"." + token[-size:],
    "slicefromleft": _slice_from_left,
    "slicefromright": _slice_from_right,
    "left": lambda token, size: token[:size],
    "right": lambda token, size: token[-size:],
}

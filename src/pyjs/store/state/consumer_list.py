"""The consumers of one stream: an append-only list of created, updated and deleted consumers, in two copies.

    consumers.a = consumers.b = entry*          entry = MARK | envelope of store/format/meta

The generation of an envelope is the number of its entry; numbers are consecutive. The first entry of a file
is its head, which counts the entries that were written together with it. An entry that is damaged in one copy is
read from the other copy; the mark helps to find the entry after a damaged one. If both copies have an incomplete
entry at the end, a kill interrupted an append before the client got an answer. But if both copies lack an entry, or
the last entry of both is damaged, the list is damaged: that entry may have created a consumer.

A list is rewritten as a whole, one copy after the other; each new copy is durable before it replaces the old
one. If the copies have different heads, the copy with the higher head number is valid.

This module knows nothing of configurations and states.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyjs.base.errors import CorruptRecord
from pyjs.store.format.layout import file_name
from pyjs.store.format.meta import (
    COPIES,
    KIND_CONSUMER,
    Opener,
    decode,
    encode,
    envelope_size,
    intact_generation,
    is_torn,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pyjs.base.disk import Disk
    from pyjs.store.crypt.keys import StreamKey

MARK = b"\xffLISTED\xfe"  # these bytes never occur in UTF-8
HEAD, PUT, DROP = "head", "put", "drop"
NUMBER_MAX = 1 << 62
NAME = "consumers"
IDENT_DIGITS_MAX = 19  # NUMBER_MAX has 19 digits
# to whom a directory belongs: a consumer, a deleted consumer, no consumer in the list
LIVE, REMOVED, UNKNOWN = range(3)


@dataclass(eq=False, slots=True)
class Listed:
    """A consumer in a consumer list."""

    name: str
    ident: int  # number of the entry that created the consumer
    created_ns: int
    config: dict[str, Any]
    state: bytes | None  # its first snapshot; None: the entry that had it is lost

    def values(self) -> dict[str, Any]:
        """Return the list entry that creates this consumer."""
        return put_values(self.name, self.ident, self.created_ns, self.config, self.state)


@dataclass(eq=False, slots=True)
class Problem:
    """A damaged place in one copy of a consumer list."""

    path: str
    at: int
    what: str
    torn: bool  # the place is the end of a write that a kill interrupted

    def __str__(self) -> str:
        return f"{self.path} at {self.at}: {self.what}"


@dataclass(eq=False, slots=True)
class Copy:
    """A copy of a consumer list, as it was read: its intact entries and its damage."""

    path: str
    entries: dict[int, dict[str, Any]] = field(default_factory=dict)  # by number, in the order of the file
    problems: list[Problem] = field(default_factory=list)
    size: int = 0
    is_absent: bool = False
    ends_damaged: bool = False  # damaged bytes follow the last intact entry

    @property
    def last(self) -> int:
        """The number of the last complete entry, or 0 if there is none."""
        return max(self.entries, default=0)


@dataclass(eq=False, slots=True)
class ConsumerList:
    """A consumer list, merged from its two copies."""

    live: dict[str, Listed] = field(default_factory=dict)
    dropped: set[tuple[str, int]] = field(default_factory=set)  # (name, ident) of deleted consumers
    last: int = 0  # number of the last entry
    count: int = 0  # number of entries
    size: int = 0  # bytes of a complete copy
    # (first, last) number of each range that is missing in both copies
    gaps: list[tuple[int, int]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    clean: bool = True  # both copies are equal and intact
    sealed: bool = True  # in an encrypted stream: every entry is encrypted


def list_paths(directory: str) -> list[str]:
    """Return the paths of both copies of a stream's list."""
    return [f"{directory}/{NAME}.{copy}" for copy in COPIES]


def put_values(
    name: str, ident: int, created_ns: int, config: dict[str, Any], state: bytes | None
) -> dict[str, Any]:
    """Return an entry that creates a consumer; without `state`, the entry updates an existing one."""
    values = {"op": PUT, "name": name, "id": ident, "created_ns": created_ns, "config": config}
    return values if state is None else values | {"state": state}


def drop_values(name: str, ident: int) -> dict[str, Any]:
    """Return an entry that deletes a consumer."""
    return {"op": DROP, "name": name, "id": ident}


def state_name(name: str, ident: int) -> str:
    """Return the name of the directory of a consumer's state."""
    return f"{file_name(name)}.{ident}"


class Owners:
    """A map from directories of consumer states to their owners: live, removed or unknown consumers."""

    def __init__(self, found: ConsumerList) -> None:
        self._live = {file_name(name): each.ident for name, each in found.live.items()}
        self._dropped = {state_name(*each) for each in found.dropped}

    def owner_of(self, name: str) -> int:
        """Return LIVE or REMOVED for the consumer of the directory `name`, or UNKNOWN if there is none."""
        escaped, _, digits = name.rpartition(".")
        ident = int(digits) if digits.isdecimal() and len(digits) <= IDENT_DIGITS_MAX else 0
        live = self._live.get(escaped, 0)
        if ident and ident == live:
            return LIVE
        return REMOVED if name in self._dropped or 0 < ident < live else UNKNOWN


def encode_entry(number: int, values: dict[str, Any], key: StreamKey | None) -> bytes:
    """Return an entry as bytes."""
    return MARK + encode(KIND_CONSUMER, number, values, key)


def encode_list(first: int, entries: list[dict[str, Any]], key: StreamKey | None) -> bytes:
    """Return a whole file as bytes: a head with the number `first`, followed by `entries`."""
    parts = [encode_entry(first, {"op": HEAD, "count": len(entries)}, key)]
    parts += [encode_entry(number, values, key) for number, values in enumerate(entries, first + 1)]
    return b"".join(parts)


def load_list(
    disk: Disk, directory: str, opener: Opener, ends: tuple[int, int] | None = None
) -> ConsumerList:
    """Return the consumer list of a stream; `ends` limits how many bytes of each copy are used.

    Raises:
        UnknownFormat: another version wrote an entry.
        Locked: an entry is encrypted, and `opener` cannot decrypt it.
        OSError: neither copy can be read, or one has an error that may be temporary.
    """
    found: list[tuple[str, bytes | OSError]] = []
    for number, path in enumerate(list_paths(directory)):
        try:
            data = disk.read_file(path)
            found.append((path, data if ends is None else data[: ends[number]]))
        except FileNotFoundError as error:
            found.append((path, error))
        except OSError as error:
            if error.errno != errno.EIO:  # EIO is permanent, a lack of descriptors is not
                raise
            found.append((path, error))
    errors = [data for _, data in found if isinstance(data, OSError)]
    if all(data == b"" or isinstance(data, FileNotFoundError) for _, data in found):
        return ConsumerList()  # the server may have been killed before it created them
    if len(errors) == len(found):
        raise next(error for error in errors if not isinstance(error, FileNotFoundError))
    return read_list(found, opener)


def is_intact(disk: Disk, directory: str, ends: tuple[int, int], opener: Opener) -> bool:
    """Return whether both copies are readable, equal, and complete up to `ends`.

    This is faster than `load_list`, since only the head is decoded. Call it in a thread, since it reads both files.
    The result may be False while an entry is being written.

    Raises:
        UnknownFormat, Locked: as in `load_list`.
    """
    try:
        first, second = (
            disk.read_file(path)[:end] for path, end in zip(list_paths(directory), ends, strict=True)
        )
    except OSError:
        return False
    before, *pieces = first.split(MARK)
    if first != second or len(first) != ends[0] or before or not pieces:
        return False
    due = intact_generation(pieces[0])
    for piece in pieces:
        if due is None or intact_generation(piece) != due:
            return False
        due += 1
    return decode(pieces[0], KIND_CONSUMER, directory, opener)[1].get("op") == HEAD


def read_list(found: Iterable[tuple[str, bytes | OSError]], opener: Opener) -> ConsumerList:
    """Return the list that results from both copies; `found` has the path of each copy, and its bytes or error.

    Raises UnknownFormat or Locked, as `load_list` does.
    """
    opener.saw_plain = False
    copies: list[Copy] = []
    same: bytes | None = None
    for path, data in found:
        if isinstance(data, OSError):
            what = "it is missing" if isinstance(data, FileNotFoundError) else f"it cannot be read: {data}"
            copies.append(Copy(path, problems=[Problem(path, 0, what, False)], is_absent=True))
        elif copies and same == data and not copies[0].problems:
            copies.append(copies[0])
        else:
            same = data
            copies.append(_parsed(path, data, opener))
    merged = _merged(copies)
    merged.sealed = opener.key is None or not opener.saw_plain
    return merged


def _parsed(path: str, data: bytes, opener: Opener) -> Copy:
    """Return the intact entries of a copy of the list, and its damaged places."""
    copy = Copy(path, size=len(data))
    before, *pieces = data.split(MARK)
    at = len(before)
    if before:
        torn = not pieces and MARK.startswith(before.rstrip(b"\0"))
        copy.problems.append(Problem(path, 0, f"{at} bytes do not fit", torn))
        copy.ends_damaged = not torn
    for index, piece in enumerate(pieces):
        problem = _read_piece(copy, piece, at, index == len(pieces) - 1, opener)
        if problem is not None:
            copy.problems.append(problem)
        copy.ends_damaged = problem is not None and not problem.torn
        at += len(MARK) + len(piece)
    return copy


def _read_piece(copy: Copy, piece: bytes, at: int, is_last: bool, opener: Opener) -> Problem | None:
    """Add the entry whose mark is at offset `at`; return its damage, or None if it is intact."""
    size = min(envelope_size(piece) or len(piece), len(piece))
    try:
        number, values = decode(piece[:size], KIND_CONSUMER, copy.path, opener)
        copy.entries[number] = _checked(copy.path, number, values)
    except CorruptRecord as error:
        return Problem(copy.path, at, error.reason, is_last and is_torn(piece))
    rest = piece[size:]
    if not rest:
        return None
    torn = is_last and MARK.startswith(rest.rstrip(b"\0"))
    return Problem(copy.path, at + len(MARK) + size, f"{len(rest)} bytes do not fit", torn)


def _checked(path: str, number: int, values: dict[str, Any]) -> dict[str, Any]:
    """Return `values`. Raises CorruptRecord if they are not a valid entry."""
    op = values.get("op")
    fits = 0 < number < NUMBER_MAX
    if op == HEAD:
        fits = fits and _is_number(values.get("count"), number + NUMBER_MAX)
    elif op in (PUT, DROP):
        fits = fits and isinstance(values.get("name"), str) and _is_number(values.get("id"), number)
    if op == PUT:
        fits = fits and isinstance(values.get("config"), dict) and isinstance(values.get("created_ns"), int)
        fits = fits and isinstance(values.get("state", b""), bytes)
    if not fits or op not in (HEAD, PUT, DROP):
        raise CorruptRecord(path, 0, f"entry {number} makes no sense")
    return values


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and 0 <= value <= most


def _merged(copies: list[Copy]) -> ConsumerList:
    """Merge the entries of the copies by number."""
    found = ConsumerList(size=max((copy.size for copy in copies), default=0))
    heads = [number for copy in copies for number, each in copy.entries.items() if each["op"] == HEAD]
    base = max(heads, default=0)
    entries: dict[int, dict[str, Any]] = {}
    for copy in copies:
        entries |= {number: values for number, values in copy.entries.items() if number >= base}
    _take_entries(found, base, entries)
    there = [copy for copy in copies if not copy.is_absent]
    if there and all(copy.ends_damaged and copy.last == found.last for copy in there):
        found.last += 1
        found.gaps.append((found.last, found.last))
    for copy in dict.fromkeys(copies):
        found.problems += copy.problems
        missing = len(entries.keys() - copy.entries.keys())
        if missing and not copy.problems:
            found.problems.append(Problem(copy.path, copy.size, f"it lacks {missing} entries", True))
        found.clean = found.clean and not copy.problems and not missing
    if all(each.torn for each in found.problems) and {copy.last for copy in copies} == {found.last}:
        found.problems = []  # a creation that was not finished was never acknowledged, so this is no problem
    return found


def _take_entries(found: ConsumerList, base: int, entries: dict[int, dict[str, Any]]) -> None:
    """Apply `entries` to the list in the order of their numbers, and note missing numbers as gaps."""
    due = base if base else min(entries, default=0)
    if entries and not base:  # the head is lost, and perhaps the entries that follow it
        found.gaps.append((0, due - 1))
    for number in sorted(entries):
        values = entries[number]
        if number > due:
            found.gaps.append((due, number - 1))
        due = number + 1
        if values["op"] == PUT:
            _put(found.live, values)
        elif values["op"] == DROP:
            name, ident = values["name"], values["id"]
            found.dropped.add((name, ident))
            if name in found.live and found.live[name].ident == ident:
                del found.live[name]
    whole = base + entries[base]["count"] if base else 0
    if base and due <= whole:
        found.gaps.append((due, whole))
        due = whole + 1
    found.last, found.count = max(due - 1, 0), len(entries)


def _put(live: dict[str, Listed], values: dict[str, Any]) -> None:
    name, ident = values["name"], values["id"]
    known = live.get(name)
    state = values.get("state")
    if known is not None and known.ident == ident:
        known.config, known.created_ns = values["config"], values["created_ns"]
    else:
        live[name] = Listed(name, ident, values["created_ns"], values["config"], state)

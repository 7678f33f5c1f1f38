"""Option tables: their rows, and the reader of a block of a file.

This module knows nothing of single options. A row has the name of a key, the reader of its value, a check, a line of
documentation, and the attributes that the key sets on the target of the block. It also states whether a running
server can apply a change. Names, types and texts of the rows are also used in docs/configuration.md and for the
keyword arguments in aio/keys.py. Keys of nats-server that have no effect in this server also have rows, which give
the reason; such a key is refused by name, never accepted and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyjs.config.errors import Place, Problem, Refused, suggestion
from pyjs.config.values import ConfigMap, Entry, Value, describe, note_repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


PROBLEMS_MAX = 50  # maximum number of problems shown


@dataclass(eq=False, repr=False, frozen=True, slots=True)
class Kind:
    """A kind of option value: its name in error messages, and the function that reads it."""

    name: str
    read: Callable[[Reading, Key, Value, object], object]
    # The Python type of a value that a program passes, as source text; {} stands for the type of the block `table`.
    python: str
    table: Table | None = None


@dataclass(eq=False, repr=False, frozen=True, slots=True)
class Key:
    """A row of an option table: a key that has an effect."""

    name: str
    kind: Kind
    doc: str  # one line for users, which states the unit
    aliases: tuple[str, ...] = ()
    # gets the value that was read; raises Refused
    check: Callable[[Reading, Key, Value, object], None] | None = None
    # Attributes of the target, dotted if nested; a tuple sets several. Default: the name of the key.
    attrs: tuple[str, ...] = ()
    reloadable: bool = False
    zero_is_default: bool = False  # 0 and "" mean the default
    secret: bool = False  # error texts never show its value

    def __post_init__(self) -> None:
        if not self.attrs:
            object.__setattr__(
                self, "attrs", (f"{self.name}_ns" if self.kind.name == "duration" else self.name,)
            )


class Unsupported(NamedTuple):
    """A key of nats-server that has no effect here, with all of its names and the reason."""

    names: tuple[str, ...]
    reason: str


class Table:
    """The option table of one block of the configuration file."""

    def __init__(self, path: str, keys: Iterable[Key], unsupported: Iterable[Unsupported] = ()) -> None:
        self.path = path  # the attribute of Options that the block fills, dotted; "": the top level
        self.keys = tuple(keys)
        self.unsupported = tuple(unsupported)
        self.key_by_name = {name: key for key in self.keys for name in (key.name, *key.aliases)}
        self.reason_by_name = {name: row.reason for row in self.unsupported for name in row.names}


class Reading:
    """The results of reading a file: problems, warnings, repeated keys, and the place of each attribute."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.twice: list[Problem] = []
        self.places: dict[str, Place] = {}  # by dotted attribute of Options
        self.user_places: dict[str, Place] = {}  # where each user name was first given
        self.read_file: Callable[[str], str] | None = (
            None  # reads the files that a value names; None: files cannot be read
        )

    def warn(self, place: Place, cause: str, fix: str) -> None:
        """Add a warning about a valid setting that is probably a mistake."""
        self.warnings.append(Problem(place, cause, fix))


def read_block(reading: Reading, table: Table, entries: ConfigMap, target: object) -> None:
    """Set the attributes of `target` from `entries`; collect problems in `reading`."""
    _note_other_spellings(reading, table, entries)
    for entry in entries.values():
        if len(reading.problems) >= PROBLEMS_MAX:
            return
        try:
            _read_entry(reading, table, entry, target)
        except Refused as refused:
            reading.problems.append(refused.problem)


def _note_other_spellings(reading: Reading, table: Table, entries: ConfigMap) -> None:
    """Add a warning for each key that occurs twice in the block, in different case or under an alias."""
    first: dict[str, Entry] = {}
    for entry in entries.values():
        key = table.key_by_name.get(entry.key.lower())
        earlier = first.setdefault(key.name, entry) if key is not None else entry
        if earlier is not entry:
            note_repeated(reading.twice, earlier, entry)


def _read_entry(reading: Reading, table: Table, entry: Entry, target: object) -> None:
    name = entry.key.lower()
    key = table.key_by_name.get(name)
    if key is None:
        if not entry.used:
            _refuse_name(table, entry)
        return
    data = key.kind.read(reading, key, entry.value, target)
    if key.check is not None:
        key.check(reading, key, entry.value, data)
    if key.zero_is_default and not data:
        return
    parts = data if len(key.attrs) > 1 else (data,)
    assert isinstance(parts, tuple)
    for attr, part in zip(key.attrs, parts, strict=True):
        assign(target, attr, part)
        reading.places[f"{table.path}.{attr}".lstrip(".")] = entry.place


def _refuse_name(table: Table, entry: Entry) -> None:
    name = entry.key.lower()
    reason = table.reason_by_name.get(name)
    if reason is not None:
        fix = "remove it to start without it"
        raise Refused(entry.place, f'"{entry.key}" is not supported yet: {reason}', fix)
    cause = f'unknown field "{entry.key}"'
    few = ", ".join(key.name for key in table.keys) if len(table.keys) < 12 else ""
    otherwise = f"the keys here are {few}" if few else "remove it, or refer to it as a $variable"
    # Suggest a supported key in preference to a refused one.
    otherwise = suggestion(entry.key, table.reason_by_name, otherwise)
    otherwise = suggestion(entry.key, table.key_by_name, otherwise)
    raise Refused(entry.place, cause, suggestion(entry.key, [key.name for key in table.keys], otherwise))


def assign(target: object, attr: str, data: object) -> None:
    """Set the dotted attribute `attr` of `target`."""
    *path, last = attr.split(".")
    for step in path:
        target = getattr(target, step)
    setattr(target, last, data)


def wrong_type(key: Key, value: Value, expected: str, fix: str) -> Refused:
    """Return, without raising it, the exception that refuses a value of the wrong type."""
    return Refused(value.place, f'"{key.name}" expects {expected}, found {describe(value, key.secret)}', fix)

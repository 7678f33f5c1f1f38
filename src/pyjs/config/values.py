"""The parsed contents of a configuration file: values with their places, not yet interpreted.

Knows nothing of option names. A map keeps its entries in the order in which they were set last, under the
exact spelling of their keys; readers compare keys without case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.config.errors import Place, Problem

if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypeAlias

REPEATED_MAX = 50  # reported keys that are set twice

Data: TypeAlias = "str | int | float | bool | datetime | list[Value] | ConfigMap"


@dataclass(slots=True)
class Value:
    """One value with its place, and the text of a bare word ("2m" for 2000000)."""

    data: Data
    place: Place
    raw: str = ""


@dataclass(eq=False, repr=False, slots=True)
class Entry:
    """A key with its value in a map."""

    key: str
    place: Place
    value: Value
    used: bool = False  # a $variable refers to it, so it may have any name


class ConfigMap(dict[str, Entry]):
    """Entries by key; setting a key again moves it to the end."""

    def put(self, entry: Entry) -> None:
        """Add `entry`; replace an earlier one of exactly the same name."""
        self.pop(entry.key, None)
        self[entry.key] = entry


def note_repeated(noted: list[Problem], first: Entry, second: Entry) -> None:
    """Add the warning about a key that is set twice in its block; over an included file it may be meant."""
    if first.place.file != second.place.file or len(noted) >= REPEATED_MAX:
        return
    name = "" if first.key == second.key else f' as "{first.key}"'
    cause = (
        f'"{second.key}" is set twice in this block, first{name} at {first.place}, and the last one counts'
    )
    noted.append(Problem(second.place, cause, "remove one of the two"))


def describe(value: Value, secret: bool = False) -> str:
    """Return a description of `value` for error texts; a secret is not shown."""
    data = value.data
    if isinstance(data, ConfigMap):
        return "a map"
    if isinstance(data, list):
        return "a list"
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, str):
        return "a string" if secret else f'the string "{data}"'
    if isinstance(data, int | float):
        return "a number" if secret else f"the number {value.raw or data}"
    return "a date"

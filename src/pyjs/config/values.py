"""The parsed contents of a configuration file: values with their places, not interpreted yet.

This module knows nothing of option names. A map has its entries in the order in which they were last set, under the
exact spelling of their keys; readers ignore the case of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.config.errors import Place, Problem

if TYPE_CHECKING:
    from datetime import datetime
    from typing import TypeAlias

REPEATED_MAX = 50  # maximum number of keys reported as set twice

Data: TypeAlias = "str | int | float | bool | datetime | list[Value] | ConfigMap"


@dataclass(slots=True)
class Value:
    """A parsed value with its place. `raw` is the source text of a bare word, such as "2m" for 2000000."""

    data: Data
    place: Place
    raw: str = ""


@dataclass(eq=False, repr=False, slots=True)
class Entry:
    """A key with its value, as an element of a map."""

    key: str
    place: Place
    value: Value
    used: bool = False  # a $variable refers to the entry, so its key may have any name


class ConfigMap(dict[str, Entry]):
    """A parsed map: its entries by key, in the order in which `put` last set them."""

    def put(self, entry: Entry) -> None:
        """Add `entry` at the end, in place of an earlier entry with exactly the same key."""
        self.pop(entry.key, None)
        self[entry.key] = entry


def note_repeated(noted: list[Problem], first: Entry, second: Entry) -> None:
    """Add a problem to `noted` for a key that is set twice in a block.

    Do nothing if the two entries are in different files, or if `noted` is full.
    """
    if first.place.file != second.place.file or len(noted) >= REPEATED_MAX:
        return
    name = "" if first.key == second.key else f' as "{first.key}"'
    cause = (
        f'"{second.key}" is set twice in this block, first{name} at {first.place}, and the last one counts'
    )
    noted.append(Problem(second.place, cause, "remove one of the two"))


def describe(value: Value, secret: bool = False) -> str:
    """Return a description of `value` for error messages; `secret` hides the value."""
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


# The digest of a configuration


# Characters that nats-server's encoder writes as escapes in a JSON string.
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), *map(ord, "<>&"), 0x2028, 0x2029)}
_ESCAPES |= {ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
_ESCAPES |= dict.fromkeys(range(0xDC80, 0xDD00), "\ufffd")  # invalid UTF-8


def config_digest(config: ConfigMap) -> str:
    """Return `sha256:` and the digest of `config` in hex, which equals nats-server's digest.

    The input of the digest is the parsed map as compact JSON with sorted keys, and a line end. Comments, the order of
    keys and the spelling of numbers do not change the digest; unused variables change it. Source:
    tests/unit/config/test_peer.py.
    """
    import hashlib  # imported lazily, since it takes 4 ms and only configuration files need it

    return "sha256:" + hashlib.sha256(f"{_json(config)}\n".encode()).hexdigest()


def _json(data: Data) -> str:
    if isinstance(data, ConfigMap):
        pairs = sorted(data.items(), key=lambda pair: pair[0].encode("utf-8", "surrogateescape"))
        return "{" + ",".join(f"{_string(key)}:{_json(entry.value.data)}" for key, entry in pairs) + "}"
    if isinstance(data, list):
        return "[" + ",".join(_json(value.data) for value in data) + "]"
    if isinstance(data, str):
        return _string(data)
    if isinstance(data, bool):
        return "true" if data else "false"
    if isinstance(data, int):
        return str(data)
    if isinstance(data, float):
        return str(int(data)) if data.is_integer() else repr(data)
    return f'"{data:%Y-%m-%dT%H:%M:%SZ}"'


def _string(text: str) -> str:
    return '"' + text.translate(_ESCAPES) + '"'

"""Strict JSON: request bodies decoded against a table of fields, with nats-server's error texts.

A request is read as the peer's decoder reads it: unknown fields are refused, names match without regard to
case, null leaves a field unset, several objects in a row are merged, and the first fault in document order
is the one reported. Knows nothing of what a field means: a `Struct` names fields and their kinds, written by
hand or derived from a pydantic model (jetstream/models.py). Imports no pydantic, so that the pull path may
use it.

Common requests cost one orjson call and a walk; text positions and raw number forms are only looked up, by
the scanner in json_scan.py, once something is wrong.

Source: error texts probed on nats-server 2.15.1, see tests/unit/jetstream/test_json_strict.py.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import orjson

from pyjs.jetstream.json_scan import JsonFault, Scan, scan

if TYPE_CHECKING:
    from typing import Any, TypeAlias

__all__ = ["JsonFault", "Kind", "Struct", "decode", "parse_time_ns"]

JsonObject: TypeAlias = "dict[str, Any]"
Path = tuple[str | int, ...]

_INT_RANGES = {
    "int": (-(2**63), 2**63 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint64": (0, 2**64 - 1),
    "time.Duration": (-(2**63), 2**63 - 1),
}


class Struct:
    """An object with named fields; `name` is how error texts call it."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Kind]) -> None:
        self.name = name
        self.fields = fields


class Kind:
    """What a field holds.

    `name` is a number kind of _INT_RANGES, "string", "bool", "float64", "time.Time", "enum", "struct", "list"
    or "map"; `shown` is its name in error texts where that differs.
    """

    __slots__ = ("item", "name", "shown", "struct", "unknown_text", "words")

    def __init__(
        self,
        name: str,
        shown: str = "",
        item: Kind | None = None,
        struct: Struct | None = None,
        words: tuple[str, ...] = (),
        unknown_text: str = "",
    ) -> None:
        self.name = name
        self.shown = shown
        self.item = item  # of list and map
        self.struct = struct
        self.words = words  # of enum
        self.unknown_text = (
            unknown_text  # enum: the whole error text for an unknown word; "" is the common form
        )

    def title(self) -> str:
        """Return the kind's name in error texts."""
        return self.shown or self.name


STRING = Kind("string")
BOOL = Kind("bool")
INT = Kind("int")
INT32 = Kind("int32")
INT64 = Kind("int64")
UINT64 = Kind("uint64")
DURATION = Kind("time.Duration")
TIME = Kind("time.Time")
STRINGS = Kind("list", "[]string", STRING)
DURATIONS = Kind("list", "[]time.Duration", DURATION)
STRING_MAP = Kind("map", "map[string]string", STRING)


def enum(*words: str, unknown_text: str = "") -> Kind:
    """Return the kind of a field that takes one of `words`."""
    return Kind("enum", words=words, unknown_text=unknown_text)


def struct(fields: Struct) -> Kind:
    """Return the kind of a field that holds an object."""
    return Kind("struct", f"server.{fields.name}", struct=fields)


def structs(fields: Struct, shown: str = "") -> Kind:
    """Return the kind of a field that holds a list of objects."""
    return Kind("list", shown or f"[]*server.{fields.name}", struct(fields))


def decode(body: bytes, root: Struct, strict: bool = True) -> JsonObject:
    """Return the fields that `body` sets, by their exact names, values checked against `root`.

    With `strict` false unknown fields are left out instead of refused. An empty body sets nothing.

    Raises:
        JsonFault: with the text that follows "invalid JSON: ".
    """
    try:
        document = orjson.loads(body)
        found: Scan | None = None
    except orjson.JSONDecodeError:
        found = scan(body)
        if not found.documents:
            return {}
        document = found.documents[0]
    reader = _Reader(body, root, strict, found)
    merged = reader.root_fields(document)
    for extra in found.documents[1:] if found else ():
        merged.update(reader.root_fields(extra))
    return merged


class _Reader:
    """One decode under way: checks values, words the first fault."""

    def __init__(self, body: bytes, root: Struct, strict: bool, found: Scan | None) -> None:
        self._body = body
        self._root = root
        self._strict = strict
        self._found = found

    def root_fields(self, document: object) -> JsonObject:
        if document is None:
            return {}
        if not isinstance(document, dict):
            shown = _json_type(document)
            raise JsonFault(f"json: cannot unmarshal {shown} into Go value of type server.{self._root.name}")
        return self._fields(document, self._root, ())

    def _fields(self, document: JsonObject, into: Struct, path: Path) -> JsonObject:
        out: JsonObject = {}
        for key, value in document.items():
            name = key if key in into.fields else _folded(key, into)
            if name is None:
                if self._strict:
                    raise JsonFault(f'json: unknown field "{key}"')
                continue
            kind = into.fields[name]
            if value is not None or kind.name == "enum":
                out[name] = self._value(value, kind, (*path, name), key)
        return out

    def _value(self, value: object, kind: Kind, path: Path, key: str | int) -> object:
        name = kind.name
        if name in _INT_RANGES:
            low, high = _INT_RANGES[name]
            if type(value) is int and low <= value <= high:
                return value
        elif name == "string":
            if type(value) is str:
                return value
        elif name == "bool":
            if type(value) is bool:
                return value
        elif name == "float64":
            if type(value) in (int, float):
                return value
        elif name == "enum":
            return self._word(value, kind, path)
        elif name == "time.Time":
            if type(value) is str:
                return _checked_time(value)
        elif name == "struct" and type(value) is dict:
            assert kind.struct is not None
            return self._fields(value, kind.struct, path)
        elif name == "list" and type(value) is list:
            return self._items(value, kind, path)
        elif name == "map" and type(value) is dict:
            assert kind.item is not None
            return {k: self._value(v, kind.item, (*path, k), k) for k, v in value.items() if v is not None}
        raise JsonFault(self._mismatch(value, kind, path))

    def _items(self, values: list[object], kind: Kind, path: Path) -> list[object]:
        item = kind.item
        assert item is not None
        empty: object = {} if item.name == "struct" else "" if item.name == "string" else 0
        return [
            empty if v is None and item.name != "enum" else self._value(v, item, (*path, i), i)
            for i, v in enumerate(values)
        ]

    def _word(self, value: object, kind: Kind, path: Path) -> str:
        if type(value) is str and value in kind.words:
            return value
        if kind.unknown_text:
            if type(value) is str or "{raw}" in kind.unknown_text:
                raise JsonFault(kind.unknown_text.replace("{raw}", self._raw(path)))
            raise JsonFault(f"json: cannot unmarshal {_json_type(value)} into Go value of type string")
        raise JsonFault(f"can not unmarshal {_go_quoted(self._raw(path))}")

    def _mismatch(self, value: object, kind: Kind, path: Path) -> str:
        shown = _json_type(value)
        if shown == "number" and kind.name in _INT_RANGES:
            shown = f"number {self._raw(path)}"
        dotted = ".".join(str(part) for part in (self._root.name, *path))
        into = dotted if isinstance(path[-1], int) else f"Go struct field {dotted}"
        return f"json: cannot unmarshal {shown} into {into} of type {kind.title()}"

    def _raw(self, path: Path) -> str:
        if self._found is None:
            self._found = scan(self._body)
        folded = tuple(part.lower() if isinstance(part, str) else part for part in path)
        return self._found.raw.get(folded, "")


def _folded(key: str, into: Struct) -> str | None:
    lowered = key.lower()
    return next((name for name in into.fields if name.lower() == lowered), None)


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _go_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _checked_time(text: str) -> str:
    try:
        parse_time_ns(text)
    except ValueError:
        raise JsonFault(f'parsing time "{text}"{_time_fault(text)}') from None
    return text


_TIME_PARTS = (
    ("2006", r"\d{4}", ""),
    ("-", "-", ""),
    ("01", r"\d\d", "month"),
    ("-", "-", ""),
    ("02", r"\d\d", "day"),
    ("T", "T", ""),
    ("15", r"\d\d", "hour"),
    (":", ":", ""),
    ("04", r"\d\d", "minute"),
    (":", ":", ""),
    ("05", r"\d\d", "second"),
    ("Z07:00", r"(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)", ""),
)
_TIME_RANGES = {"month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}


def _time_fault(text: str) -> str:
    """Return what a text error says of the first part of `text` that is no part of an RFC 3339 time."""
    rest = text
    for part, form, name in _TIME_PARTS:
        found = re.match(form, rest)
        if found is None:
            layout = "".join(each for each, _, _ in _TIME_PARTS)
            return f' as "{layout}": cannot parse "{rest}" as "{part}"'
        low, high = _TIME_RANGES.get(name, (0, 0))
        if name and not low <= int(found[0]) <= high:
            return f": {name} out of range"
        rest = rest[found.end() :]
    return f': extra text: "{rest}"' if rest else ": day out of range"


def parse_time_ns(text: str) -> int:
    """Return the nanoseconds since the epoch of an RFC 3339 time; at most nine digits of a second count.

    Raises:
        ValueError: it is not an RFC 3339 time.
    """
    if len(text) < 20 or text[10] not in "Tt":
        raise ValueError(f"not an RFC 3339 time: {text}")
    head, rest = text[:19], text[19:]
    fraction = 0
    if rest.startswith("."):
        digits = len(rest) - 1 - len(rest[1:].lstrip("0123456789"))
        fraction = int((rest[1 : 1 + digits] + "000000000")[:9])
        rest = rest[1 + digits :]
    zone = "+00:00" if rest in ("Z", "z") else rest
    if len(zone) != 6:
        raise ValueError(f"not an RFC 3339 time: {text}")
    at = datetime.fromisoformat(head + zone)
    since = at - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (since.days * 86400 + since.seconds) * 1_000_000_000 + fraction

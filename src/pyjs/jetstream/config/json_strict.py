"""Strict JSON: request bodies decoded against a table of fields, with nats-server's error messages.

A request is decoded as nats-server does it: unknown fields are refused, names match regardless of case, null leaves a
field unset, several objects one after another are merged, and the first error in document order is reported. This
module knows nothing of the meaning of fields. A `Struct` lists fields and their kinds; it is written by hand or
derived from declared options (jetstream/config/declared.py).

A valid request takes one orjson call and a walk. Only after a fault does the scanner in base/json_scan.pyx look up
text positions and the raw text of numbers.

Source: error messages probed on nats-server 2.15.1, see tests/unit/jetstream/config/test_json_strict.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from pyjs.base.bounds import NUMBERS, TIME_NS
from pyjs.base.gotext import DAY_OF_1970, NS_PER_S, day_of
from pyjs.base.json_scan import JsonFault, documents, raw_text

if TYPE_CHECKING:
    from typing import Any, TypeAlias

__all__ = ["JsonFault", "Kind", "Struct", "decode", "parse_time_ns"]

JsonObject: TypeAlias = "dict[str, Any]"
Path = tuple[str | int, ...]


@dataclass(eq=False, repr=False, slots=True)
class Struct:
    """The fields of a JSON object; `name` is its name in error messages."""

    name: str
    fields: dict[str, Kind]
    of: type[Any] | None = None  # the dataclass that declares the fields


@dataclass(eq=False, repr=False, slots=True)
class Kind:
    """The type of a field.

    `name` is a number kind of base/bounds, "string", "bool", "time.Time", "enum", "struct", "list"
    or "map"; `shown` is its name in error messages, if that differs.
    """

    name: str
    shown: str = ""
    item: Kind | None = None  # for a list and a map
    struct: Struct | None = None
    words: tuple[str, ...] = ()  # for an enum: its words
    unknown_text: str = ""  # for an enum: the whole error text for an unknown word; "": the default text

    def title(self) -> str:
        """Return the kind's name in error messages."""
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
    """Return the kind of a field whose value is one of `words`."""
    return Kind("enum", words=words, unknown_text=unknown_text)


def struct(fields: Struct) -> Kind:
    """Return the kind of a field whose value is an object."""
    return Kind("struct", f"server.{fields.name}", struct=fields)


def structs(fields: Struct, shown: str = "") -> Kind:
    """Return the kind of a field whose value is a list of objects."""
    return Kind("list", shown or f"[]*server.{fields.name}", struct(fields))


def decode(body: bytes, root: Struct, strict: bool = True) -> JsonObject:
    """Return the fields in `body` by their exact names, with values checked against `root`.

    If `strict` is false, unknown fields are omitted instead of refused. An empty body sets no fields.

    Raises:
        JsonFault: `body` is invalid; the exception's message follows "invalid JSON: " in answers.
    """
    reader = _Reader(body, root, strict)
    try:
        return reader.root_fields(orjson.loads(body))
    except orjson.JSONDecodeError:
        pass  # invalid, several documents, or beyond the limits of orjson
    merged: JsonObject = {}
    for document in documents(body):
        merged.update(reader.root_fields(document))
    return merged


class _Reader:
    """One call of `decode`, which checks values and composes the error message for the first invalid one."""

    def __init__(self, body: bytes, root: Struct, strict: bool) -> None:
        self._body = body
        self._root = root
        self._strict = strict
        self._minus_zero = b"-0" in body  # -0 is not a valid value of an unsigned field

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
        if name in NUMBERS:
            low, high = NUMBERS[name]
            if type(value) is int and low <= value <= high and not self._is_minus_zero(value, low, path):
                return value
        elif name == "string":
            if type(value) is str:
                return value
        elif name == "bool":
            if type(value) is bool:
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
        if shown == "number" and kind.name in NUMBERS:
            shown = f"number {self._raw(path)}"
        dotted = ".".join(str(part) for part in (self._root.name, *path))
        into = dotted if isinstance(path[-1], int) else f"Go struct field {dotted}"
        return f"json: cannot unmarshal {shown} into {into} of type {kind.title()}"

    def _is_minus_zero(self, value: int, low: int, path: Path) -> bool:
        return self._minus_zero and value == low == 0 and self._raw(path) == "-0"

    def _raw(self, path: Path) -> str:
        return raw_text(self._body, tuple(part.lower() if isinstance(part, str) else part for part in path))


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
        raise JsonFault(f"parsing time {_go_text(text)}{_time_fault(text)}") from None
    return text


def _go_text(text: str) -> str:
    """Return `text` in quotes, as Go's time errors do, with hex for each byte that is not printable ASCII."""
    shown = "".join(chr(c) if 32 <= c < 127 else f"\\x{c:02x}" for c in text.encode())
    return '"' + shown.replace('"', '\\"') + '"'


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_TIME_PARTS = tuple(
    (part, re.compile(form, re.ASCII), name)
    for part, form, name in (
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
        ("Z07:00", r"(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", ""),
    )
)
_TIME_RANGES = {"month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}


def _time_fault(text: str) -> str:
    """Return the part of the error message that names the first invalid part of an RFC 3339 time."""
    rest = text
    for part, form, name in _TIME_PARTS:
        found = form.match(rest)
        if found is None:
            layout = "".join(each for each, _, _ in _TIME_PARTS)
            return f' as "{layout}": cannot parse {_go_text(rest)} as "{part}"'
        low, high = _TIME_RANGES.get(name, (0, 0))
        if name and not low <= int(found[0]) <= high:
            return f": {name} out of range"
        rest = rest[found.end() :]
    return f": extra text: {_go_text(rest)}" if rest else ": day out of range"


def parse_time_ns(text: str) -> int:
    """Return an RFC 3339 time in nanoseconds since the epoch.

    In the fraction, digits after the ninth are ignored. A time before year 0 or after year 9999 in UTC is clamped,
    since RFC 3339 has no other years.

    Raises:
        ValueError: `text` is not an RFC 3339 time.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"not an RFC 3339 time: {text}")
    year, month, day, hour, minute, second = (int(found[each]) for each in range(1, 7))
    away = int(found[9] or 0) * 60 + int(found[10] or 0)  # offset in minutes
    if hour > 23 or minute > 59 or second > 59 or away > 23 * 60 + 59 or int(found[10] or 0) > 59:
        raise ValueError(f"not an RFC 3339 time: {text}")
    seconds = (day_of(year, month, day) - DAY_OF_1970) * 86400 + hour * 3600 + minute * 60 + second
    seconds += away * 60 if found[8] == "-" else -away * 60
    return TIME_NS.clamp(seconds * NS_PER_S + int(((found[7] or "") + "000000000")[:9]))

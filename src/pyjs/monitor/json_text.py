"""JSON in the form of Go's encoding/json: indented by two, with `<`, `>`, `&` escaped and `1.0` written as `1`."""

from __future__ import annotations

import orjson

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
JsonDict = dict[str, JsonValue]


def pretty_json(value: object) -> bytes:
    """Return `value` as indented JSON."""
    return _escaped(orjson.dumps(value, option=orjson.OPT_INDENT_2))


def pretty_piece(value: object, depth: int) -> object:
    """Return the text of `value`, indented by `depth` levels, as a fragment for pretty_json."""
    text = _escaped(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    return orjson.Fragment(text.replace(b"\n", b"\n" + b"  " * depth))


def pretty_items(values: list[JsonDict], depth: int) -> bytes:
    """Return `values` as the text of list items, indented by `depth` levels; the first line is not indented."""
    text = _escaped(orjson.dumps(values, option=orjson.OPT_INDENT_2))
    return text[len(b"[\n  ") : -len(b"\n]")].replace(b"\n", b"\n" + b"  " * (depth - 1))


def pretty_pieces(value: JsonDict, name: str, items: list[bytes]) -> list[bytes]:
    """Return the indented JSON of `value`, with the list of `items` added as its last member `name`, in pieces.

    `value` and `items` must not be empty.
    """
    begin = pretty_json(value)[: -len(b"\n}")] + b',\n  "%b": [\n    ' % name.encode()
    pieces = [begin]
    for item in items:
        pieces += (item, b",\n    ")
    pieces[-1] = b"\n  ]\n}"
    return pieces


def compact_json(value: object) -> bytes:
    """Return `value` as JSON in one line without spaces."""
    return _escaped(orjson.dumps(value))


def _escaped(text: bytes) -> bytes:
    return text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def filled(fields: JsonDict) -> JsonDict:
    """Return only the fields that are not empty, like Go's `omitempty`."""
    return {name: value for name, value in fields.items() if value}


def number(value: float) -> int | float:
    """Return a whole number as an int, as Go writes it, and any other number unchanged."""
    return int(value) if value == int(value) else value


def text(raw: bytes) -> str:
    """Return wire bytes as text; invalid UTF-8 is replaced, as in Go."""
    return raw.decode("utf-8", "replace")

"""JSON objects of one level: INFO and the heads of PubAcks are written so, most CONNECTs are read so.

A server that has just started answers its first clients with these, since loading the JSON library takes longer than
everything else that they wait for; once it is there (base/fast_json.py), it is several times faster. `read_flat`
leaves to the library what is not plain, right or wrong: it knows strings of printable ASCII without escapes, whole
numbers, true, false and null. Knows nothing of field names.

Source: RFC 8259; tests/unit/core/test_flat_json.py holds both functions against the library.
"""

from __future__ import annotations

from pyjs.base import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

Plain: TypeAlias = "str | int | bool | None"

_CONSTANTS = {"true": True, "false": False, "null": None}
_CONSTANT_OF = {True: "true", False: "false"}
# What stands between two names, where the value is no string, as most clients write it.
_COMMON = {
    f":{blank}{word}{comma}": (value, comma.strip(" "))
    for word, value in [*_CONSTANTS.items(), ("0", 0), ("1", 1)]
    for blank, comma in [("", ","), ("", ""), (" ", ", "), (" ", "")]
}
_DIGITS_MAX = 18  # of a whole number that surely fits into 64 bits
_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x20)}
_ESCAPES |= {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def write_flat(fields: dict[str, object]) -> bytes:
    """Return an object of strings, integers and booleans as UTF-8; names need no escapes."""
    plain = _is_plain("".join([value for value in fields.values() if isinstance(value, str)]))
    written = [
        f'"{name}":"{value if plain else value.translate(_ESCAPES)}"'
        if isinstance(value, str)
        else f'"{name}":{_CONSTANT_OF[value] if isinstance(value, bool) else value}'
        for name, value in fields.items()
    ]
    return f"{{{','.join(written)}}}".encode()


def _is_plain(text: str) -> bool:
    """Tell whether a text means the same with and without quotes around it."""
    return text.isprintable() and '"' not in text and "\\" not in text


def read_flat(line: bytes) -> dict[str, Plain] | None:
    """Return the fields of an object; None: it is not plain, or is none."""
    text = line.decode("latin-1").strip(" ")
    if not (text.isascii() and text.isprintable()) or "\\" in text or text[:1] != "{" or text[-1:] != "}":
        return None
    fields: dict[str, Plain] = {}
    pieces = iter(text[1:-1].split('"'))  # by turns what is outside of strings and what is inside
    between = next(pieces).strip(" ")
    for name in pieces:
        if between != ("," if fields else "") or name in fields:
            return None
        outside = next(pieces, "")
        common = _COMMON.get(outside) or _value(outside, pieces)
        if common is None:
            return None
        fields[name], between = common
    return None if between else fields


def _value(outside: str, pieces: Iterator[str]) -> tuple[Plain, str] | None:
    """Return the value that begins in `outside`, and what is between it and the next name; None: it is not plain."""
    head, colon, literal = outside.partition(":")
    literal, comma, rest = literal.partition(",")
    literal = literal.strip(" ")
    if head.strip(" ") or not colon:
        return None
    if not literal and not comma:
        text, behind = next(pieces, ""), next(pieces, None)
        return None if behind is None else (text, behind.strip(" "))
    if literal in _CONSTANTS:
        return _CONSTANTS[literal], (comma + rest).strip(" ")
    if not literal.isdigit() or len(literal) > _DIGITS_MAX or (literal[0] == "0" and literal != "0"):
        return None
    return int(literal), (comma + rest).strip(" ")

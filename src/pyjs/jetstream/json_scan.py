"""A JSON scanner that words syntax faults as nats-server does and keeps the raw text of every value.

Slow and rarely used: json_strict.py comes here only when a body is wrong or when an error text needs the raw
form of a number. Reads any number of documents in a row. Knows nothing of fields or kinds.

Source: error texts probed on nats-server 2.15.1, see tests/unit/jetstream/test_json_strict.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

Path = tuple[str | int, ...]

_BLANKS = " \t\r\n"
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_START = re.compile(r"-?(?:0|[1-9][0-9]*|)(?:(?<=[0-9])\.[0-9]*)?(?:(?<=[0-9])[eE][+-]?[0-9]*)?")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, object] = {"true": True, "false": False, "null": None}

_OFFSET = re.compile(r" at offset [0-9]+$")


class JsonFault(Exception):
    """A body that is not what the request needs; the text is what follows "invalid JSON: "."""

    def lenient_text(self) -> str:
        """Return the text of the requests that the peer reads with its lenient decoder: pull, unpin."""
        return _OFFSET.sub("", str(self)).replace("unexpected EOF", "unexpected end of JSON input")


class Scan:
    """What a body holds: its documents, and the raw text of each value of the last one by lower-case path."""

    def __init__(self) -> None:
        self.documents: list[Any] = []
        self.raw: dict[Path, str] = {}


def scan(body: bytes) -> Scan:
    """Return everything in `body`.

    Raises:
        JsonFault: it is not JSON.
    """
    scanner = _Scanner(body.decode("utf-8", "replace"))
    found = Scan()
    while scanner.skip_blanks():
        found.documents.append(scanner.value((), found.raw))
    return found


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def skip_blanks(self) -> bool:
        """Move to the next character that counts; False at the end."""
        text, at = self._text, self._at
        while at < len(text) and text[at] in _BLANKS:
            at += 1
        self._at = at
        return at < len(text)

    def value(self, path: Path, raw: dict[Path, str]) -> object:
        """Read one value, keeping raw texts under `path`."""
        char = self._need()
        start = self._at
        out: object
        if char == "{":
            out = self._object(path, raw)
        elif char == "[":
            out = self._array(path, raw)
        elif char == '"':
            out = self._string()
        elif char in "tfn":
            out = self._literal({"t": "true", "f": "false", "n": "null"}[char])
        elif char in "-0123456789":
            out = self._number()
        else:
            raise self._bad("looking for beginning of value")
        raw[path] = self._text[start : self._at]
        return out

    def _object(self, path: Path, raw: dict[Path, str]) -> dict[str, object]:
        out: dict[str, object] = {}
        self._at += 1
        if self._need() == "}":
            self._at += 1
            return out
        while True:
            if self._need() != '"':
                raise self._bad("looking for beginning of object key string")
            key = self._string()
            if self._need() != ":":
                raise self._bad("after object key")
            self._at += 1
            out[key] = self.value((*path, key.lower()), raw)
            if self._ends("}", "after object key:value pair"):
                return out

    def _array(self, path: Path, raw: dict[Path, str]) -> list[object]:
        out: list[object] = []
        self._at += 1
        if self._need() == "]":
            self._at += 1
            return out
        while True:
            out.append(self.value((*path, len(out)), raw))
            if self._ends("]", "after array element"):
                return out

    def _ends(self, closing: str, where: str) -> bool:
        char = self._need()
        if char not in (closing, ","):
            raise self._bad(where)
        self._at += 1
        return char == closing

    def _string(self) -> str:
        self._at += 1
        out: list[str] = []
        while True:
            char = self._here()
            if char == '"':
                self._at += 1
                return _paired("".join(out))
            if char < " ":
                raise self._bad("in string")
            out.append(self._escape() if char == "\\" else char)
            self._at += 1

    def _escape(self) -> str:
        self._at += 1
        char = self._here()
        if char in _ESCAPES:
            return _ESCAPES[char]
        start = self._at
        if char == "u":
            for _ in range(4):
                self._at += 1
                if self._here() not in "0123456789abcdefABCDEF":
                    break
            else:
                return chr(int(self._text[start + 1 : start + 5], 16))
        sequence = self._text[start - 1 : self._at + 1]
        raise JsonFault(f"invalid escape sequence `{sequence}` in string at offset {self._offset()}")

    def _literal(self, word: str) -> object:
        for expected in word:
            if self._here() != expected:
                raise self._bad(f"in literal {word} (expecting {_quoted(expected)})")
            self._at += 1
        return _LITERALS[word]

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        start = _NUMBER_START.match(self._text, self._at)
        assert start is not None
        if match is None or match.end() < start.end():
            self._at = start.end()
            self._here()
            raise self._bad("in numeric literal")
        self._at = match.end()
        text = match.group()
        return float(text) if any(c in text for c in ".eE") else int(text)

    def _need(self) -> str:
        if not self.skip_blanks():
            raise JsonFault("unexpected EOF")
        return self._text[self._at]

    def _here(self) -> str:
        if self._at >= len(self._text):
            raise JsonFault("unexpected EOF")
        return self._text[self._at]

    def _offset(self) -> int:
        return len(self._text[: self._at + 1].encode())

    def _bad(self, where: str) -> JsonFault:
        return JsonFault(
            f"invalid character {_quoted(self._text[self._at])} {where} at offset {self._offset()}"
        )


def _paired(text: str) -> str:
    """Return the text that halves of pairs make, as escapes name them; a half alone is U+FFFD, as in the peer."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _quoted(char: str) -> str:
    if char in "'\\":
        return f"'\\{char}'"
    names = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
    if char in names:
        return f"'{names[char]}'"
    if char < " " or char == "\x7f":
        return f"'\\x{ord(char):02x}'"
    return f"'{char}'"

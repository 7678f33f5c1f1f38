"""A cursor over the text of one configuration file, which reads keys, words and quoted strings.

This module knows nothing of maps, includes and option names: the parser requests a token, and the lexer returns
it, or raises an error that shows the text it found. Lexical rules, as in nats-server 2.15:

    comment   `#` or `//` to the end of the line, before a key or an element, or after a value
    key       bare: up to white space, `=` or `:`;  quoted: "..." or '...', nothing escaped
    string    "..." with \\t \\n \\r \\" \\\\ and \\xXX (one byte);  '...' raw;  both may span lines
    block     `(` ... a line with `)` alone; the text between them, with its line ends
    bare      up to white space , ; ] or }; with the escapes of "..."; its text decides the type:
              bool (true/false yes/no on/off), $variable, integer with suffix, float, Zulu date, or string

Two rules are more permissive than nats-server's: a list such as `[1,2,3]` may end in a number, and a word
that only starts like a number (1.5h, 10.0.0.0/8, it's) is a string instead of an error.
Source: behaviour of nats-server 2.15.1, compared in tests/unit/config/test_peer.py.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyjs.base.units import parse_number
from pyjs.config.errors import ConfigError, Place
from pyjs.config.values import Value

if TYPE_CHECKING:
    from typing import NoReturn

_BARE = re.compile(r"[^ \t\r\n;,\]}]*")
_BARE_KEY = re.compile(r"[^\s=:]+")
_BARE_PATH = re.compile(r"[^\s;}]*")
_DOUBLE_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BLOCK_END = re.compile(r"\n\)(?=\r?\n|\r?\Z)")
_GAP = re.compile(r"(?:\s+|(?:#|//)[^\n]*)+")
_NUMBER = re.compile(r"-?[0-9]+(?:[kmgtpe](?:b|ib?)?)?", re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_BCRYPT = re.compile(r"\$2[abxy]\$")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|\Z)", re.DOTALL)

_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Variable:
    """A reference `$name` in place of a value."""

    name: str
    place: Place


class Lexer:
    """A cursor over the text of one file."""

    __slots__ = ("_line_starts", "at", "file", "text")

    def __init__(self, text: str, file: str) -> None:
        self.text = text.removeprefix("\ufeff")
        self.file = file
        self.at = 0  # index of the next character
        self._line_starts = [0]
        self._line_starts += [match.end() for match in re.finditer("\n", self.text)]

    def place(self, at: int | None = None) -> Place:
        """Return the place of the character at index `at`, or of the next character if `at` is None."""
        index = self.at if at is None else at
        line = bisect_right(self._line_starts, index)
        return Place(self.file, line, index - self._line_starts[line - 1] + 1)

    def fail(self, cause: str, fix: str, at: int | None = None) -> NoReturn:
        """Raise ConfigError for the place of index `at`, or of the next character if `at` is None.

        As in nats-server, the cause in the error begins with "Parse error:".
        """
        raise ConfigError.at(self.place(at), f"Parse error: {cause}", fix)

    def peek(self) -> str:
        """Return the next character without skipping it, or "" at the end of the text."""
        return self.text[self.at : self.at + 1]

    def found(self) -> str:
        """Return a description of the next character, for error messages."""
        char = self.peek()
        if not char:
            return "the end of the file"
        return "the end of the line" if char in "\r\n" else f"'{char}'"

    def skip_gap(self) -> bool:
        """Skip white space, line ends and comments; return whether a line end was skipped."""
        match = _GAP.match(self.text, self.at)
        if match is None:
            return False
        self.at = match.end()
        return "\n" in match[0] or "\r" in match[0]

    def skip_spaces(self, newlines: bool = False) -> None:
        """Skip spaces and tabs, and also line ends if `newlines` is set, but no comments."""
        blanks = " \t\r\n" if newlines else " \t"
        while self.peek() and self.peek() in blanks:
            self.at += 1

    def take_char(self, chars: str) -> bool:
        """Skip the next character if it is one of `chars`; return whether it was skipped."""
        if self.peek() and self.peek() in chars:
            self.at += 1
            return True
        return False

    def take_key(self) -> tuple[str, bool]:
        """Read a key; return the key, and whether it was quoted."""
        quote = self.peek()
        if quote in ('"', "'"):
            return self._take_until(quote, "the key"), True
        if quote in ",;=:]":
            self.fail(f"a key is expected here, found {self.found()}", "remove it, or write a key before it")
        match = _BARE_KEY.match(self.text, self.at)
        assert match is not None
        if "{" in match[0] or "[" in match[0]:
            cause = f'the key "{match[0]}" holds a bracket'
            self.fail(cause, "put a space before the bracket, or the key in quotes")
        self.at = match.end()
        return match[0], False

    def take_path(self) -> str:
        """Read the path of an include and return it."""
        self.skip_spaces()
        if self.peek() in ('"', "'"):
            return self._take_until(self.peek(), "the path")
        match = _BARE_PATH.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[0]

    def take_scalar(self, key: str) -> Value | Variable:
        """Read a value that must not be a map or a list, and return it; `key` names it in error messages."""
        start = self.at
        quote = self.peek()
        if quote == '"':
            return Value(self._take_double_quoted(), self.place(start))
        if quote == "'":
            return Value(self._take_until("'", "the string"), self.place(start))
        if quote == "(":
            return Value(self._take_block(), self.place(start))
        match = _BARE.match(self.text, self.at)
        assert match is not None
        if match[0] in ("", "#", "//"):
            self.fail(f"{key} has no value, found {self.found()}", 'write its value after the key, or ""')
        self.at = match.end()
        return self._value_of_word(match[0], start)

    def _value_of_word(self, word: str, start: int) -> Value | Variable:
        place = self.place(start)
        if "\\" in word:
            return Value(self._unescape(word, start), place, word)
        if word.lower() in _BOOLS:
            return Value(_BOOLS[word.lower()], place, word)
        if word[0] == "$" and not _BCRYPT.match(word):
            return Variable(word[1:], place)
        if _NUMBER.fullmatch(word):
            try:
                return Value(parse_number(word), place, word)
            except ValueError as error:
                self.fail(f"{word} is too large: {error}", "write a smaller number", start)
        if _FLOAT.fullmatch(word):
            return Value(float(word), place, word)
        if _DATE.fullmatch(word):
            return self._date(word, start)
        return Value(word, place, word)

    def _date(self, word: str, start: int) -> Value:
        from datetime import datetime

        try:
            return Value(datetime.fromisoformat(word), self.place(start), word)
        except ValueError as error:
            self.fail(f"{word} is no date: {error}", "write it as 2024-01-02T03:04:05Z", start)

    def _take_until(self, quote: str, what: str) -> str:
        start = self.at + 1
        end = self.text.find(quote, start)
        if end < 0:
            self.fail(f"{what} that starts here has no end", f"close it with {quote}")
        self.at = end + 1
        return self.text[start:end]

    def _take_double_quoted(self) -> str:
        match = _DOUBLE_QUOTED.match(self.text, self.at)
        if match is None:
            self.fail("the string that starts here has no end", 'close it with "')
        start = self.at + 1
        self.at = match.end()
        return self._unescape(match[1], start) if "\\" in match[1] else match[1]

    def _take_block(self) -> str:
        match = _BLOCK_END.search(self.text, self.at)
        if match is None:
            self.fail("the block that starts here has no end", "close it with a line that holds only )")
        block = self.text[self.at + 1 : match.start() + 1]
        self.at = match.end()
        return block

    def _unescape(self, text: str, start: int) -> str:
        """Return `text`, which begins at index `start`, with its escapes replaced."""
        parts: list[bytes] = []
        done = 0
        for match in _ESCAPE.finditer(text):
            parts.append(text[done : match.start()].encode("utf-8", "surrogateescape"))
            parts.append(self._escaped_bytes(match[1], start + match.start()))
            done = match.end()
        parts.append(text[done:].encode("utf-8", "surrogateescape"))
        return b"".join(parts).decode("utf-8", "surrogateescape")

    def _escaped_bytes(self, escape: str, at: int) -> bytes:
        if len(escape) == 3:
            return bytes.fromhex(escape[1:])
        if escape not in _ESCAPES:
            cause = f"\\{escape} is no escape"
            self.fail(cause, r"use \t \n \r \" \\ or \xXX, or single quotes for a raw string", at)
        return _ESCAPES[escape].encode()

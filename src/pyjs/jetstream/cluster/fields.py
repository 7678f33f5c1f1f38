"""Packed lists whose values are read in order, each checked against its kind and its bounds.

    row = msgpack list; its values are whole numbers, strings, booleans, lists of strings, lists of rows, or a map

A packed row comes from another server or from a disk. Any bytes lead either to values or to a BadRow that names the
first wrong field. This module does not interpret the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from pyjs.base.bounds import INT64, UINT64
from pyjs.base.errors import PyjsError

if TYPE_CHECKING:
    from typing import Any

TEXT_SIZE_MAX = 4096  # maximum bytes of one text in UTF-8
TEXTS_MAX = 1024  # maximum number of texts in one list


class BadRow(PyjsError):
    """Raised if bytes are not a valid row. The exception's message names the first wrong field."""


class Row:
    """A reader of the values of one list, in order.

    Each method that reads a value raises BadRow if the value is missing or invalid; `name` is the field's name in the
    error.
    """

    def __init__(self, values: object, what: str) -> None:
        if not isinstance(values, list):
            raise BadRow(f"{what} is {_kind(values)}, not a list")
        self.what = what
        self._values = values
        self._at = 0

    @property
    def left(self) -> int:
        """The number of values that have not been read yet."""
        return len(self._values) - self._at

    def number(self, name: str, low: int = 0, high: int = UINT64.high) -> int:
        """Return the next value, an integer from `low` to `high`, or raise BadRow."""
        value = self._take(name)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(name, value, f"a number from {low} to {high}")
        return value

    def signed(self, name: str) -> int:
        """Return the next value, a signed 64-bit integer, or raise BadRow."""
        return self.number(name, INT64.low, INT64.high)

    def text(self, name: str, *, may_be_empty: bool = False) -> str:
        """Return the next value, a string of up to TEXT_SIZE_MAX bytes, or raise BadRow."""
        return self._checked_text(name, self._take(name), may_be_empty)

    def data(self, name: str, most: int) -> bytes:
        """Return the next value, a string of up to `most` bytes, or raise BadRow."""
        value = self._take(name)
        if not isinstance(value, bytes) or len(value) > most:
            raise self.wrong(name, value, f"up to {most} bytes")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the next value, a list of strings that are not empty, or raise BadRow."""
        values = self._list(name, TEXTS_MAX)
        return tuple(self._checked_text(name, each, False) for each in values)

    def numbers(self, name: str, most: int, low: int, high: int) -> tuple[int, ...]:
        """Return the next value, a list of 1 to `most` distinct integers from `low` to `high`, or raise BadRow."""
        values = self._list(name, most)
        is_good = all(type(each) is int and low <= each <= high for each in values)
        if not values or not is_good or len(set(values)) < len(values):
            raise self.wrong(name, values, f"up to {most} different numbers from {low} to {high}")
        return tuple(values)

    def flag(self, name: str) -> bool:
        """Return the next value, a boolean, or raise BadRow."""
        value = self._take(name)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def values(self, name: str) -> dict[str, Any]:
        """Return the next value, a map whose keys are strings, or raise BadRow."""
        value = self._take(name)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.wrong(name, value, "a map")
        return value

    def row(self, name: str) -> Row:
        """Return a reader of the next value, a list, or raise BadRow."""
        return Row(self._take(name), f"{name} of {self.what}")

    def rows(self, name: str, most: int) -> list[Row]:
        """Return a reader for each list in the next value, which has up to `most` lists, or raise BadRow."""
        return [Row(each, f"{name} of {self.what}") for each in self._list(name, most)]

    def end(self) -> None:
        """Raise BadRow if values are left."""
        if self.left:
            raise BadRow(f"{self.what} has {self.left} values too many")

    def wrong(self, name: str, value: object, wanted: str) -> BadRow:
        """Return the error for a field whose value is wrong."""
        return BadRow(f"{name} of {self.what} is {_kind(value)}, not {wanted}")

    def _take(self, name: str) -> object:
        if self._at == len(self._values):
            raise BadRow(f"{self.what} ends before {name}")
        self._at += 1
        return self._values[self._at - 1]

    def _list(self, name: str, most: int) -> list[Any]:
        value = self._take(name)
        if not isinstance(value, list) or len(value) > most:
            raise self.wrong(name, value, f"a list of up to {most}")
        return value

    def _checked_text(self, name: str, value: object, may_be_empty: bool) -> str:
        if not isinstance(value, str) or len(value.encode()) > TEXT_SIZE_MAX:
            raise self.wrong(name, value, f"a text of up to {TEXT_SIZE_MAX} bytes")
        if not value and not may_be_empty:
            raise BadRow(f"{name} of {self.what} is empty")
        return value


def _kind(value: object) -> str:
    """Return a short description of a value, however large it is."""
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) <= UINT64.high):
        return repr(value)
    return f"a {type(value).__name__}"


def pack(values: list[Any]) -> bytes:
    """Return the values packed as a msgpack list."""
    packed: bytes = msgpack.packb(values)
    return packed


def unpack(data: bytes, what: str, size_max: int) -> Row:
    """Return the row in `data`.

    Raises:
        BadRow: `data` is not a row, or has more than `size_max` bytes.
    """
    if len(data) > size_max:
        raise BadRow(f"{what} has {len(data)} bytes, the most are {size_max}")
    try:
        values = msgpack.unpackb(data)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise BadRow(f"{what} is not msgpack: {error}") from None
    return Row(values, what)

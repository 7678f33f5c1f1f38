"""Packed lists whose values are read in order, each checked against its kind and its bounds.

    row = msgpack list; its values are whole numbers, texts, booleans, lists of texts, lists of rows, or a map

A packed row comes from another server or from a disk. Any bytes lead either to values or to a BadRow that names the
first wrong field. Knows nothing of the meaning of the values.
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
    """Raised for bytes that are not a valid row. The exception's text names the first wrong field."""


class Row:
    """The values of one packed list, which are checked and read one after another."""

    def __init__(self, values: object, what: str) -> None:
        if not isinstance(values, list):
            raise BadRow(f"{what} is {_kind(values)}, not a list")
        self.what = what
        self._values = values
        self._at = 0

    @property
    def left(self) -> int:
        """The number of values that were not read yet."""
        return len(self._values) - self._at

    def number(self, name: str, low: int = 0, high: int = UINT64.high) -> int:
        """Read an integer in [low, high]."""
        value = self._take(name)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(name, value, f"a number from {low} to {high}")
        return value

    def signed(self, name: str) -> int:
        """Read a signed 64-bit integer."""
        return self.number(name, INT64.low, INT64.high)

    def text(self, name: str, *, may_be_empty: bool = False) -> str:
        """Read a string."""
        return self._checked_text(name, self._take(name), may_be_empty)

    def data(self, name: str, most: int) -> bytes:
        """Read up to `most` bytes."""
        value = self._take(name)
        if not isinstance(value, bytes) or len(value) > most:
            raise self.wrong(name, value, f"up to {most} bytes")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of strings."""
        values = self._list(name, TEXTS_MAX)
        return tuple(self._checked_text(name, each, False) for each in values)

    def numbers(self, name: str, most: int, low: int, high: int) -> tuple[int, ...]:
        """Read a list of 1 to `most` distinct integers in [low, high]."""
        values = self._list(name, most)
        is_good = all(type(each) is int and low <= each <= high for each in values)
        if not values or not is_good or len(set(values)) < len(values):
            raise self.wrong(name, values, f"up to {most} different numbers from {low} to {high}")
        return tuple(values)

    def flag(self, name: str) -> bool:
        """Read a boolean."""
        value = self._take(name)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def values(self, name: str) -> dict[str, Any]:
        """Read a map whose keys are strings."""
        value = self._take(name)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.wrong(name, value, "a map")
        return value

    def row(self, name: str) -> Row:
        """Read a row."""
        return Row(self._take(name), f"{name} of {self.what}")

    def rows(self, name: str, most: int) -> list[Row]:
        """Read a list of up to `most` rows."""
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
    """Return a row as bytes."""
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

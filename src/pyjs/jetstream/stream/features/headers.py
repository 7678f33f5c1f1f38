"""Values of a header block, read and replaced as in nats-server: names must match exactly; the first match counts.

This module knows nothing of the meaning of a header. Source: nats.docs "Headers", probed on nats-server 2.15.1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FIELDS_CACHED = 16  # number of header blocks; all checks of a message read the same block
FIRST_LINE = b"NATS/1.0\r\n"
_END = b"\r\n\r\n"


def value_or_none(headers: bytes, name: bytes) -> bytes | None:
    """Return the value of the first header `name`, which may be empty, or None if there is none."""
    _, found, rest = headers.partition(b"\r\n%b:" % name)
    return rest.partition(b"\r\n")[0].lstrip(b" ") if found else None


def value_of(headers: bytes, name: bytes) -> bytes:
    """Return the value of the first header `name`, or b"" if there is none."""
    return value_or_none(headers, name) or b""


@lru_cache(FIELDS_CACHED)
def fields_of(headers: bytes) -> Mapping[bytes, bytes]:
    """Return the values of all headers by name; if a name occurs several times, the first value counts."""
    fields: dict[bytes, bytes] = {}
    for line in headers.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields.setdefault(name, value.lstrip(b" "))
    return fields


def with_value(headers: bytes, name: bytes, value: bytes) -> bytes:
    """Return `headers` with the value of `name` replaced by `value`, or with a new last line for both."""
    head, found, rest = headers.partition(b"\r\n%b:" % name)
    if not found:
        return added(headers, name, value)
    blank = b" " if rest[:1] == b" " else b""
    return b"%b%b%b%b\r\n%b" % (head, found, blank, value, rest.partition(b"\r\n")[2])


def added(headers: bytes, name: bytes, value: bytes) -> bytes:
    """Return `headers`, which may be b"", with a new last line for `name` and `value`."""
    return b"%b%b: %b%b" % (headers[:-2] if headers else FIRST_LINE, name, value, _END)


def without(headers: bytes, name: bytes) -> bytes:
    """Return `headers` without the lines of the header `name`, or b"" if no line is left."""
    lines = headers[:-2].split(b"\r\n")[:-1]
    left = [line for line in lines if not line.startswith(name + b":")]
    return b"" if len(left) < 2 else b"\r\n".join(left) + _END

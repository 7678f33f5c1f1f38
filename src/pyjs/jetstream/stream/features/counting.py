"""Counters: the Nats-Incr of a message is added to the last value of its subject, and the sum is stored.

Numbers may have any size, as in nats-server: thousands of digits are read and written in parts, because Python limits
the digits of one conversion. A copied message has the total value of its origin. The header Nats-Counter-Sources of
the subject's last message has the last known value of every origin; only the change since that value is added.

This module handles only headers and payloads; the stream finds the last message and stores the new one.
Source: ADR-49; order, error messages and headers probed on nats-server 2.15.1 (tests/conformance/scenarios/counter).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from pyjs.jetstream import errcodes
from pyjs.jetstream.stream.features.headers import value_of, with_value

if TYPE_CHECKING:
    from pyjs.jetstream.errcodes import ApiError

INCREMENT, SOURCES, STREAM_SOURCE = b"Nats-Incr", b"Nats-Counter-Sources", b"Nats-Stream-Source"
DIGITS_AT_ONCE = 4000  # digits; Python converts at most 4,300 at once
# Headers with which a message with an increment is refused.
_NOT_WITH_INCREMENT = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
)
_BIG_INT = re.compile(rb"[+-]?[0-9]+")
# Go writes these characters as escapes in JSON.
_ESCAPES = ((b"&", rb"\u0026"), (b"<", rb"\u003c"), (b">", rb"\u003e"))


def increment_error(headers: bytes, payload_size: int, allowed: bool) -> ApiError | None:
    """Return the error for a Nats-Incr header sent by a client, or None if the header is valid or absent."""
    increment = value_of(headers, INCREMENT)
    if not increment:
        return None
    if not _BIG_INT.fullmatch(increment):
        return errcodes.MESSAGE_INCR_INVALID.error()
    if not allowed:
        return errcodes.MESSAGE_INCR_DISABLED.error()
    if payload_size:
        return errcodes.MESSAGE_INCR_PAYLOAD.error()
    if any(value_of(headers, name) for name in _NOT_WITH_INCREMENT):
        return errcodes.MESSAGE_INCR_INVALID.error()
    return None


def counted(
    headers: bytes,
    last_headers: bytes,
    last_payload: bytes | None,
    size_max: int,
    copied: bytes | None = None,
) -> tuple[bytes, bytes, bytes]:
    """Return the headers, payload and value to store for a message that changes a counter.

    `last_headers` and `last_payload` are those of the last message of the subject; if there is none, `last_payload`
    is None. `copied` is the payload of a message from another stream; None: the message is not a copy.

    Raises:
        ApiError: the message cannot be counted.
    """
    increment = value_of(headers, INCREMENT)
    errcodes.MESSAGE_INCR_MISSING.raise_if(not increment)
    total = 0 if last_payload is None else _value_in(last_payload)
    sources = _sources_in(last_headers)
    if copied is None:
        total += number_of(increment)
    else:
        total, headers = _with_copy(headers, total, sources, _value_in(copied))
    value = text_of(total)
    payload = b'{"val":"%b"}' % value
    if sources:
        headers = with_value(headers, SOURCES, _json(sources))
    errcodes.STREAM_MESSAGE_EXCEEDS_MAXIMUM.raise_if(len(headers) + len(payload) > size_max)
    return headers, payload, value


def _with_copy(
    headers: bytes, total: int, sources: dict[str, dict[str, str]], theirs: int
) -> tuple[int, bytes]:
    """Add the change of an origin's value since its last copy; store the new value in `sources`.

    Return the new total, and the headers with this change as Nats-Incr.
    """
    fields = value_of(headers, STREAM_SOURCE).decode("utf-8", "replace").split(" ")
    subjects = sources.setdefault(fields[0], {})
    subject = fields[4] if len(fields) > 4 else ""
    change = theirs - _leading_number(subjects.get(subject, "0").encode())
    subjects[subject] = text_of(theirs).decode()
    return total + change, with_value(headers, INCREMENT, text_of(change))


def _value_in(payload: bytes) -> int:
    """Return the number in a stored payload, or 0 if it has none, as in nats-server.

    Raises:
        ApiError: the payload is not a JSON object, or its value is not a string.
    """
    try:
        shown = orjson.loads(payload).get("val")
        digits = b"" if shown is None else shown.encode()
    except (ValueError, AttributeError):
        raise errcodes.MESSAGE_COUNTER_BROKEN.error() from None
    return _leading_number(digits)


def _sources_in(headers: bytes) -> dict[str, dict[str, str]]:
    """Return the values in a stored Nats-Counter-Sources header, as origin -> subject -> value. Raises ApiError."""
    shown = value_of(headers, SOURCES)
    if not shown:
        return {}
    try:
        found: dict[str, dict[str, str]] = orjson.loads(shown)
        valid = all(isinstance(value, str) for each in found.values() for value in each.values())
    except (ValueError, TypeError, AttributeError):
        valid = False
    errcodes.MESSAGE_COUNTER_BROKEN.raise_if(not valid)
    return found


def _json(sources: dict[str, dict[str, str]]) -> bytes:
    out = orjson.dumps(sources, option=orjson.OPT_SORT_KEYS)
    for character, escape in _ESCAPES:
        out = out.replace(character, escape)
    return out


def _leading_number(text: bytes) -> int:
    """Return the number at the beginning of a string, or 0 if there is none."""
    match = _BIG_INT.match(text)
    return number_of(match[0]) if match else 0


def number_of(text: bytes) -> int:
    """Return the value of decimal digits, which may have a sign."""
    if text[:1] in (b"-", b"+"):
        return -_natural(text[1:]) if text[:1] == b"-" else _natural(text[1:])
    return _natural(text)


def _natural(digits: bytes) -> int:
    if len(digits) <= DIGITS_AT_ONCE:
        return int(digits)
    half = len(digits) // 2
    unit: int = 10**half
    return _natural(digits[:-half]) * unit + _natural(digits[-half:])


def text_of(number: int) -> bytes:
    """Return the decimal digits of a number."""
    return b"-" + _digits(-number) if number < 0 else _digits(number)


def _digits(number: int) -> bytes:
    if number < 10**DIGITS_AT_ONCE:
        return b"%d" % number
    half = int(number.bit_length() * 0.30103) // 2
    high, low = divmod(number, 10**half)
    return _digits(high) + _digits(low).rjust(half, b"0")

"""Durations and sizes, parsed from text to integers; gotext.py does the reverse.

This module knows nothing of options, files or clocks. Grammar of a duration, as in NATS files and APIs: an optional
sign, then one or more decimal numbers, each followed by a unit ("1h30m", "1.5s", "250ms"); "0" alone needs no unit.
Results are exact integers of nanoseconds: no floats are used.

Source: the Go duration text form, https://pkg.go.dev/time#ParseDuration.
"""

from __future__ import annotations

import re

INT64_MAX = (1 << 63) - 1
# digits of a number; more do not fit in 64 bits in the whole part, and are ignored in the fraction
DIGITS_MAX = 20
SHOWN_MAX = 40  # maximum number of characters of an invalid text that an error shows
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")

NS_OF_UNIT = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}

# The factor for each suffix of a number in the configuration language; suffixes are in lower case.
FACTOR_OF_SUFFIX = {"": 1}
for _power, _letter in enumerate("kmgtpe", start=1):
    FACTOR_OF_SUFFIX[_letter] = 1000**_power
    for _binary in ("b", "i", "ib"):
        FACTOR_OF_SUFFIX[_letter + _binary] = 1024**_power


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds of a duration such as "1h30m".

    Raises:
        ValueError: the string is not a duration; the message names the invalid part.
    """
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError("it is empty")
    total_ns = at = 0
    while at < len(rest):
        part_ns, at = _take_part(rest, at)
        total_ns += part_ns
        if total_ns > INT64_MAX:
            raise ValueError("it is longer than 292 years")
    return sign * total_ns


def _take_part(text: str, at: int) -> tuple[int, int]:
    """Read the number and unit at offset `at`, and return the nanoseconds and the offset after the unit.

    Raises:
        ValueError: the number or the unit is missing or not valid.
    """
    found = _PART.match(text, at)
    assert found is not None  # the pattern always matches, since each of its parts may be empty
    digits, fraction, unit = found[1].lstrip("0"), found[2] or "", found[3]
    if not found[1] and not fraction:
        raise ValueError(f"a number is missing before {_shown(text[at:])}")
    if not unit:
        raise ValueError("the unit is missing")
    unit_ns = NS_OF_UNIT.get(unit)
    if unit_ns is None:
        raise ValueError(f"{_shown(unit)} is no unit")
    if len(digits) > DIGITS_MAX:
        raise ValueError("it is longer than 292 years")
    part_ns = int(digits or "0") * unit_ns
    fraction = fraction[:DIGITS_MAX]
    if fraction:
        part_ns += int(fraction) * unit_ns // 10 ** len(fraction)
    return part_ns, found.end()


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")


def parse_number(text: str) -> int:
    """Return the integer in a string with the suffixes of the configuration language: "64k", "1GB".

    A single letter means powers of 1000 (1k is 1000); with b, i or ib it means powers of 1024.

    Raises:
        ValueError: the string is not such a number, or does not fit in 64 bits.
    """
    body = text[1:] if text.startswith("-") else text
    digits = body[: len(body) - len(body.lstrip("0123456789"))]
    factor = FACTOR_OF_SUFFIX.get(body[len(digits) :].lower())
    if not digits or factor is None:
        raise ValueError("it is no whole number")
    digits = digits.lstrip("0") or "0"
    if len(digits) > DIGITS_MAX:
        raise ValueError("it does not fit in 64 bits")
    value = int(digits) * factor * (-1 if text.startswith("-") else 1)
    if not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise ValueError("it does not fit in 64 bits")
    return value

"""Durations as JetStream requests write them: Go's texts such as 5s or 1h30m."""

from __future__ import annotations

import re

_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_UNITS_NS["m"] = 60 * _UNITS_NS["s"]
_UNITS_NS["h"] = 60 * _UNITS_NS["m"]
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds of a Go duration such as 5s, 1.5h or -2m30s.

    Raises:
        ValueError: it is not a duration.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None or not (part[1] or part[2]):
            raise ValueError(f'time: invalid duration "{text}"')
        size = _UNITS_NS[part[3]]
        total += int(part[1] or 0) * size
        if part[2]:
            total += int(part[2]) * size // 10 ** len(part[2])
        at = part.end()
    if not rest or total >= 2**63:
        raise ValueError(f'time: invalid duration "{text}"')
    return -total if text[0] == "-" else total

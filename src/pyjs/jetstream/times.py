"""Times and durations as the JetStream API writes them: RFC 3339 in UTC, and Go's duration texts.

Knows nothing of clocks: every time is an int, nanoseconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

ZERO_TIME = "0001-01-01T00:00:00Z"
NS_PER_S = 1_000_000_000

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
}
_UNITS_NS["h"] = 60 * _UNITS_NS["m"]
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


def format_time_ns(ns: int) -> str:
    """Return `ns` as RFC 3339 in UTC with as many digits of a second as it needs."""
    seconds, fraction = divmod(ns, NS_PER_S)
    text = (
        datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
    )  # strftime does not pad years
    if not fraction:
        return text + "Z"
    digits = f"{fraction:09d}".rstrip("0")
    return f"{text}.{digits}Z"


def format_duration_ns(ns: int) -> str:
    """Return `ns` as Go prints a duration: 1.5s, 2m0s, 100ms."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, size in (("ns", 1_000), ("µs", 1_000_000), ("ms", NS_PER_S)):
        if ns < size:
            return f"{sign}{_decimal(ns, _UNITS_NS[unit])}{unit}"
    minutes, rest = divmod(ns, 60 * NS_PER_S)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(rest, NS_PER_S)}s"


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


def _decimal(ns: int, unit_ns: int) -> str:
    whole, fraction = divmod(ns, unit_ns)
    if not fraction:
        return str(whole)
    digits = f"{fraction:0{len(str(unit_ns)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}"

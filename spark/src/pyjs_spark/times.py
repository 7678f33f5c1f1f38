"""Points in time as NATS writes them: RFC 3339 to the nanosecond, and ns since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


def parse_rfc3339(value: str) -> int:
    """Return ns since 1970 from NATS's text form of a time.

    Raises:
        ValueError: the string is not a time in RFC 3339.
    """
    match = TIME.fullmatch(value)
    if match is None:
        raise ValueError(f"no RFC 3339 time: {value!r}")
    zone = match[3].upper().replace("Z", "+00:00")
    at = datetime.fromisoformat(match[1].upper().replace(" ", "T") + zone) - EPOCH
    return (at.days * 86400 + at.seconds) * NS_PER_S + int((match[2] or "0").ljust(9, "0"))


def format_rfc3339(at_ns: int) -> str:
    """Return the text form that NATS uses for a time in ns since 1970: RFC 3339 with nine digits."""
    whole, rest = divmod(at_ns, NS_PER_S)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"

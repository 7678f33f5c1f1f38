"""Texts as Go writes them: times, durations, sizes, quoted strings. Clients and operators parse them.

Source: the Go documentation of time.RFC3339Nano, time.Duration.String and strconv.Quote.
"""

from __future__ import annotations

from datetime import date

NS_PER_S = 1_000_000_000
DAY_OF_1970 = 719163  # number of the day 1 January 1970: datetime.date(1970, 1, 1).toordinal()
DAYS_OF_400_YEARS = 146097
DATES_MAX = 1000
ZERO_TIME = "0001-01-01T00:00:00Z"
ZERO_TIME_NS = -62_135_596_800 * NS_PER_S
_LARGE_UNITS = (("y", 365 * 86400), ("d", 86400), ("h", 3600), ("m", 60))
_SMALL_UNITS = ((1_000_000, "ms"), (1_000, "µs"))
_dates: dict[int, str] = {}  # cached texts, by days since 1970: most stored messages are from a few days
_SIZE_UNITS = ("KB", "MB", "GB", "TB", "PB", "EB")


def time_text(ns: int) -> str:
    """Return a time as RFC 3339 text in UTC, without trailing zeros in the fraction.

    `ns` counts from 1970; 0 is Go's zero time, in the year 1.
    """
    return moment_text(ns) if ns else ZERO_TIME


def moment_text(ns: int) -> str:
    """Return a time as `time_text` does, except that 0 means the start of 1970 instead of Go's zero time."""
    second, rest = divmod(ns, NS_PER_S)
    day, second = divmod(second, 86400)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{_dates.get(day) or _date(day)}T{hour:02d}:{minute:02d}:{second:02d}{fraction}Z"


def _date(day: int) -> str:
    if len(_dates) >= DATES_MAX:
        _dates.clear()
    year, rest = divmod(DAY_OF_1970 + day - 1 + DAYS_OF_400_YEARS, DAYS_OF_400_YEARS)
    # the calendar repeats every 400 years, and `date` does not support year 0
    shown = date.fromordinal(rest + 1)
    text = _dates[day] = f"{shown.year + 400 * (year - 1):04d}-{shown.month:02d}-{shown.day:02d}"
    return text


def day_of(year: int, month: int, day: int) -> int:
    """Return the number of a day; day 1 is the first day of year 1. Year 0 is allowed.

    Raises:
        ValueError: there is no such day.
    """
    return date(year % 400 + 400, month, day).toordinal() + (year // 400 - 1) * DAYS_OF_400_YEARS


def duration_text(ns: int) -> str:
    """Return a duration in ns as text such as `1h2m3.5s`; 0 is `0s`.

    A duration below one second has the largest unit that fits: ms, microseconds or ns.
    """
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns < NS_PER_S:
        for unit, name in _SMALL_UNITS:
            if ns >= unit:
                return f"{sign}{_decimal(ns, unit)}{name}"
        return f"{sign}{ns}ns"
    minutes, rest_ns = divmod(ns, 60 * NS_PER_S)
    seconds = f"{_decimal(rest_ns, NS_PER_S)}s"
    if not minutes:
        return sign + seconds
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")


def uptime_text(ns: int) -> str:
    """Return a duration in ns as `1y2d3h4m5s`, rounded down to seconds, beginning with the largest nonzero part."""
    seconds, parts = max(ns, 0) // NS_PER_S, ""
    for unit, size in _LARGE_UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts += f"{count}{unit}"
    return f"{parts}{seconds}s"


def size_text(size: int) -> str:
    """Return a size in bytes as text such as `64.00 MB`, in powers of 1024, or `17 B` if it is below 1024."""
    if size < 1024:
        return f"{size} B"
    scaled, unit = size / 1024, 0
    while scaled >= 1024 and unit < len(_SIZE_UNITS) - 1:
        scaled /= 1024
        unit += 1
    return f"{scaled:.2f} {_SIZE_UNITS[unit]}"


_ESCAPES = {'"': '\\"', "\\": "\\\\"} | dict(
    zip("\a\b\f\n\r\t\v", ("\\a", "\\b", "\\f", "\\n", "\\r", "\\t", "\\v"), strict=True)
)


def quoted(text: str) -> str:
    """Return `text` in double quotes; quotes, backslashes and unprintable characters are escaped.

    Invalid UTF-8 (bytes decoded with "surrogateescape") is shown as the bytes in hex.
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_shown(c) for c in text) + '"'


def quoted_bytes(value: bytes) -> str:
    """Return bytes from a client as quoted text; see `quoted`."""
    return quoted(value.decode("utf-8", "surrogateescape"))


def printable(text: str) -> str:
    """Return `text` with unprintable characters, including line ends, escaped."""
    return text if text.isprintable() else "".join(c if c in '"\\' else _shown(c) for c in text)


def _shown(c: str) -> str:
    if c in _ESCAPES:
        return _ESCAPES[c]
    if c.isprintable():
        return c
    code = ord(c)
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

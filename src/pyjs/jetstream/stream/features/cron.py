"""Cron patterns of six fields (second, minute, hour, day, month, weekday), in the dialect of nats-server.

No library refuses exactly the patterns that this dialect refuses: croniter and cronsim also accept `L`, `#` and
weekday 7, and have other rules for jumps of the clock.

A field is a list of ranges. A range is `*`, `?`, a number, a name or `a-b`, and may end with `/step`; `a/step` goes
up to the maximum. If neither day nor weekday has a star, one of them must match; otherwise both must match.

The search moves a point in time forward, field by field from month to second, and begins again when a field wraps
around. So hours that the clock skips do not match, and hours that it repeats match twice, as in nats-server.

This module knows nothing of messages. Source: ADR-51; the dialect probed on nats-server 2.15.1
(tests/conformance/scenarios/schedule/patterns.txt).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import tzinfo

# maximum number of characters; nats-server has no limit, but each range takes a microsecond
PATTERN_SIZE_MAX = 1000
YEARS_MAX = 5  # a pattern without a match in this many years is invalid
CACHED = 4096
_EPOCH = datetime(1970, 1, 1)  # wall times are naive datetimes
_NUMBER = re.compile(r"\+?[0-9]{1,18}", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS_MAX = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTH_NAMES = {name: number for number, name in enumerate(_MONTHS, 1)}
_WEEKDAY_NAMES = {name: number for number, name in enumerate(_WEEKDAYS)}
# Minimum, maximum and names of each field.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTH_NAMES),
    (0, 6, _WEEKDAY_NAMES),
)


@dataclass(frozen=True, slots=True)
class _Field:
    bits: int  # bit n is set if value n matches
    star: bool  # the field has a star without a step


@lru_cache(CACHED)
def parse_cron(pattern: str) -> Cron | None:
    """Return the parsed pattern, or None if it is invalid."""
    texts = pattern.split()
    if len(texts) != len(_FIELDS) or len(pattern) > PATTERN_SIZE_MAX:
        return None
    try:
        fields = [_field(text, *bounds) for text, bounds in zip(texts, _FIELDS, strict=True)]
    except ValueError:
        return None
    return Cron(*fields)


def _field(text: str, low: int, high: int, names: dict[str, int]) -> _Field:
    bits, star = 0, False
    for part in filter(None, text.split(",")):
        more, whole = _range(part, low, high, names)
        bits |= more
        star |= whole
    return _Field(bits, star)


def _range(text: str, low: int, high: int, names: dict[str, int]) -> tuple[int, bool]:
    """Return the bits of one range, and whether it is a star without a step. Raises ValueError."""
    span, *steps = text.split("/")
    first, *others = span.split("-")
    step = _number(steps[0], {}) if steps else 1
    star = first in ("*", "?")
    if star:
        start, end = low, high
    else:
        start = _number(first, names)
        end = _number(others[0], names) if others else start
        if len(others) > 1:
            raise ValueError(text)
    if steps and not others:
        end = high
    if len(steps) > 1 or step == 0 or not low <= start <= end <= high:
        raise ValueError(text)
    return sum(1 << value for value in range(start, end + 1, step)), star and step == 1


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


@dataclass(frozen=True, slots=True)
class Cron:
    """One parsed pattern."""

    second: _Field
    minute: _Field
    hour: _Field
    day: _Field
    month: _Field
    weekday: _Field

    def next_after(self, at_s: int, zone: tzinfo | None) -> int | None:
        """Return the first matching second after `at_s`, in seconds since 1970, or None if YEARS_MAX years have none.

        A `zone` of None means UTC.
        """
        if not (self.second.bits and self.minute.bits and self.hour.bits and self._has_date()):
            return None
        walk = _Walk(at_s + 1, zone)
        last_year = walk.wall.year + YEARS_MAX
        while walk.wall.year <= last_year:
            if self._months(walk) and self._days(walk) and self._hours(walk) and self._minutes(walk):
                found = self._seconds(walk)
                if found is not None:
                    return found
        return None

    def _has_date(self) -> bool:
        """Return whether any date can match the pattern."""
        by_day = any(
            self.month.bits >> month & 1 and self.day.bits & ((2 << days) - 2)
            for month, days in enumerate(_DAYS_MAX, 1)
        )
        if self.day.star or self.weekday.star:
            return by_day and bool(self.weekday.bits)
        return by_day or bool(self.month.bits and self.weekday.bits)

    # Each step moves forward to a match, or returns False after a wrap-around: larger fields are then checked again.

    def _months(self, walk: _Walk) -> bool:
        while not self.month.bits >> walk.wall.month & 1:
            walk.truncate(walk.wall.replace(day=1, hour=0, minute=0, second=0))
            wall = walk.wall
            following = wall.replace(year=wall.year + wall.month // 12, month=wall.month % 12 + 1, day=1)
            walk.go_to(following + timedelta(days=wall.day - 1))
            if walk.wall.month == 1:
                return False
        return True

    def _days(self, walk: _Walk) -> bool:
        while not self._matches_day(walk.wall):
            walk.truncate(walk.wall.replace(hour=0, minute=0, second=0))
            walk.go_to(walk.wall + timedelta(days=1))
            if walk.wall.day == 1:
                return False
        return True

    def _matches_day(self, wall: datetime) -> bool:
        by_day = bool(self.day.bits >> wall.day & 1)
        by_weekday = bool(self.weekday.bits >> wall.isoweekday() % 7 & 1)
        if self.day.star or self.weekday.star:
            return by_day and by_weekday
        return by_day or by_weekday

    def _hours(self, walk: _Walk) -> bool:
        while not self.hour.bits >> walk.wall.hour & 1:
            walk.truncate(walk.wall.replace(minute=0, second=0))
            walk.move(walk.at_s + 3600)
            if walk.wall.hour == 0:
                return False
        return True

    def _minutes(self, walk: _Walk) -> bool:
        while not self.minute.bits >> walk.wall.minute & 1:
            walk.truncated = True
            walk.move(walk.at_s - walk.at_s % 60 + 60)
            if walk.wall.minute == 0:
                return False
        return True

    def _seconds(self, walk: _Walk) -> int | None:
        later = self.second.bits >> walk.wall.second
        if later:
            return walk.at_s + (later & -later).bit_length() - 1
        walk.truncated = True
        walk.move(walk.at_s + 60 - walk.wall.second)
        return None


class _Walk:
    """A point in time that moves forward, with its wall time in one zone."""

    __slots__ = ("at_s", "truncated", "wall", "zone")

    def __init__(self, at_s: int, zone: tzinfo | None) -> None:
        self.zone = zone
        self.truncated = False  # the smaller fields were already set to their minimum
        self.move(at_s)

    def move(self, at_s: int) -> None:
        """Move to a point in time, in seconds since 1970."""
        self.at_s = at_s
        self.wall = _EPOCH + timedelta(seconds=at_s + offset_s(at_s, self.zone))

    def go_to(self, wall: datetime) -> None:
        """Move to a wall time. If the clock skips or repeats it, choose the time that Go's time.Date returns."""
        as_utc = (wall - _EPOCH) // timedelta(seconds=1)
        guess = offset_s(as_utc, self.zone)
        self.move(as_utc - offset_s(as_utc - guess, self.zone))

    def truncate(self, wall: datetime) -> None:
        """Move to `wall`, the wall time with the smaller fields at their minimum, unless that was already done."""
        if not self.truncated:
            self.truncated = True
            self.go_to(wall)


def offset_s(at_s: int, zone: tzinfo | None) -> int:
    """Return the offset of a zone from UTC at a given time, in seconds."""
    if zone is None:
        return 0
    ahead = datetime.fromtimestamp(at_s, zone).utcoffset()
    assert ahead is not None
    return ahead // timedelta(seconds=1)

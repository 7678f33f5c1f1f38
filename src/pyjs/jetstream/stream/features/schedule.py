"""Message schedules: the next time at which a message with Nats-Schedule fires, and the headers of its products.

A schedule is `@at` with a time, `@every` with a duration, six cron fields, or a name such as `@daily`. It belongs to
a subject; a later message of this subject replaces or ends it. Each firing publishes the message of the schedule, or
the last message of the subject in Nats-Schedule-Source, under the subject in Nats-Schedule-Target. In the published
message, Nats-Scheduler has the schedule's subject. Nats-Schedule-Next has the time of the next firing, or `purge`
after the last firing.

These are pure functions of headers and times; scheduling.pyx stores the schedules of a stream.
Source: ADR-51; order, error messages and headers probed on nats-server 2.15.1 (tests/conformance/scenarios/schedule).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.bounds import DURATION_SIZE_MAX, INT64
from pyjs.base.gotext import ZERO_TIME_NS, moment_text
from pyjs.base.units import parse_duration_ns
from pyjs.jetstream import errcodes
from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.jetstream.stream.features.headers import added, fields_of, value_of
from pyjs.jetstream.stream.message_ttl import parse_ttl_ns
from pyjs.subjects.tokens import is_valid_literal, subjects_overlap

if TYPE_CHECKING:
    from datetime import tzinfo
    from typing import Protocol

    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.errcodes import ApiError

    class View(Protocol):
        """The part of a stream that the checks read."""

        def wall_ns(self) -> int:
            """Return the wall time in ns."""

        def last_headers(self, subject: bytes) -> bytes | None:
            """Return the header block of the last message of a subject, or None if there is none."""


SCHEDULE, NEXT, SCHEDULER = b"Nats-Schedule", b"Nats-Schedule-Next", b"Nats-Scheduler"
TARGET, SOURCE = b"Nats-Schedule-Target", b"Nats-Schedule-Source"
TTL, ROLLUP, ZONE = b"Nats-Schedule-TTL", b"Nats-Schedule-Rollup", b"Nats-Schedule-Time-Zone"
PURGE = b"purge"  # value of Nats-Schedule-Next after the last firing
NS_PER_S = 1_000_000_000
ZONE_SIZE_MAX = 255
ZONES_CACHED = 64
TEXTS_CACHED = 64  # number of cached texts; the check of a message and its storage parse the same text
NAMED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT)(\d{1,2})(:\d\d:\d\d(?:[.,]\d+)?)(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)
_PLAIN_TIME = re.compile(
    r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII
)
_EPOCH = datetime(1970, 1, 1)  # times here are naive datetimes
# Headers not copied to a published message: those of the schedule, and those that could prevent its storage.
_PREFIXES = (b"Nats-Schedule", b"Nats-Expected-")
_NAMES = (b"Nats-Msg-Id", b"Nats-TTL", b"Nats-Rollup")


class Due(NamedTuple):
    """The next firing of a schedule."""

    at_ns: int
    repeats: bool
    zone: tzinfo | None = None

    @property
    def text(self) -> bytes:
        """The time as RFC 3339, with the offset of its zone."""
        from pyjs.jetstream.stream.features.cron import offset_s  # imported lazily, as in _due

        ahead_s = offset_s(self.at_ns // NS_PER_S, self.zone)
        if ahead_s == 0:
            return moment_text(self.at_ns).encode()
        hours, minutes = divmod(abs(ahead_s) // 60, 60)
        shown = moment_text(self.at_ns + ahead_s * NS_PER_S)[:-1]
        return f"{shown}{'+' if ahead_s > 0 else '-'}{hours:02d}:{minutes:02d}".encode()


@lru_cache(ZONES_CACHED)
def zone_of(name: bytes) -> tzinfo:
    """Return the time zone with this name in the system's database; "Local" is UTC.

    Raises:
        ApiError: 10223 if there is no such zone.
    """
    from zoneinfo import ZoneInfo  # imported lazily, since it takes 3 ms and most servers have no schedule

    shown = name.decode("ascii", "replace")
    if shown in ("UTC", "Local"):
        return UTC
    try:
        if name and len(name) <= ZONE_SIZE_MAX:
            return ZoneInfo(shown)
    except (ValueError, LookupError, OSError):
        pass
    raise errcodes.MESSAGE_SCHEDULES_TIME_ZONE_INVALID.error()


def next_due(headers: bytes, after_ns: int, now_ns: int) -> Due | None:
    """Return the first firing after `after_ns`, or None if the message is not a schedule.

    Firings before `now_ns` are skipped, except that of `@at`.

    Raises:
        ApiError: 10223 if the zone is invalid, 10189 if the pattern is invalid.
    """
    fields = fields_of(headers)
    zone_name = fields.get(ZONE)
    zone = None if zone_name is None else zone_of(zone_name)
    pattern = fields.get(SCHEDULE)
    if not pattern:
        return None
    due = _due(pattern.decode("utf-8", "replace"), zone, after_ns, now_ns)
    if due is None or due.at_ns == ZERO_TIME_NS:
        raise errcodes.MESSAGE_SCHEDULES_PATTERN_INVALID.error()
    if INT64.low <= due.at_ns <= INT64.high:
        return due
    return Due(INT64.clamp(due.at_ns), due.repeats, due.zone)


def _due(pattern: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Due | None:
    # Imported lazily, since it takes 6 ms and most servers have no schedule.
    from pyjs.jetstream.stream.features.cron import parse_cron

    if pattern.startswith(("@at ", "@every ")):
        if zone is not None:
            return None
        kind, _, rest = pattern.partition(" ")
        try:
            return Due(_time_ns(rest), False) if kind == "@at" else _interval(rest, after_ns, now_ns)
        except ValueError:
            return None
    cron = parse_cron(NAMED.get(pattern, pattern))
    if cron is None:
        return None
    at_s = cron.next_after(after_ns // NS_PER_S, zone)
    if at_s is not None and at_s * NS_PER_S < now_ns:
        at_s = cron.next_after(_rounded(now_ns) // NS_PER_S, zone)
    return None if at_s is None else Due(at_s * NS_PER_S, True, zone)


@lru_cache(TEXTS_CACHED)
def _time_ns(text: str) -> int:
    """Return the time of `@at` in ns since 1970.

    The hour may have one digit. The offset may be up to 24 hours and 60 minutes.

    Raises:
        ValueError: the string is not such a time.
    """
    if _PLAIN_TIME.fullmatch(text):  # the usual form needs no general parser
        second = (datetime.fromisoformat(text[:19]) - _EPOCH) // timedelta(seconds=1)
        return second * NS_PER_S + int(text[20:-1].ljust(9, "0"))
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    ahead_minutes = int(found[5] or 0) * 60 + int(found[6] or 0)
    if int(found[5] or 0) > 24 or int(found[6] or 0) > 60:
        raise ValueError(text)
    local_ns = parse_time_ns(f"{found[1]}{int(found[2]):02d}{found[3]}Z")
    return local_ns - int(f"{found[4] or ''}{ahead_minutes}") * 60 * NS_PER_S


def _interval(text: str, after_ns: int, now_ns: int) -> Due | None:
    interval_ns = _duration_ns(text) if len(text) <= DURATION_SIZE_MAX else 0
    if interval_ns < NS_PER_S:
        return None
    at_ns = _rounded(after_ns) + interval_ns
    return Due(at_ns if at_ns >= now_ns else _rounded(now_ns) + interval_ns, True)


_duration_ns = lru_cache(TEXTS_CACHED)(parse_duration_ns)


def _rounded(ns: int) -> int:
    """Return `ns` rounded to the nearest whole second."""
    return (ns + NS_PER_S // 2) // NS_PER_S * NS_PER_S


# -- checks of publishes ---------------------------------------------------------------------------------------------


def schedule_refusal(config: StreamConfig, headers: bytes, subject: bytes, view: View) -> ApiError | None:
    """Return the error for the schedule headers of a publish, or None if they are valid or absent."""
    now_ns = view.wall_ns()
    try:
        due = next_due(headers, now_ns, now_ns)
    except errcodes.ApiError as error:
        return error if config.allow_msg_schedules else errcodes.MESSAGE_SCHEDULES_DISABLED.error()
    if due is not None and (fault := _schedule_error(config, headers, subject)):
        return fault
    return _ending_error(config, headers, subject, view)


def _schedule_error(config: StreamConfig, headers: bytes, subject: bytes) -> ApiError | None:
    """Return the error for the other headers of a schedule whose pattern is valid, or None if they are valid."""
    if not config.allow_msg_schedules:
        return errcodes.MESSAGE_SCHEDULES_DISABLED.error()
    fields = fields_of(headers)
    ttl, target, source = fields.get(TTL), fields.get(TARGET, b""), fields.get(SOURCE)
    if ttl and parse_ttl_ns(ttl) is None:
        return errcodes.MESSAGE_SCHEDULES_TTL_INVALID.error()
    if fields.get(ROLLUP, b"") not in (b"", b"sub"):
        return errcodes.MESSAGE_SCHEDULES_ROLLUP_INVALID.error()
    if ttl and not config.allow_msg_ttl:
        return errcodes.MESSAGE_TTL_DISABLED.error()
    if target == subject or not is_valid_literal(target):
        return errcodes.MESSAGE_SCHEDULES_TARGET_INVALID.error()
    if source and (source in (subject, target) or not is_valid_literal(source)):
        return errcodes.MESSAGE_SCHEDULES_SOURCE_INVALID.error()
    if not _is_own(config, target):
        return errcodes.MESSAGE_SCHEDULES_TARGET_INVALID.error()
    if source and not _is_own(config, source):
        return errcodes.MESSAGE_SCHEDULES_SOURCE_INVALID.error()
    if fields.get(b"Nats-Rollup", b"").lower() not in (b"", b"sub"):
        return errcodes.MESSAGE_SCHEDULES_ROLLUP_INVALID.error()
    return None


def _is_own(config: StreamConfig, subject: bytes) -> bool:
    return any(subjects_overlap(each.encode(), subject) for each in config.subjects)


def _ending_error(config: StreamConfig, headers: bytes, subject: bytes, view: View) -> ApiError | None:
    """Return the error for the headers with which a message ends a schedule, or None if they are valid or absent."""
    fields = fields_of(headers)
    following, scheduler = fields.get(NEXT), fields.get(SCHEDULER, b"")
    if not following:
        return errcodes.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error() if scheduler else None
    if following != PURGE or scheduler == subject or not is_valid_literal(scheduler):
        return errcodes.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error()
    if not config.allow_msg_schedules:
        return errcodes.MESSAGE_SCHEDULES_DISABLED.error()
    last = view.last_headers(scheduler)
    if last is not None and not value_of(last, SCHEDULE):
        return errcodes.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error()
    return None


def with_rollup(headers: bytes) -> bytes:
    """Return the header block to store, in which a schedule has a roll-up header; it is added if it is missing."""
    fields = fields_of(headers)
    if not fields.get(SCHEDULE) or fields.get(b"Nats-Rollup"):
        return headers
    return added(headers, b"Nats-Rollup", b"sub")


def ended_by(headers: bytes) -> bytes:
    """Return the subject of the schedule that a message ends, or b"" if it ends none."""
    fields = fields_of(headers)
    if fields.get(NEXT) != PURGE:
        return b""
    scheduler = fields.get(SCHEDULER, b"")
    return scheduler if is_valid_literal(scheduler) else b""


def continued_by(headers: bytes) -> tuple[bytes, int] | None:
    """Return the subject and the next time (ns) of the schedule that published a message.

    Return None if the headers do not state both.
    """
    fields = fields_of(headers)
    following, scheduler = fields.get(NEXT), fields.get(SCHEDULER)
    if not scheduler or not following or following == PURGE:
        return None
    try:
        return scheduler, INT64.clamp(parse_time_ns(following.decode("utf-8", "replace")))
    except ValueError:
        return None


# -- firing ----------------------------------------------------------------------------------------------------------


def following(headers: bytes, at_ns: int, now_ns: int) -> Due | None:
    """Return the firing of a stored schedule that follows the firing at `at_ns`.

    If the firing at `at_ns` was the last one, `repeats` is False. Return None if the message is not a valid schedule
    or has no target.
    """
    try:
        due = next_due(headers, at_ns, now_ns)
    except errcodes.ApiError:
        return None
    fields = fields_of(headers)
    ttl = fields.get(TTL)
    return None if not fields.get(TARGET) or (ttl and parse_ttl_ns(ttl) is None) else due


def produced_headers(schedule: bytes, subject: bytes, content: bytes, due: Due) -> bytes:
    """Return the header block of the message that a firing publishes.

    `schedule` is the header block of the schedule, whose subject is `subject`. `content` is the header block of the
    message to publish, and `due` is the next firing.
    """
    lines = content[:-2].split(b"\r\n")[1:-1]
    kept = [
        line for line in lines if not line.startswith(_PREFIXES) and line.partition(b":")[0] not in _NAMES
    ]
    kept.append(b"%b: %b" % (SCHEDULER, subject))
    kept.append(b"%b: %b" % (NEXT, due.text if due.repeats else PURGE))
    fields = fields_of(schedule)
    for own, name in ((TTL, b"Nats-TTL"), (ROLLUP, b"Nats-Rollup")):
        if value := fields.get(own):
            kept.append(b"%b: %b" % (name, value))
    return b"NATS/1.0\r\n%b\r\n\r\n" % b"\r\n".join(kept)

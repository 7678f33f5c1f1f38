"""The severity of the state of a stream or consumer, derived from its reasons (jetstream/why)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from pyjs.jetstream.why.reasons import Kind

if TYPE_CHECKING:
    from pyjs.jetstream.why.reasons import Reason

# A stream with one of these reasons refuses publishes because its configuration says so.
CONFIGURED = frozenset((Kind.SEALED, Kind.MIRROR, Kind.NO_SUBJECTS))
# Nothing is wrong with a consumer that is stopped for one of these reasons: it has nothing to deliver.
IDLE = frozenset((Kind.UP_TO_DATE, Kind.STREAM_EMPTY))
# A consumer that is stopped for one of these reasons continues by itself, or after an ack or a request.
WAITING = frozenset(
    (
        Kind.AWAITING_ACKS,
        Kind.BACKOFF,
        Kind.PAUSED,
        Kind.RATE_LIMIT,
        Kind.REPLAY,
        Kind.WRITING_STATE,
        Kind.PURGING,
    )
)


class Level(IntEnum):
    """The severity of the state of a stream or consumer; JSON has the names in lower case."""

    IDLE = 0  # nothing to deliver
    OK = 1
    WAITING = 2  # stopped for some time
    WARNING = 3  # works, but needs attention
    STOPPED = 4  # delivers nothing, or refuses publishes


def stream_level(reasons: list[Reason]) -> tuple[Level, Reason | None]:
    """Return the level of a stream that has these reasons, and the reason to show, or None."""
    for reason in reasons:
        if reason.stops and reason.kind not in CONFIGURED:
            return Level.STOPPED, reason
    for reason in reasons:
        if reason.kind not in CONFIGURED:
            return Level.WARNING, reason
    return Level.OK, reasons[0] if reasons else None


def consumer_level(reasons: list[Reason]) -> tuple[Level, Reason | None]:
    """Return the level of a consumer that has these reasons, and the reason to show, or None."""
    if not reasons:
        return Level.OK, None
    first = reasons[0]
    if first.kind in IDLE:
        return Level.IDLE, first
    if not first.stops:
        stopping = next((reason for reason in reasons if reason.stops), None)
        return (Level.WARNING, first) if stopping is None else consumer_level([stopping])
    return (Level.WAITING if first.kind in WAITING else Level.STOPPED), first

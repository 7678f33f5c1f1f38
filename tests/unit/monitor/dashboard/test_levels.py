"""The severity of the reasons that a stream or a consumer has."""

from __future__ import annotations

import pytest

from pyjs.jetstream.why.reasons import Kind, Reason
from pyjs.monitor.dashboard.levels import Level, consumer_level, stream_level


def reasons(*kinds: tuple[Kind, bool]) -> list[Reason]:
    return [Reason(kind, "", stops=stops) for kind, stops in kinds]


@pytest.mark.parametrize(
    ("given", "level", "shown"),
    [
        ((), Level.OK, None),
        (((Kind.MIRROR, True),), Level.OK, Kind.MIRROR),
        (((Kind.MIRROR, True), (Kind.ORIGIN_UNHEARD, False)), Level.WARNING, Kind.ORIGIN_UNHEARD),
        (((Kind.REPLICA_LAGGING, False), (Kind.MAX_MSGS, True)), Level.STOPPED, Kind.MAX_MSGS),
    ],
)
def test_the_level_of_a_stream(
    given: tuple[tuple[Kind, bool], ...], level: Level, shown: Kind | None
) -> None:
    found, reason = stream_level(reasons(*given))
    assert (found, reason and reason.kind) == (level, shown)


@pytest.mark.parametrize(
    ("given", "level", "shown"),
    [
        ((), Level.OK, None),
        (((Kind.UP_TO_DATE, True), (Kind.NO_WAITING_PULL, True)), Level.IDLE, Kind.UP_TO_DATE),
        (((Kind.AWAITING_ACKS, True),), Level.WAITING, Kind.AWAITING_ACKS),
        (((Kind.NO_WAITING_PULL, True),), Level.STOPPED, Kind.NO_WAITING_PULL),
        (((Kind.SLOW_RECEIVER, False),), Level.WARNING, Kind.SLOW_RECEIVER),
        (((Kind.MAX_DELIVER, False), (Kind.UP_TO_DATE, True)), Level.IDLE, Kind.UP_TO_DATE),
    ],
)
def test_the_level_of_a_consumer(
    given: tuple[tuple[Kind, bool], ...], level: Level, shown: Kind | None
) -> None:
    found, reason = consumer_level(reasons(*given))
    assert (found, reason and reason.kind) == (level, shown)

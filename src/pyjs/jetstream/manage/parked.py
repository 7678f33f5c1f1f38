"""Stored replicas of streams that are not open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.store.store import StreamStore


class Parked(NamedTuple):
    """The stored replica of a stream that is not open."""

    config: StreamConfig
    created_ns: int
    store: StreamStore


class KnownIds(NamedTuple):
    """The duplicate window of a replica."""

    dump: bytes  # see Dedupe.dump
    size: int  # ids
    last_id: bytes  # of the last message

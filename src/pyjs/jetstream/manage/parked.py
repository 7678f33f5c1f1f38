"""Stored replicas of streams that are not open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyjs.base.errors import StoreFailed

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.core.chore import Step
    from pyjs.jetstream.config.stream import StreamConfig
    from pyjs.jetstream.manage.persist import AccountFiles
    from pyjs.store.store import StreamStore


class Parked(NamedTuple):
    """The stored replica of a stream that is not open."""

    config: StreamConfig
    created_ns: int
    store: StreamStore


def reopened_steps(files: AccountFiles, name: str) -> Generator[Step, None, Parked]:
    """Open the files of a stream in steps, and return the replica in them.

    Raises:
        StoreFailed: the files cannot be read now. They are not changed.
    """
    for found in files.reopen_steps(name):
        if found is not None:
            return Parked(*found)
        yield None
    raise StoreFailed(files.directory_of(name), "it cannot be read")


class KnownIds(NamedTuple):
    """The duplicate window of a replica, as a dump."""

    dump: bytes  # see Dedupe.dump
    size: int  # number of ids
    last_id: bytes  # Nats-Msg-Id of the last message

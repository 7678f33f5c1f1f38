"""Removal of the messages that exceed lowered limits, in steps of about a millisecond; used by streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.store.store import StreamStore

STEP = 2000  # messages removed or examined in one step


def trim_steps(
    store: StreamStore, max_per_subject: int, max_msgs: int, max_bytes: int
) -> Generator[None, None, None]:
    """Remove the oldest messages that exceed the limits; a limit <= 0 has no effect.

    The limits of the whole stream come first, as on nats-server: see the scenario stream/update_trims_by_two_limits.
    Readers wait meanwhile: `store.changing` is set. The caller writes the removals after each step.
    """
    store.changing = True
    try:
        while store.drop_front(max_msgs, max_bytes, STEP):
            yield
        if max_per_subject > 0:
            yield from _trim_subjects(store, max_per_subject)
    finally:
        store.changing = False


def _trim_subjects(store: StreamStore, keep: int) -> Generator[None, None, None]:
    """Remove all but the newest `keep` messages of each subject; messages stored meanwhile are not examined."""
    seq, end_seq = 1, store.last_seq + 1
    while seq:
        seq = store.trim_some(keep, seq, end_seq, STEP)
        yield

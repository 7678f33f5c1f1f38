"""Reads of a consumer's position; their cost depends on the consumer's filters and the number of stored messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.jetstream.consumer.info import know_pending
from pyjs.jetstream.manage.stream_info import know_subjects

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyjs.jetstream.consumer.consumer import Consumer

SEARCHED = 1_000  # messages; with more, the search of one consumer with filters is a step of its own


def is_searched(consumer: Consumer) -> bool:
    """Return whether finding the next message of the consumer takes a search among many messages."""
    return not consumer.closed and bool(consumer.filters) and consumer.store.msgs > SEARCHED


def prepare(consumer: Consumer) -> Generator[None, None, None]:
    """Search for the next message and count num_pending; yield between steps.

    Afterwards, reading the position and num_pending takes no search.
    """
    yield from know_subjects(consumer.store, consumer.store.make_filter(consumer.filters))
    while not consumer.closed and not consumer.cursor.find_some() and consumer.cursor.searching:
        yield
    yield from know_pending(consumer)

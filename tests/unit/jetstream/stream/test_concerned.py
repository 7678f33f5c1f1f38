"""The consumers that roll-ups and purges concern: each is looked at once, however many roll-ups a turn has."""

from __future__ import annotations

import pytest

from pyjs.core.sink import Turn
from pyjs.jetstream.stream.interest import Interest
from pyjs.jetstream.stream.stream_consumer import StreamConsumer, StreamInbox
from pyjs.store.memory import MemStore

CONSUMERS, ROLLUPS = 1000, 2000


class Counted(StreamConsumer):
    """A consumer that counts how often consumers are looked up in a table."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return hash(self.name)


def interest_of(filters: list[tuple[bytes, ...]]) -> tuple[Interest, MemStore]:
    """Return the interest of consumers with these filters in a stream with a message for each roll-up."""
    store = MemStore()
    for number in range(ROLLUPS):
        store.store(b"s.%d" % number, b"", b"", 1)
    interest = Interest(store, StreamInbox(Turn(), None))
    for number, each in enumerate(filters):
        interest.add(Counted(f"c{number}", each))
    Counted.looks = 0
    return interest, store


@pytest.mark.parametrize(
    "filters",
    [
        [()] * CONSUMERS,
        [(b"s.>",)] * CONSUMERS,
        [(b"s.>",)] * (CONSUMERS - 1) + [(b"other",)],
        [(b"s.*", b"other")] * (CONSUMERS - 1) + [(b"other",)],
        [(b"s.%d" % number,) for number in range(CONSUMERS)],
    ],
    ids=["no filter", "all", "all but one", "two filters", "one subject each"],
)
def test_many_roll_ups_of_one_turn_look_at_each_consumer_a_few_times(
    filters: list[tuple[bytes, ...]],
) -> None:
    interest, _ = interest_of(filters)
    found = interest.concerned([b"s.%d" % number for number in range(ROLLUPS)])
    assert Counted.looks <= 5 * CONSUMERS
    assert len(found) >= sum(each != (b"other",) for each in filters)


def test_filters_that_many_consumers_share_are_compared_once_with_each_subject_with_wildcards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []
    monkeypatch.setattr(
        "pyjs.jetstream.stream.interest.is_subset", lambda *subjects: compared.append(subjects) or False
    )
    interest, _ = interest_of([(b"s.>",)] * (CONSUMERS - 1) + [(b"other",)])
    found = interest.concerned([b"s.*.%d" % number for number in range(ROLLUPS)])
    assert len(found) == CONSUMERS
    assert len(compared) == 2 * ROLLUPS
    assert Counted.looks <= 5 * CONSUMERS


def test_a_few_roll_ups_concern_only_consumers_with_matching_filters() -> None:
    interest, store = interest_of([(b"s.%d" % number,) for number in range(CONSUMERS)])
    store.drop_seq(1)
    found = interest.concerned([b"s.0", b"s.1", b"s.0"])
    assert {consumer.name: first_seq for consumer, first_seq in found.items()} == {"c0": ROLLUPS + 1, "c1": 2}
    assert Counted.looks <= 10


def test_a_consumer_of_one_of_many_rolled_up_subjects_needs_no_message_before_the_first_that_is_left() -> (
    None
):
    interest, store = interest_of([(b"s.7",), (b"other",)])
    store.drop_seq(8)
    store.store(b"s.7", b"", b"", 1)
    found = interest.concerned([b"s.%d" % number for number in range(ROLLUPS)])
    assert {consumer.name: first_seq for consumer, first_seq in found.items()} == {"c0": ROLLUPS + 1}

"""The state of a consumer: delivered messages, pending messages, and the ack floor."""

from __future__ import annotations

import pytest

from pyjs.jetstream.consumer.acks.log import StateLog, decode
from pyjs.jetstream.consumer.acks.state import AckState
from pyjs.store.memory import MemStore

NOW = 1_000_000_000
DELIVERED, ACKED, ACKED_ALL, PROGRESS, NAKED, DELAYED, EXHAUSTED = 1, 2, 3, 5, 6, 7, 8


class AcksFixture:
    """The state of a consumer from sequence 1 on, with its visible properties."""

    def __init__(self, *delivered: int) -> None:
        self.acks = AckState(StateLog())
        self.acks.begin(1)
        for seq in delivered:
            self.acks.delivered(seq, NOW, False)
        self.changes()

    @property
    def floor(self) -> tuple[int, int]:
        """Return the ack floor as (consumer sequence, stream sequence)."""
        return self.acks.floor_cseq, self.acks.floor_seq

    @property
    def pending(self) -> list[int]:
        """Return the sequences of the pending messages."""
        return [entry[0] for entry in self.acks.pending.dump()]

    def changes(self) -> list[tuple[int, ...]]:
        """Return the changes recorded for the file since the last call."""
        return list(decode(self.acks.changes.take()))


# -- deliveries ------------------------------------------------------------------------------------------------


def test_a_state_that_begins_later_has_its_floor_there() -> None:
    acks = AckState(StateLog())

    acks.begin(7)

    assert (acks.delivered_seq, acks.floor_seq, acks.delivered_cseq, acks.floor_cseq) == (6, 6, 0, 0)


def test_a_delivery_is_pending_below_the_floor_of_none() -> None:
    state = AcksFixture()

    state.acks.delivered(1, NOW, False)
    state.acks.delivered(4, NOW, False)

    assert (state.pending, state.floor) == ([1, 4], (0, 0))
    assert (state.acks.delivered_cseq, state.acks.delivered_seq) == (2, 4)
    assert state.changes() == [(DELIVERED, 1, 1, 1, NOW), (DELIVERED, 4, 2, 1, NOW)]


def test_a_delivery_that_nobody_acknowledges_moves_the_floor() -> None:
    state = AcksFixture()

    state.acks.delivered(3, NOW, True)

    assert (state.pending, state.floor) == ([], (1, 3))


# -- acks ------------------------------------------------------------------------------------------------------


def test_the_floor_moves_to_before_the_oldest_that_is_pending() -> None:
    state = AcksFixture(1, 2, 5, 6)

    assert state.acks.ack(2)
    behind = state.floor
    assert state.acks.ack(1)

    assert (behind, state.floor, state.pending) == ((0, 0), (2, 4), [5, 6])
    assert state.changes() == [(ACKED, 2, 1), (ACKED, 1, 1)]


def test_the_last_ack_moves_the_floor_to_what_was_delivered() -> None:
    state = AcksFixture(1, 2, 5)

    for seq in (5, 2, 1):
        state.acks.ack(seq)

    assert state.floor == (3, 5)


@pytest.mark.parametrize("seq", [0, 1, 9], ids=["zero", "acknowledged", "not delivered"])
def test_an_ack_of_what_is_not_pending_changes_nothing(seq: int) -> None:
    state = AcksFixture(1, 2)
    state.acks.ack(1)
    state.changes()

    assert not state.acks.ack(seq)

    assert (state.pending, state.floor, state.changes()) == ([2], (1, 1), [])


def test_an_ack_of_all_settles_everything_up_to_it() -> None:
    state = AcksFixture(1, 2, 5, 6)

    assert state.acks.ack_to(5, 3)

    assert (state.pending, state.floor) == ([6], (3, 5))
    assert state.changes() == [(ACKED_ALL, 5, 3)]


def test_an_ack_of_all_below_the_floor_changes_nothing() -> None:
    state = AcksFixture(1, 2, 5)
    state.acks.ack_to(5, 3)
    state.changes()

    assert not state.acks.ack_to(2, 2)

    assert (state.floor, state.changes()) == ((3, 5), [])


def test_an_ack_of_all_does_not_take_the_floor_back() -> None:
    state = AcksFixture(1, 2, 3)
    state.acks.ack_to(2, 2)

    state.acks.ack_to(3, 1)

    assert state.floor == (2, 3)


def test_work_in_progress_waits_from_now_on() -> None:
    state = AcksFixture(1)

    state.acks.in_progress(1, NOW + 5)
    state.acks.in_progress(9, NOW + 5)

    assert state.acks.pending.dump()[0][2] == NOW + 5
    assert state.changes() == [(PROGRESS, 1, NOW + 5)]


def test_a_nak_is_queued_at_once_or_waits_for_its_time() -> None:
    state = AcksFixture(1, 2)

    state.acks.nak(1, 0)
    state.acks.nak(2, NOW + 9)

    assert state.acks.pending.queued() == [1]
    assert state.acks.pending.next_due() == NOW + 9
    assert state.changes() == [(NAKED, 1), (DELAYED, 2, NOW + 9)]


def test_everything_pending_is_delivered_again() -> None:
    state = AcksFixture(1, 2, 5)
    state.acks.ack(2)
    state.changes()

    state.acks.requeue_all()

    assert state.acks.pending.queued() == [1, 5]
    assert state.changes() == [(NAKED, 1), (NAKED, 5)]


# -- exhausted messages: max_deliver is reached without an ack ------------------------------------------------


def test_a_delivery_that_is_given_up_leaves_the_floor_and_may_still_be_acknowledged() -> None:
    state = AcksFixture(1, 2)

    assert state.acks.give_up(1) == 1
    given_up = (state.pending, state.floor, dict(state.acks.exhausted), state.changes())

    assert given_up == ([2], (0, 0), {1: 1}, [(EXHAUSTED, 1)])
    assert state.acks.ack(1)
    assert not state.acks.ack(1)
    assert state.acks.exhausted == {}


def test_what_was_given_up_is_taken_up_to_a_sequence() -> None:
    state = AcksFixture(1, 2, 3)
    for seq in (1, 2, 3):
        state.acks.give_up(seq)

    assert state.acks.take_exhausted(2) == [1, 2]
    assert state.acks.exhausted == {3: 1}


# -- removals from the stream ----------------------------------------------------------------------------------


def stored(*removed: int) -> MemStore:
    """Return a store of the messages 1 to 6, without those in `removed`."""
    store = MemStore()
    for _ in range(6):
        store.store(b"a", b"", b"", NOW)
    for seq in removed:
        store.drop_seq(seq)
    return store


def test_a_purge_forgets_what_was_pending_and_moves_the_floor() -> None:
    state = AcksFixture(1, 2, 3, 4)

    assert state.acks.purge(3, stored(1, 2).catalogue)

    assert (state.pending, state.floor) == ([3, 4], (2, 2))


def test_a_purge_moves_the_floor_to_the_oldest_message_that_is_left() -> None:
    for acks_all, floor in ((False, (2, 5)), (True, (2, 4))):
        state = AcksFixture(2, 4, 6)

        assert state.acks.purge(5, stored(1, 2, 3, 4).catalogue, acks_all)

        assert (state.pending, state.floor) == ([6], floor)


def test_a_purge_of_everything_moves_the_floor_to_the_end() -> None:
    state = AcksFixture(1, 2)
    state.acks.give_up(1)

    assert state.acks.purge(7, stored(1, 2, 3, 4, 5, 6).catalogue)

    assert (state.pending, state.floor, state.acks.exhausted) == ([], (2, 6), {})
    assert state.acks.delivered_seq == 6


def test_a_purge_of_what_was_acknowledged_tells_so() -> None:
    state = AcksFixture(1, 2, 3)
    state.acks.ack(1)

    assert not state.acks.purge(2, stored(1).catalogue)


def test_a_state_fits_a_stream_that_lost_messages() -> None:
    state = AcksFixture(1, 2, 3, 9)
    state.acks.give_up(2)

    state.acks.fit(6, stored(1, 2).catalogue)

    assert (state.pending, state.floor, state.acks.exhausted) == ([3], (2, 2), {})
    assert state.acks.delivered_seq == 6


def test_a_state_that_was_loaded_is_the_one_that_was_kept() -> None:
    state, again = AcksFixture(1, 2, 5, 6), AcksFixture()
    state.acks.give_up(2)
    state.acks.ack(1)

    again.acks.load(
        {
            "delivered": (state.acks.delivered_cseq, state.acks.delivered_seq),
            "floor": state.floor,
            "pending": state.acks.pending.dump(),
            "spent": list(state.acks.exhausted.items()),
        }
    )

    assert (again.pending, again.floor, again.acks.exhausted) == ([5, 6], state.floor, {2: 1})
    assert again.acks.delivered_cseq == 4

"""The order in which letters are sent, and what a queue costs that nobody tells of acknowledgements."""

from __future__ import annotations

from pyjs.jetstream.consumer.acks.log import StateLog
from pyjs.jetstream.consumer.acks.state import AckState
from pyjs.jetstream.dead_letters.queue import STALE_STEP, LetterQueue


def queue_of(*seqs: int) -> tuple[AckState, LetterQueue]:
    """Return a queue of messages that were given up in this order."""
    acks = AckState(StateLog())
    acks.exhausted.update(dict.fromkeys(seqs, 1))
    return acks, LetterQueue(acks)


def refuse(queue: LetterQueue, *seqs: int) -> None:
    for seq in seqs:
        queue.refuse(seq, f"no {seq}")


def test_letters_come_in_the_order_in_which_messages_were_given_up() -> None:
    acks, queue = queue_of(7, 3, 5)
    acks.exhausted[4] = 1
    assert acks.unsent is not None
    acks.unsent.append(4)
    assert queue.take(2) == [7, 3]
    acks.exhausted.clear()
    acks.exhausted.update({5: 1, 4: 1})
    assert queue.take(9) == [5, 4]


def test_refused_letters_come_once_an_attempt_and_after_the_others() -> None:
    _, queue = queue_of(1, 2, 3)
    assert queue.take(2) == [1, 2]
    refuse(queue, 1, 2)
    assert (queue.take(2), queue.has_more()) == ([3], False)
    refuse(queue, 3)
    assert queue.take(2) == []
    queue.begin_attempt()
    assert queue.take(2) == [1, 2]
    refuse(queue, 1, 2)
    assert queue.take(2) == [3]
    refuse(queue, 3)
    assert (queue.take(2), queue.has_more()) == ([], False)


def test_an_attempt_that_ends_early_does_not_send_the_same_letters_again() -> None:
    _, queue = queue_of(1, 2, 3, 4)
    refuse(queue, *(queue.take(4) or ()))
    queue.begin_attempt()
    assert queue.take(2) == [1, 2]
    refuse(queue, 1, 2)
    queue.begin_attempt()
    assert queue.take(2) == [3, 4]


def test_letters_that_were_taken_and_not_sent_are_the_next_ones() -> None:
    acks, queue = queue_of(1, 2, 3, 4)
    assert queue.take(4) == [1, 2, 3, 4]
    refuse(queue, 2)
    del acks.exhausted[1]
    assert queue.take(4) == [3, 4]
    refuse(queue, 3, 4)
    assert queue.take(4) == []
    queue.begin_attempt()
    assert queue.take(4) == [2, 3, 4]
    refuse(queue, 2)
    assert queue.take(4) == [3, 4]


def test_letters_that_are_no_longer_given_up_are_skipped_some_at_a_time() -> None:
    acks, queue = queue_of(*range(1, 2 * STALE_STEP + 2))
    for seq in range(1, 2 * STALE_STEP + 1):
        del acks.exhausted[seq]
    assert [queue.take(64), queue.take(64), queue.take(64)] == [None, None, [2 * STALE_STEP + 1]]


def test_a_refusal_that_is_no_longer_about_anything_is_not_shown() -> None:
    acks, queue = queue_of(1, 2)
    assert queue.first_refusal() is None
    refuse(queue, *(queue.take(2) or ()))
    del acks.exhausted[1]
    assert queue.first_refusal() == (2, "no 2")
    queue.begin_attempt()
    assert queue.take(2) == [2]
    assert queue.first_refusal() == (2, "no 2")
    del acks.exhausted[2]
    assert (queue.take(2), queue.first_refusal()) == ([], None)


def test_a_long_wait_does_not_collect_what_is_no_longer_given_up() -> None:
    acks, queue = queue_of(1)
    assert acks.unsent is not None
    acks.unsent.extend(range(2, 2 * STALE_STEP))
    refuse(queue, *(queue.take(1) or ()))
    queue.begin_attempt()
    assert (acks.unsent, queue.take(1)) == (type(acks.unsent)(), [1])


def test_another_stream_gets_all_letters() -> None:
    _, queue = queue_of(1, 2)
    refuse(queue, *(queue.take(1) or ()))
    queue.begin()
    assert (queue.take(2), queue.first_refusal()) == ([1, 2], None)


def test_a_reset_of_the_consumer_forgets_them() -> None:
    acks, queue = queue_of(1, 2)
    acks.reset(1)
    assert (queue.take(2), queue.has_more()) == ([], False)


def test_an_attempt_that_begins_while_letters_are_taken_counts_each_once() -> None:
    acks, queue = queue_of(1, 2, 3)
    refuse(queue, *(queue.take(3) or ()))
    queue.begin_attempt()
    assert queue.take(3) == [1, 2, 3]
    queue.begin_attempt()
    assert (queue.take(9), queue.has_more()) == ([1, 2, 3], False)
    acks.exhausted.clear()
    queue.begin_attempt()
    assert (queue.take(9), queue.has_more()) == ([], False)

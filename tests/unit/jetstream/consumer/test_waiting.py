"""The queue of pull requests."""

from __future__ import annotations

from pyjs.jetstream.consumer.delivery.pull_requests import WaitingQueue


def test_the_queue_is_bounded_and_in_order() -> None:
    # given
    queue = WaitingQueue(2)
    # when
    taken = [
        queue.add(reply, 5, 0, no_wait, 10, 0, 0)
        for reply, no_wait in ((b"a", True), (b"b", False), (b"c", True))
    ]
    # then
    assert taken == [True, True, False]
    assert queue.replies() == [b"a", b"b"]
    assert (len(queue), queue.count, queue.no_wait, queue.wanted()) == (2, 2, 1, 10)


def test_the_smallest_priority_is_first_and_equal_ones_in_order() -> None:
    # given
    queue = WaitingQueue(9)
    queue.by_priority = True
    # when
    for reply, priority in ((b"c1", 3), (b"a1", 1), (b"c2", 3), (b"a2", 1), (b"b", 2), (b"last", 2**31 - 1)):
        queue.add(reply, 1, 0, False, 10, 0, 0, priority)
    # then
    assert queue.replies() == [b"a1", b"a2", b"b", b"c1", b"c2", b"last"]

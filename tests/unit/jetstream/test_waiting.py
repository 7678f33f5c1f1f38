"""The queue of pull requests."""

from __future__ import annotations

from pyjs.jetstream.waiting import WaitingQueue


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

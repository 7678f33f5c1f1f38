"""The queue of direct gets that wait until the entries at the end of the log are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyjs.base.timers import Timers
from pyjs.core.chore import Chore
from pyjs.core.sink import Turn
from pyjs.jetstream.replication.settling import WAIT_NS, Settling


class Queue:
    """A settling with a log that records queries, and the requests that it has permitted."""

    def __init__(self) -> None:
        self.has_tail = True
        self.has_leader = True
        self.questions: list[Callable[[], None]] = []
        self.turn, self.timers = Turn(), Timers()
        self.settling = Settling(self.turn, self.timers, self)
        self.answered: list[int] = []

    def ask(self, done: Callable[[], None]) -> bool:
        self.questions.append(done)
        return self.has_leader

    def request(self, number: int) -> None:
        def steps() -> Iterator[Any]:
            yield from self.settling.steps()
            self.answered.append(number)

        Chore(steps(), (None, None)).go_on()

    def run(self) -> None:
        for chore in self.turn.take("chores"):
            chore.go_on()

    def pass_time(self) -> None:
        self.turn.now += WAIT_NS
        while self.timers.due(self.turn.now) is not None:
            self.timers.pop()()


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_one_question_is_on_its_way_and_covers_earlier_requests_only(queue: Queue) -> None:
    for number in (1, 2, 3):
        queue.request(number)
    assert len(queue.questions) == 1

    queue.questions[0]()
    queue.run()
    assert queue.answered == [1]
    assert len(queue.questions) == 2

    queue.questions[1]()
    queue.run()
    assert queue.answered == [1, 2, 3]
    assert len(queue.questions) == 2


def test_all_continue_when_the_log_has_no_tail_any_more(queue: Queue) -> None:
    queue.request(1)
    queue.request(2)
    queue.has_tail = False

    queue.questions[0]()
    queue.run()

    assert queue.answered == [1, 2]


def test_it_is_not_idle_before_the_released_ones_have_run(queue: Queue) -> None:
    queue.request(1)
    assert not queue.settling.is_idle

    queue.questions[0]()
    assert not queue.settling.is_idle

    queue.run()
    assert queue.settling.is_idle


def test_without_a_leader_nobody_waits(queue: Queue) -> None:
    queue.has_leader = False
    queue.request(1)
    queue.run()

    assert queue.answered == [1]


def test_an_answer_after_the_time_is_over_is_ignored(queue: Queue) -> None:
    queue.request(1)
    queue.pass_time()
    queue.request(2)
    queue.run()
    assert queue.answered == [1]

    queue.questions[0]()
    queue.run()
    assert queue.answered == [1]

    queue.questions[1]()
    queue.run()
    assert queue.answered == [1, 2]


def test_an_answer_in_time_leaves_no_timer(queue: Queue) -> None:
    queue.request(1)
    queue.questions[0]()

    assert queue.timers.next_deadline_ns() is None

"""Messages that exceed lowered limits are removed in steps."""

from __future__ import annotations

import pytest

from pyjs.store.memory import MemStore
from pyjs.store.trimming import STEP, trim_steps

MSGS = 4 * STEP


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ((2, 0, 0), 20),
        ((0, 5, -1), 5),
        ((STEP, 7, 0), 7),
        ((0, 0, 1), 0),
        ((0, MSGS, 0), MSGS),
        ((-1, -1, -1), MSGS),
    ],
)
def test_limits_are_applied_in_steps_while_readers_wait(limits: tuple[int, int, int], left: int) -> None:
    store = MemStore()
    for number in range(MSGS):
        store.store(b"s.%d" % (number % 10), b"", b"x", 1)

    steps = 0
    for _ in trim_steps(store, *limits):
        steps += 1
        assert store.changing

    assert (store.msgs, store.changing) == (left, False)
    assert steps >= (0 if left == MSGS else 3)
    assert not left or store.last_seq == MSGS


def test_the_limits_of_the_stream_come_before_those_of_subjects() -> None:
    store = MemStore()
    for subject in (b"s.a", b"s.b", b"s.b"):
        store.store(subject, b"", b"", 1)

    assert list(trim_steps(store, 1, 2, 0))
    assert (store.msgs, store.first_seq) == (1, 3)

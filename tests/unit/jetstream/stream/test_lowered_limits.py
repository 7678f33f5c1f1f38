"""Lowered limits: which of them remove messages in steps, and which leave the removal to the new configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.stream.lowered_limits import lower_steps
from pyjs.jetstream.stream.stream import Stream


def filled(msgs: int, **limits: Any) -> Stream:
    """Return a stream with `msgs` messages of 10 subjects, which it has not trimmed yet."""
    js = JetStreamFixture()
    js.add("S", subjects=["s.*"], **limits)
    stream = js.stream("S")
    for number in range(msgs):
        stream.store.store(b"s.%d" % (number % 10), b"", b"", 1)
    return stream


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_msgs": 100}, 100),
        ({"max_bytes": 950}, 50),
        ({"max_msgs_per_subject": 3}, 30),
        ({"max_msgs_per_subject": 3, "max_msgs": 20}, 20),
        ({"max_msgs": 100, "max_bytes": 1000, "discard": "new"}, 5000),
        ({"max_msgs_per_subject": 3, "discard": "new"}, 30),
    ],
    ids=str,
)
def test_the_oldest_messages_above_a_lowered_limit_are_removed(limits: dict[str, Any], left: int) -> None:
    stream = filled(5000)

    for _ in lower_steps(stream, replace(stream.config, **limits)):
        assert stream.store.changing

    assert (stream.store.msgs, stream.store.changing) == (left, False)


def test_a_limit_that_rises_removes_nothing() -> None:
    stream = filled(5000, max_msgs_per_subject=3)

    assert not list(lower_steps(stream, replace(stream.config, max_msgs_per_subject=4)))
    assert stream.store.msgs == 5000


def test_few_messages_are_left_to_the_new_configuration() -> None:
    stream = filled(2000)

    assert not list(lower_steps(stream, replace(stream.config, max_msgs=1)))
    assert stream.store.msgs == 2000


def test_the_limits_of_few_messages_come_in_the_same_order_as_in_the_steps() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s.*"])
    for subject in ("s.a", "s.b", "s.b"):
        js.publish(subject, b"")

    limits = {"max_msgs": 2, "max_msgs_per_subject": 1}
    answer = js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*"], "storage": "memory", **limits})

    assert "error" not in answer
    assert (js.stream("S").store.msgs, js.stream("S").store.first_seq) == (1, 3)

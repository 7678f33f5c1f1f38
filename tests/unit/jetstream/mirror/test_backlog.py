"""The lag of a source behind an origin on the same server, counted in steps."""

from __future__ import annotations

import random

import pytest
from tests.unit.jetstream.test_long_requests import LongFixture

MATCHES = 60_000  # of as many subjects: more than one step counts


@pytest.fixture
def js() -> LongFixture:
    """Return an origin O, and a stream C that is full after the first message, so it stays behind."""
    js = LongFixture()
    js.add("O", subjects=["o.>"], storage="memory")
    return js


def follow(js: LongFixture) -> None:
    """Let C begin to copy."""
    source = {"name": "O", "filter_subject": "o.a.*"}
    js.add("C", storage="memory", sources=[source], max_msgs=1, discard="new")
    js.turns_until_idle()


def lag(js: LongFixture) -> int:
    return int(js.api("STREAM.INFO.C")["sources"][0]["lag"])


def fill(js: LongFixture) -> None:
    """Store the matches, and some messages that are none."""
    store = js.stream("O").store
    for number in range(MATCHES):
        store.store(b"o.a.%d" % number, b"", b"", 1)
        if number % 3 == 0:
            store.store(b"o.b.%d" % number, b"", b"", 1)
    js.stream("O").commit_now()


def test_a_long_lag_is_counted_in_steps(js: LongFixture) -> None:
    # given
    fill(js)
    follow(js)
    # when
    steps = js.engine.inflows["C"].count_steps()
    next(steps)
    js.publish("o.a.new")
    taken = 1 + sum(1 for _ in steps)
    # then: one message is copied, one was refused, and one is not counted, as in nats-server
    assert taken >= 2
    assert lag(js) == MATCHES + 1 - 3
    (listed,) = [each for each in js.api("STREAM.LIST")["streams"] if each["config"]["name"] == "C"]
    assert listed["sources"][0]["lag"] == MATCHES + 1 - 3


def test_a_long_count_is_used_for_a_second_although_messages_are_removed(js: LongFixture) -> None:
    fill(js)
    follow(js)
    assert lag(js) == MATCHES - 3
    js.api("STREAM.MSG.DELETE.O", {"seq": js.stream("O").store.last_seq - 1})
    js.publish("o.a.new")
    assert lag(js) == MATCHES - 2
    js.advance(seconds=1)
    assert lag(js) == MATCHES - 3


def test_a_count_with_long_pauses_ends_although_messages_are_removed(js: LongFixture) -> None:
    fill(js)
    follow(js)
    for taken, _ in enumerate(js.engine.inflows["C"].count_steps()):
        js.api("STREAM.MSG.DELETE.O", {"seq": taken + 5})
        js.advance(seconds=2)
        assert taken < 20


def test_a_short_count_follows_every_change(js: LongFixture) -> None:
    rng = random.Random(3)
    follow(js)
    store = js.stream("O").store
    waiting: list[int] = []
    for _ in range(300):
        if rng.random() < 0.6:
            subject = rng.choice(("o.a.1", "o.a.2", "o.b.1"))
            js.publish(subject)
            if "a" in subject:
                waiting.append(store.last_seq)
        elif waiting and rng.random() < 0.5:
            js.api("STREAM.MSG.DELETE.O", {"seq": waiting.pop(rng.randrange(len(waiting)))})
        else:
            js.api("STREAM.PURGE.C")
            js.advance(seconds=2)
        copied = js.engine.inflows["C"].report(lag=False)[0].get("seq", 0)
        waiting = [seq for seq in waiting if seq > copied]
        assert lag(js) == max(0, len(waiting) - 2)


def test_copies_are_subtracted_from_a_long_count(js: LongFixture) -> None:
    fill(js)
    follow(js)
    assert lag(js) == MATCHES - 3
    config = js.api("STREAM.INFO.C")["config"]
    js.api("STREAM.UPDATE.C", {**config, "max_msgs": 10})
    js.turns_until_idle()
    assert lag(js) == MATCHES - 12

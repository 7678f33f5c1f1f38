"""A start whose clock is an hour behind the stored messages, then steps forward: order, limits and deadlines hold."""

from __future__ import annotations

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

HOUR = 3600
S = 1_000_000_000
PULL = b'{"batch":1,"expires":600000000000}'


def step(js: JetStreamFixture, seconds: int) -> None:
    """Set the clock forward; use a new client, since the old one has not answered a ping in time."""
    js.clock.advance(seconds * S)
    js.turn()
    js.user = js.client()


def stored(**config: object) -> JetStreamFixture:
    """Return a server that is an hour ahead of those started later, with the stream S of s.> and three messages."""
    js = JetStreamFixture()
    step(js, HOUR)
    js.add("S", subjects=["s.>"], storage="file", **config)
    for number in range(3):
        js.publish(f"s.{number}", b"%d" % number, Nats_Msg_Id=f"id-{number}")
        js.advance(milliseconds=10)
    return js


def back(js: JetStreamFixture) -> JetStreamFixture:
    """Restart with the clock set back by an hour."""
    js.node.stop()
    again = JetStreamFixture(js.options)
    again.directory = js.directory
    assert again.clock.now_ns() < js.clock.now_ns() - HOUR * S
    return again


def times(js: JetStreamFixture) -> list[int]:
    store = js.stream("S").store
    found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
    return [message.ts for message in found if message is not None]


def pull(js: JetStreamFixture) -> list[bytes]:
    """Pull one message and return the payloads that arrive at once."""
    js.user.send(b"SUB in 9\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c in %d\r\n%b\r\n" % (len(PULL), PULL))
    return js.user.payloads()


def test_new_messages_have_the_wall_time_and_differ() -> None:
    js = back(stored())
    now_ns = js.clock.now_ns()
    for number in range(3, 6):
        js.publish(f"s.{number}", b"%d" % number)

    before = times(js)

    assert len(before) == 6
    assert len(set(before)) == 6
    assert before[3:] == [now_ns, now_ns + 1, now_ns + 2]
    js.node.stop()
    assert times(JetStreamFixture(js.options)) == before


def test_a_search_by_time_finds_its_message() -> None:
    js = back(stored())
    js.publish("s.3", b"3")
    store = js.stream("S").store
    # the first message that is not older
    assert [store.catalogue.seq_at(ts) for ts in times(js)] == [1, 2, 3, 1]
    assert store.catalogue.seq_at(times(js)[2] + 1) == 5
    assert store.catalogue.seq_at(js.clock.now_ns()) == 1


def test_message_ids_stay_known_and_are_forgotten_in_the_end() -> None:
    js = back(stored(duplicate_window=60 * S))
    assert js.publish("s.0", Nats_Msg_Id="id-0")["duplicate"] is True
    assert js.publish("s.0", Nats_Msg_Id="new")["seq"] == 4
    assert js.publish("s.0", Nats_Msg_Id="new")["duplicate"] is True

    step(js, HOUR + 90)

    assert js.publish("s.0", Nats_Msg_Id="id-0")["seq"] == 5
    assert js.publish("s.0", Nats_Msg_Id="new")["seq"] == 6
    assert len(js.stream("S").dedupe) == 2


def test_max_age_waits_for_the_clock_and_then_takes_everything() -> None:
    js = back(stored(max_age=60 * S, duplicate_window=60 * S))
    js.publish("s.3", b"3")
    step(js, 90)
    assert js.state("S")["messages"] == 4
    step(js, HOUR)
    assert js.state("S")["messages"] == 0


def test_a_step_forward_lets_max_age_take_what_is_older_now() -> None:
    js = stored(max_age=60 * S, duplicate_window=60 * S)
    step(js, HOUR)
    assert js.state("S")["messages"] == 0
    assert js.publish("s.9")["seq"] == 4


@pytest.mark.parametrize("restart", [True, False])
def test_what_was_delivered_is_delivered_again_after_the_ack_wait(restart: bool) -> None:
    js = stored(max_msgs=1)
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 5 * S}
    js.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    assert pull(js) == [b"2"]
    js = back(js) if restart else js
    assert pull(js) == []

    js.advance(seconds=4)
    assert js.user.payloads() == []
    js.advance(seconds=2)
    assert js.user.payloads() == [b"2"]


def test_a_delayed_redelivery_comes_after_its_delay() -> None:
    js = stored(max_msgs=1)
    config = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 5 * S}
    js.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    js.user.send(b"SUB in 9\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c in 1\r\n1\r\n")
    (frame,) = js.user.frames()
    nak = b'-NAK {"delay": 20000000000}'
    js.user.send(b"PUB %b %d\r\n%b\r\n" % (frame.reply, len(nak), nak))
    js = back(js)
    assert pull(js) == []

    js.advance(seconds=18)
    assert js.user.payloads() == []
    js.advance(seconds=3)
    assert js.user.payloads() == [b"2"]

"""The wall clock is set forward and back: times of messages follow it, timeouts do not."""

from __future__ import annotations

import json

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.base.gotext import time_text

DAY_NS = 86_400 * NS_PER_S
STORAGES = pytest.mark.parametrize("storage", ["file", "memory"])


def times(js: JetStreamFixture, name: str) -> list[int]:
    """Return the time at which each message of a stream was stored."""
    store = js.stream(name).store
    found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
    return [message.ts for message in found if message is not None]


def step(js: JetStreamFixture, ns: int) -> None:
    """Step the wall clock, and let the node notice it."""
    js.clock.step_wall(ns)
    js.advance(milliseconds=10)


@STORAGES
def test_after_a_step_forward_and_back_new_messages_have_the_right_time(storage: str) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage=storage)
    js.publish("s")
    step(js, DAY_NS)
    js.publish("s")
    step(js, -DAY_NS)
    js.advance(seconds=1)
    js.publish("s")

    first, ahead, last = times(js, "S")
    assert (ahead - first, last - first) == (DAY_NS + 10 * NS_PER_MS, NS_PER_S + 20 * NS_PER_MS)


@STORAGES
def test_a_small_step_back_leaves_times_in_order(storage: str) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage=storage)
    js.publish("s")
    step(js, -NS_PER_S // 2)
    js.publish("s")

    first, second = times(js, "S")
    assert second == first + 1


@STORAGES
def test_max_age_follows_a_step_forward(storage: str) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage=storage, max_age=3600 * NS_PER_S)
    js.publish("s")

    step(js, DAY_NS)
    js.advance(seconds=1)

    assert js.state("S")["messages"] == 0


@STORAGES
def test_max_age_drops_what_was_stored_after_the_clock_came_back(storage: str) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage=storage, max_age=3600 * NS_PER_S)
    step(js, DAY_NS)
    step(js, -DAY_NS)
    js.publish("s")

    js.advance(seconds=3601)
    js.user = js.client()  # the first client has not answered a PING

    assert js.state("S")["messages"] == 0


def test_a_ttl_follows_the_wall_clock() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], allow_msg_ttl=True)
    js.publish("s", Nats_TTL="1h")

    step(js, DAY_NS)
    js.advance(seconds=1)

    assert js.state("S")["messages"] == 0


@STORAGES
def test_a_start_time_finds_messages_although_the_clock_went_back(storage: str) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage=storage)
    for move in (0, DAY_NS, -DAY_NS):
        step(js, move)
        js.advance(seconds=10)
        js.publish("s")
    first, ahead, last = times(js, "S")
    store = js.stream("S").store

    found = [store.catalogue.seq_at(ts) for ts in (first, first + 1, ahead, ahead + 1, last)]

    # for each time, the first message in the order of sequences that is not older
    assert found == [1, 2, 2, 4, 2]
    again = js.restart() if storage == "file" else js
    store = again.stream("S").store
    assert [store.catalogue.seq_at(ts) for ts in (first, first + 1, ahead, ahead + 1, last)] == found


def test_a_step_moves_no_ack_wait() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"])
    js.publish("s")
    config = {"durable_name": "C", "ack_policy": "explicit", "ack_wait": 30 * NS_PER_S}
    js.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    js.ask("$JS.API.CONSUMER.MSG.NEXT.S.C", {"batch": 1})

    step(js, DAY_NS)
    js.advance(seconds=29)
    info = js.api("CONSUMER.INFO.S.C")
    assert (info["num_ack_pending"], info["num_redelivered"], info["num_pending"]) == (1, 0, 0)
    js.user.send(b"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C in 0\r\n\r\n")
    js.user.frames()
    js.advance(seconds=2)

    assert len(js.user.frames()) == 1


def test_a_pause_ends_by_the_wall_clock() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"])
    js.publish("s")
    until = time_text(js.clock.now_ns() + DAY_NS)
    config = {"durable_name": "C", "ack_policy": "explicit", "pause_until": until}
    js.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    js.user.send(b"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C in 0\r\n\r\n")
    assert js.user.frames() == []

    step(js, DAY_NS)
    js.advance(seconds=1)

    assert len(js.user.frames()) == 1


def test_a_step_is_told_in_the_log() -> None:
    js = JetStreamFixture()

    step(js, DAY_NS)
    step(js, -2 * DAY_NS)
    step(js, 1000)

    told = [text.partition(";")[0] for level, text in js.log.lines if "wall clock" in text]
    assert told == ["The wall clock was set forward by 24h0m0s", "The wall clock was set back by 48h0m0s"]


def test_a_stream_made_after_a_step_has_the_wall_time() -> None:
    js = JetStreamFixture()
    step(js, DAY_NS)

    js.add("S", subjects=["s"])

    answer = json.loads(js.ask("$JS.API.STREAM.INFO.S").payload)
    assert answer["created"] == answer["ts"] == time_text(js.clock.now_ns() + DAY_NS)


@pytest.mark.parametrize("ns", [DAY_NS, -DAY_NS])
def test_advisories_and_the_state_of_a_consumer_tell_the_wall_time(ns: int) -> None:
    js = JetStreamFixture()
    step(js, ns)
    watcher = js.client()
    watcher.send(b"SUB $JS.EVENT.ADVISORY.> 9\r\n")

    js.add("S", subjects=["s"])
    js.publish("s")
    config = {"durable_name": "C", "ack_policy": "explicit", "max_deliver": 1}
    js.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    js.user.send(b"SUB in 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.C in 0\r\n\r\n")
    js.turn()
    (delivery,) = [frame for frame in js.user.frames() if frame.reply.startswith(b"$JS.ACK.")]
    js.user.send(b"PUB %b 5\r\n+TERM\r\n" % delivery.reply)
    js.turn()
    info = js.api("CONSUMER.INFO.S.C")
    js.api("CONSUMER.DELETE.S.C")

    wall = time_text(js.clock.now_ns() + ns)
    told = [json.loads(frame.payload) for frame in watcher.frames()]
    stamps = [each["timestamp"] for each in told if "timestamp" in each]
    assert len(stamps) > 2
    assert set(stamps) == {wall}
    assert info["ts"] == info["delivered"]["last_active"] == info["ack_floor"]["last_active"] == wall


def test_what_is_left_of_a_pause_is_by_the_wall_clock() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"])
    until = time_text(js.clock.now_ns() + 2 * DAY_NS)
    config = {"durable_name": "C", "ack_policy": "explicit", "pause_until": until}
    js.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    step(js, DAY_NS)
    left = js.api("CONSUMER.INFO.S.C")["pause_remaining"]
    assert left == DAY_NS - 10 * NS_PER_MS

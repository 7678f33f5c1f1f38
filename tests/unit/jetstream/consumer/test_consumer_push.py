"""Push consumers: interest, queue groups, heartbeats, flow control."""

from __future__ import annotations

import pytest
from tests.unit.jetstream.consumerfixture import ConsumerFixture

NS = 1_000_000_000
MIB = 1 << 20


@pytest.fixture
def js() -> ConsumerFixture:
    return ConsumerFixture()


def listen(js: ConsumerFixture, subject: bytes = b"push.a", queue: bytes = b"") -> None:
    js.inbox.send(b"SUB %b %b p\r\n" % (subject, queue))


def pushed(js: ConsumerFixture) -> list[int]:
    """Return the sequences that the subscription of `listen` has received."""
    frames = [
        frame for frame in js.inbox.frames() if frame.sid == b"p" and frame.reply.startswith(b"$JS.ACK.")
    ]
    return [int(frame.reply.split(b".")[-4]) for frame in frames]


def test_nothing_is_delivered_before_somebody_listens(js: ConsumerFixture) -> None:
    # given
    js.fill(2)
    js.consumer(deliver_subject="push.a")
    assert "push_bound" not in js.info()
    # when
    listen(js)
    # then
    assert pushed(js) == [1, 2]
    assert js.info()["push_bound"] is True


def test_deliveries_stop_when_the_listener_leaves_and_go_on_when_it_is_back(js: ConsumerFixture) -> None:
    # given
    js.consumer(deliver_subject="push.a")
    listen(js)
    js.inbox.send(b"UNSUB p\r\n")
    js.fill(2)
    # when
    listen(js)
    # then
    assert pushed(js) == [1, 2]


def test_only_the_deliver_group_counts_as_interest(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer(deliver_subject="push.a", deliver_group="workers")
    listen(js, queue=b"others")
    assert pushed(js) == []
    js.inbox.send(b"UNSUB p\r\n")
    # when
    listen(js, queue=b"workers")
    # then
    assert js.info()["push_bound"] is True
    assert js.info()["num_pending"] == 0


def test_a_silent_consumer_sends_heartbeats(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer(deliver_subject="push.a", idle_heartbeat=NS)
    listen(js)
    js.inbox.take()
    # when
    js.advance(milliseconds=2500)
    # then
    frames = [frame for frame in js.inbox.frames() if frame.sid == b"p"]
    assert [frame.headers for frame in frames] == 2 * [
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\nNats-Last-Stream: 3\r\n\r\n"
    ]


def test_flow_control_stops_at_the_window_and_goes_on_with_the_answer(js: ConsumerFixture) -> None:
    # given
    for _ in range(24):
        js.user.send(b"PUB s.a 200000\r\n" + b"x" * 200000 + b"\r\n")
    js.consumer(deliver_subject="push.a", idle_heartbeat=NS, flow_control=True, ack_policy="none")
    listen(js)
    frames = [frame for frame in js.inbox.frames() if frame.sid == b"p"]
    requests = [frame for frame in frames if frame.headers.startswith(b"NATS/1.0 100 FlowControl Request")]
    delivered = len(frames) - len(requests)
    # when
    js.advance(seconds=1)
    beats = [frame.headers for frame in js.inbox.frames() if frame.sid == b"p"]
    js.inbox.send(b"PUB %b 0\r\n\r\n" % requests[0].reply)
    # then
    assert (len(requests), delivered) == (1, 11)
    assert b"Nats-Consumer-Stalled: " + requests[0].reply in beats[0]
    assert len(pushed(js)) == 13
    assert js.core().flow.window == 4 * MIB


def test_an_answer_to_flow_control_settles_what_it_names(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer(deliver_subject="push.a", ack_policy="flow_control", max_ack_pending=2)
    listen(js)
    frames = [frame for frame in js.inbox.frames() if frame.sid == b"p"]
    headers = b"NATS/1.0\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    # when
    js.inbox.send(b"PUB %b 0\r\n\r\n" % frames[0].reply)
    ignored = js.info()["num_ack_pending"]
    js.inbox.send(b"HPUB %b %d %d\r\n%b\r\n" % (frames[2].reply, len(headers), len(headers), headers))
    # then
    assert [frame.payload for frame in frames[:2]] == [b"m1", b"m2"]
    assert b"FlowControl" in frames[2].headers
    assert ignored == 2
    assert js.info()["ack_floor"]["stream_seq"] == 1
    assert js.info()["delivered"]["stream_seq"] == 3


@pytest.mark.parametrize("named", [b"1000", b"9" * 5000])
def test_an_answer_to_flow_control_that_names_too_much_holds_nothing_up(
    js: ConsumerFixture, named: bytes
) -> None:
    # given
    js.fill(4)
    js.consumer(deliver_subject="push.a", ack_policy="flow_control", max_ack_pending=2)
    listen(js)
    asked = [frame.reply for frame in js.inbox.frames() if b"FlowControl" in frame.headers]
    # when
    for last in (named, b"2", b"4"):
        headers = b"NATS/1.0\r\nNats-Last-Consumer: %b\r\nNats-Last-Stream: %b\r\n\r\n"
        block = headers % (last, b"2" if last == named else last)
        js.inbox.send(b"HPUB %b %d %d\r\n%b\r\n" % (asked[-1], len(block), len(block), block))
        js.advance(seconds=6)
        asked += [frame.reply for frame in js.inbox.frames() if b"FlowControl" in frame.headers]
    # then
    assert js.info()["ack_floor"]["stream_seq"] == 4


def test_nothing_is_redelivered_while_flow_control_settles(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer(deliver_subject="push.a", ack_policy="flow_control")
    listen(js)
    js.inbox.take()
    # when
    js.advance(seconds=60)
    # then
    assert pushed(js) == []
    assert js.info()["num_ack_pending"] == 1


def test_an_answer_to_another_flow_control_request_changes_nothing(js: ConsumerFixture) -> None:
    # given
    js.consumer(deliver_subject="push.a", idle_heartbeat=NS, flow_control=True, ack_policy="none")
    # when
    js.user.send(b"PUB $JS.FC.S.c.abcd 0\r\n\r\n")
    # then
    assert js.core().flow.window == 2 * MIB


def test_a_new_deliver_subject_gets_what_is_pending_again(js: ConsumerFixture) -> None:
    # given
    js.fill(2)
    js.consumer(deliver_subject="push.a")
    listen(js)
    pushed(js)
    js.inbox.send(b"UNSUB p\r\n")
    # when
    js.consumer(deliver_subject="push.b")
    listen(js, b"push.b")
    # then
    assert pushed(js) == [1, 2]


def test_an_ephemeral_goes_away_when_nobody_listens_any_more(js: ConsumerFixture) -> None:
    # given
    js.consumer(durable_name="", deliver_subject="push.a", inactive_threshold=NS)
    listen(js)
    js.advance(seconds=5)
    assert "c" in js.stream("S").consumers
    # when
    js.inbox.send(b"UNSUB p\r\n")
    js.advance(milliseconds=1100)
    # then
    assert "c" not in js.stream("S").consumers


def test_a_pull_request_to_a_push_consumer_is_refused(js: ConsumerFixture) -> None:
    # given
    js.consumer(deliver_subject="push.a")
    # when
    js.request(batch=1)
    # then
    assert js.statuses() == ["409 Consumer is push based"]


def test_a_message_to_a_queue_group_reaches_one_member(js: ConsumerFixture) -> None:
    # given
    js.consumer(deliver_subject="push.a", deliver_group="workers", ack_policy="none")
    listen(js, queue=b"workers")
    other = js.client()
    other.send(b"SUB push.a workers q\r\n")
    other.take()
    # when
    js.fill(20)
    # then
    mine, theirs = len(pushed(js)), len(other.frames())
    assert mine + theirs == 20
    assert mine
    assert theirs


def test_redeliveries_wait_for_a_receiver_that_has_much_queued(js: ConsumerFixture) -> None:
    # given a receiver that has not read its earlier messages, and ten more messages
    for _ in range(10):
        js.user.send(b"PUB s.a 100000\r\n%b\r\n" % (b"x" * 100_000))
    js.consumer(deliver_subject="push.a", ack_wait=NS)
    js.inbox.link.unsent = 16 * MIB
    js.inbox.session.output_paused()
    listen(js)
    # when their ack wait is over, only a few are redelivered
    js.advance(milliseconds=1020)
    assert js.info()["num_ack_pending"] == 10
    assert 1 <= js.info()["num_redelivered"] <= 3
    # and when it has read, all are
    js.inbox.link.unsent = 0
    js.inbox.session.output_resumed()
    js.advance(milliseconds=20)
    assert js.info()["num_redelivered"] == 10

"""Pull consumers, acks and redelivery on a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.jetstream.consumerfixture import ConsumerFixture

from pyjs.core.sink import Request

NS = 1_000_000_000


@pytest.fixture
def js() -> ConsumerFixture:
    return ConsumerFixture()


def test_a_pull_request_gets_its_batch_in_order_with_counts(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer()
    # when
    got = js.pull(batch=2)
    # then
    assert [(m.payload, m.count, m.seq, m.consumer_seq, m.pending) for m in got] == [
        (b"m1", 1, 1, 1, 2),
        (b"m2", 1, 2, 2, 1),
    ]


def test_a_waiting_request_is_served_when_messages_come(js: ConsumerFixture) -> None:
    # given
    js.consumer()
    assert js.pull(batch=2, expires=5 * NS) == []
    # when
    js.fill(3)
    # then
    assert [m.payload for m in js.deliveries()] == [b"m1", b"m2"]


def test_waiting_requests_are_served_in_turns(js: ConsumerFixture) -> None:
    # given
    js.consumer()
    js.request(reply="in.a", batch=2, expires=5 * NS)
    js.request(reply="in.b", batch=2, expires=5 * NS)
    # when
    js.fill(1, "s.1")
    js.fill(1, "s.2")
    # then
    requests = js.core().requests
    assert requests is not None
    assert requests.queue.replies() == [b"in.a", b"in.b"]
    assert [m.subject for m in js.deliveries()] == ["s.1", "s.2"]


def test_a_batch_larger_than_one_pump_is_delivered_whole(js: ConsumerFixture) -> None:
    # given
    for _ in range(40):
        js.user.send(b"PUB s.a 32000\r\n" + b"x" * 32000 + b"\r\n")
    js.consumer()
    # when
    got = js.pull(batch=40)
    # then
    assert [m.seq for m in got] == list(range(1, 41))


def test_acks_move_the_floor_only_over_what_is_settled(js: ConsumerFixture) -> None:
    # given
    js.fill(4)
    js.consumer()
    one, two, three, _four = js.pull(batch=4)
    # when, then
    js.ack(two)
    assert js.position() == ((4, 4), (0, 0))
    js.ack(one)
    assert js.position() == ((4, 4), (2, 2))
    js.ack(three, b"+TERM enough")
    assert js.position() == ((4, 4), (3, 3))
    assert js.info()["num_ack_pending"] == 1


def test_an_ack_of_everything_moves_the_floor_to_what_was_delivered(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer(ack_wait=NS)
    js.pull(batch=2)
    js.advance(seconds=2)
    # when
    for message in js.pull(batch=2):
        js.ack(message)
    # then
    assert js.position() == ((4, 2), (4, 2))


def test_an_ack_with_a_reply_is_answered_after_the_settling(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer()
    (message,) = js.pull(batch=1)
    js.inbox.take()
    # when
    js.ack(message, b"+ACK", b"in.ack")
    # then
    (answer,) = js.inbox.frames()
    assert (answer.subject, answer.payload, answer.headers) == (b"in.ack", b"", b"")


def test_an_ack_of_what_was_not_delivered_is_not_answered(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer()
    js.inbox.take()
    # when
    js.user.send(b"PUB $JS.ACK.S.c.1.9.9.0.0 in.ack 0\r\n\r\n")
    # then
    assert js.inbox.frames() == []


def test_ack_all_settles_everything_before(js: ConsumerFixture) -> None:
    # given
    js.fill(4)
    js.consumer(ack_policy="all")
    messages = js.pull(batch=4)
    # when
    js.ack(messages[2])
    # then
    assert js.position() == ((4, 4), (3, 3))
    assert js.info()["num_ack_pending"] == 1


def test_ack_all_of_a_first_delivery_counts_after_that_of_a_redelivery(js: ConsumerFixture) -> None:
    # given: the consumer's ack floor is that of the redelivery, which came after the other deliveries
    js.fill(4)
    js.consumer(ack_policy="all")
    messages = js.pull(batch=4)
    js.ack(messages[0], b"-NAK")
    (again,) = js.pull(batch=1)
    js.ack(again)
    # when
    js.ack(messages[2])
    # then
    assert js.position() == ((5, 4), (5, 3))
    assert js.info()["num_ack_pending"] == 1


def test_ack_all_settles_what_is_before_a_removed_message(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer(ack_policy="all")
    messages = js.pull(batch=3)
    js.ack(messages[0], b"-NAK")
    (again,) = js.pull(batch=1)
    js.ack(again)
    js.fill(1)
    js.pull(batch=1)
    js.api("STREAM.MSG.DELETE.S", {"seq": 4})
    assert js.position()[1] == (4, 1)
    # when
    js.ack(messages[2])
    # then
    assert js.position()[1][1] == 3
    assert js.info()["num_ack_pending"] == 0


def test_without_acks_the_floor_follows_the_delivery(js: ConsumerFixture) -> None:
    # given
    js.fill(2)
    js.consumer(ack_policy="none")
    # when
    js.pull(batch=2)
    # then
    assert js.position() == ((2, 2), (2, 2))
    assert js.info()["num_ack_pending"] == 0


def test_expired_ack_wait_redelivers_before_new_messages(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer(ack_wait=NS)
    js.pull(batch=2)
    js.advance(seconds=2)
    # when
    got = js.pull(batch=3)
    # then
    assert [(m.seq, m.count, m.consumer_seq) for m in got] == [(1, 2, 3), (2, 2, 4), (3, 1, 5)]
    assert js.info()["num_redelivered"] == 2


def test_progress_restarts_the_wait(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer(ack_wait=NS)
    (message,) = js.pull(batch=1)
    js.advance(milliseconds=900)
    # when
    js.ack(message, b"+WPI")
    js.advance(milliseconds=900)
    # then
    assert js.pull(batch=1, no_wait=True) == []
    js.advance(milliseconds=200)
    assert [m.count for m in js.pull(batch=1)] == [2]


def test_a_nak_redelivers_at_once(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer()
    (message,) = js.pull(batch=1)
    # when
    js.ack(message, b"-NAK")
    # then
    assert [m.count for m in js.pull(batch=1)] == [2]


@pytest.mark.parametrize("delay", [b'{"delay": 2000000000}', b"2s"])
def test_a_nak_with_delay_redelivers_after_the_delay(js: ConsumerFixture, delay: bytes) -> None:
    # given
    js.fill(1)
    js.consumer()
    (message,) = js.pull(batch=1)
    # when
    js.ack(message, b"-NAK " + delay)
    js.request(batch=1, expires=10 * NS)
    js.advance(milliseconds=1900)
    before = js.deliveries()
    js.advance(milliseconds=200)
    # then
    assert before == []
    assert [m.count for m in js.deliveries()] == [2]


def test_a_nak_with_a_bad_delay_is_a_plain_nak(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer()
    (message,) = js.pull(batch=1)
    # when
    js.ack(message, b"-NAK soon")
    # then
    assert [m.count for m in js.pull(batch=1)] == [2]
    assert any("bad NAK delay value" in text for _level, text in js.log.lines)


def test_next_acks_and_asks_for_more(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer()
    (message,) = js.pull(batch=1)
    # when
    js.ack(message, b"+NXT 2", b"in.2")
    # then
    assert [m.seq for m in js.deliveries()] == [2, 3]
    assert js.position() == ((3, 3), (1, 1))


def test_backoff_spaces_the_redeliveries(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer(backoff=[NS, 3 * NS], max_deliver=4)
    start = js.clock.now_ns()
    js.request(batch=9, expires=60 * NS)
    times = []
    # when
    for _ in range(120):
        times += [(m.count, (js.clock.now_ns() - start) // NS) for m in js.deliveries()]
        js.advance(milliseconds=100)
    # then
    assert times == [(1, 0), (2, 1), (3, 4), (4, 7)]


def test_max_deliver_gives_up_but_does_not_settle(js: ConsumerFixture) -> None:
    # given
    js.inbox.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.c 2\r\n")
    js.fill(2)
    js.consumer(ack_wait=NS, max_deliver=2)
    js.pull(batch=2)
    js.advance(seconds=2)
    js.pull(batch=2)
    # when
    js.advance(seconds=2)
    # then
    events = [frame for frame in js.inbox.frames() if frame.sid == b"2"]
    assert len(events) == 2
    info = js.info()
    assert (info["num_ack_pending"], info["num_redelivered"]) == (0, 2)
    assert js.position()[1] == (0, 0)
    assert js.pull(batch=1, no_wait=True) == []


def test_max_ack_pending_holds_new_messages_back(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer(max_ack_pending=2)
    got = js.pull(batch=3, expires=10 * NS)
    assert [m.seq for m in got] == [1, 2]
    # when
    js.ack(got[0])
    # then
    assert [m.seq for m in js.deliveries()] == [3]


def test_filters_skip_and_count_only_matches(js: ConsumerFixture) -> None:
    # given
    for subject in ("s.a", "s.b", "s.c", "s.a", "s.b"):
        js.fill(1, subject)
    js.consumer(filter_subjects=["s.a", "s.c"])
    # when
    assert js.info()["num_pending"] == 3
    got = js.pull(batch=9)
    # then
    assert [(m.seq, m.pending) for m in got] == [(1, 2), (3, 1), (4, 0)]


def test_last_per_subject_delivers_the_last_ones_then_goes_on(js: ConsumerFixture) -> None:
    # given
    for subject in ("s.a", "s.b", "s.a", "s.b", "s.c", "s.a"):
        js.fill(1, subject)
    js.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    # when
    assert js.info()["num_pending"] == 3
    got = js.pull(batch=9, expires=NS)
    js.fill(1, "s.d")
    # then
    assert [m.seq for m in got + js.deliveries()] == [4, 5, 6, 7]


def test_headers_only_tells_the_size_instead_of_the_payload(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.user.send(b"HPUB s.b 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nabc\r\n")
    js.consumer(headers_only=True)
    # when
    js.request(batch=2)
    # then
    first, second = js.inbox.frames()
    assert (first.headers, first.payload) == (b"NATS/1.0\r\nNats-Msg-Size: 2\r\n\r\n", b"")
    assert second.headers == b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 3\r\n\r\n"


def test_messages_deleted_while_pending_are_terminated(js: ConsumerFixture) -> None:
    # given
    js.fill(2)
    js.consumer(ack_wait=NS)
    js.pull(batch=2)
    # when
    js.api("STREAM.MSG.DELETE.S", {"seq": 1})
    js.advance(seconds=2)
    # then
    assert [m.seq for m in js.pull(batch=2, no_wait=True)] == [2]
    assert js.position()[1] == (1, 1)


def test_a_purge_moves_the_consumer_behind_it(js: ConsumerFixture) -> None:
    # given
    js.fill(4)
    js.consumer()
    js.pull(batch=2)
    # when
    js.api("STREAM.PURGE.S")
    # then
    assert js.position() == ((2, 4), (2, 4))
    info = js.info()
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)


def test_counts_stay_exact_when_messages_ahead_go_away(js: ConsumerFixture) -> None:
    # given
    js.fill(10)
    js.consumer()
    js.pull(batch=2)
    # when
    js.api("STREAM.MSG.DELETE.S", {"seq": 5})
    js.api("STREAM.PURGE.S", {"keep": 4})
    js.fill(1)
    # then
    assert js.info()["num_pending"] == 5
    assert [(m.seq, m.pending) for m in js.pull(batch=9)] == [(7, 4), (8, 3), (9, 2), (10, 1), (11, 0)]


def test_requests_end_with_their_statuses(js: ConsumerFixture) -> None:
    # given
    js.consumer(max_waiting=1, max_batch=5)
    # when
    js.request(batch=1, no_wait=True)
    js.request(batch=6)
    js.request(batch=1, expires=NS)
    js.request(batch=1, expires=NS)
    js.request(batch=1, expires=NS, idle_heartbeat=NS)
    js.advance(seconds=1)
    # then
    assert js.statuses() == [
        "404 No Messages",
        "409 Exceeded MaxRequestBatch of 5",
        "409 Exceeded MaxWaiting",
        "400 Bad Request - heartbeat value too large",
        "408 Request Timeout",
    ]


def test_max_bytes_ends_a_request(js: ConsumerFixture) -> None:
    # given
    js.fill(3)
    js.consumer()
    size = len("s.a") + len("m1") + len(f"$JS.ACK.S.c.1.1.1.{js.clock.now_ns()}.2")
    # when
    js.request(batch=9, max_bytes=2 * size + 5, expires=NS)
    frames = js.inbox.frames()
    # then
    assert [frame.payload for frame in frames] == [b"m1", b"m2", b""]
    assert frames[2].headers == (
        b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n"
        b"Nats-Pending-Messages: 7\r\nNats-Pending-Bytes: 5\r\n\r\n"
    )


def test_a_waiting_request_gets_heartbeats(js: ConsumerFixture) -> None:
    # given
    js.consumer()
    js.request(batch=1, expires=10 * NS, idle_heartbeat=NS)
    # when
    js.advance(milliseconds=2500)
    # then
    assert js.statuses() == ["100 Idle Heartbeat", "100 Idle Heartbeat"]


def test_a_request_of_a_client_that_is_gone_takes_no_message(js: ConsumerFixture) -> None:
    # given
    js.consumer()
    js.request(reply="elsewhere", batch=1, expires=10 * NS)
    js.request(reply="in.1", batch=1, expires=10 * NS)
    # when
    js.fill(1)
    # then
    assert [m.consumer_seq for m in js.deliveries()] == [1]
    assert js.info()["num_waiting"] == 0


def test_deleting_a_consumer_ends_its_requests(js: ConsumerFixture) -> None:
    # given
    js.consumer()
    js.request(batch=1, expires=10 * NS)
    # when
    js.api("CONSUMER.DELETE.S.c")
    # then
    assert js.statuses() == ["409 Consumer Deleted"]
    assert js.error("CONSUMER.INFO.S.c") == (404, 10014, "consumer not found")


@pytest.mark.parametrize(
    ("reason", "answer"), [("deleted", "409 Consumer Deleted"), ("leadership", "409 Leadership Change")]
)
def test_a_request_that_meets_a_stopped_consumer_gets_the_reason(
    js: ConsumerFixture, reason: str, answer: str
) -> None:
    js.consumer()
    consumer: Any = js.core()
    consumer.stop(reason)

    consumer.on_next(Request(consumer.on_next, b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"in.late"))
    js.turn()

    assert js.statuses() == [answer]


def test_a_paused_consumer_delivers_nothing_until_its_time(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer()
    js.api("CONSUMER.PAUSE.S.c", {"pause_until": "2023-11-14T22:13:30Z"})
    # when
    js.request(batch=1, expires=60 * NS)
    held = js.deliveries()
    js.advance(seconds=11)
    # then
    assert held == []
    assert len(js.deliveries()) == 1


@pytest.mark.parametrize(("threshold_ms", "gone_after_ms"), [(300, 1400), (0, 6100)])
def test_an_unused_ephemeral_goes_away(js: ConsumerFixture, threshold_ms: int, gone_after_ms: int) -> None:
    # given
    js.consumer(durable_name="", inactive_threshold=threshold_ms * 1_000_000)
    js.advance(milliseconds=gone_after_ms // 4)
    assert "c" in js.stream("S").consumers
    # when
    js.advance(milliseconds=gone_after_ms)
    # then
    assert "c" not in js.stream("S").consumers


def test_a_consumer_with_unacked_messages_lives_until_they_are_due(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer(durable_name="", inactive_threshold=NS, ack_wait=5 * NS)
    js.pull(batch=1)
    # when
    js.advance(seconds=4)
    alive = "c" in js.stream("S").consumers
    js.advance(seconds=5)
    # then
    assert alive
    assert "c" not in js.stream("S").consumers


def test_a_workqueue_forgets_what_is_acked(js: ConsumerFixture) -> None:
    # given
    js.api("STREAM.DELETE.S")
    js.add("S", subjects=["s.>"], retention="workqueue")
    js.fill(3)
    js.consumer()
    one, _two, three = js.pull(batch=3)
    # when
    js.ack(one)
    js.ack(three, b"+TERM")
    # then
    assert js.payloads("S") == [b"m2"]


def test_acks_in_the_long_form_count_too(js: ConsumerFixture) -> None:
    # given
    js.fill(1)
    js.consumer()
    js.pull(batch=1)
    # when
    js.user.send(b"PUB $JS.ACK._.szMpdrwD.S.c.1.1.1.0.0 0\r\n\r\n")
    # then
    assert js.info()["num_ack_pending"] == 0


# -- many at once ------------------------------------------------------------------------------------------------

MANY = 40_000  # more messages than one turn drops


def test_a_stream_drops_what_one_ack_settles_over_some_turns() -> None:
    # given
    js = ConsumerFixture(retention="interest")
    js.consumer(ack_policy="all", max_ack_pending=-1)
    js.user.send(b"PUB s.a 1\r\nx\r\n" * MANY)
    js.request(batch=MANY)
    js.inbox.take()
    left = []
    # when: all but three are acknowledged
    last = MANY - 3
    js.user.session.receive_data(b"PUB $JS.ACK.S.c.1.%d.%d.0.0 4\r\n+ACK\r\n" % (last, last))
    js.node.turn(js.clock.now_ns())
    while js.node.has_work:
        left.append(js.stream("S").store.msgs)
        js.node.turn(js.clock.now_ns())
    # then
    assert 3 < left[0] < MANY
    assert js.state("S")["messages"] == 3
    assert js.info()["num_ack_pending"] == 3


def test_a_consumer_that_is_deleted_leaves_nothing_that_it_settled() -> None:
    # given
    js = ConsumerFixture(retention="workqueue")
    js.consumer()
    js.fill(2)
    first, _ = js.pull(batch=2)
    # when: both arrive in one turn
    ack = b"PUB %b 4\r\n+ACK\r\n" % first.reply
    js.user.send(ack + b"PUB $JS.API.CONSUMER.DELETE.S.c in.1 0\r\n\r\n")
    # then
    assert js.state("S")["messages"] == 1


def test_an_answer_that_is_an_ack_itself_settles_once_more(js: ConsumerFixture) -> None:
    js.fill(4)
    js.consumer("c")
    js.consumer("d")
    one, two, three, four = js.pull("c", batch=4)
    other = js.pull("d", batch=1)[0]
    send = js.core().account.send  # clients may not use such a reply

    send(one.reply, b"", b"", one.reply)
    send(two.reply, b"", b"", three.reply)
    send(four.reply, b"", b"", other.reply)
    js.advance(milliseconds=1)

    assert js.info("c")["num_ack_pending"] == 0
    assert js.info("d")["num_ack_pending"] == 0
    assert js.position("c") == ((4, 4), (4, 4))

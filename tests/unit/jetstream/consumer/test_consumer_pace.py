"""Deliveries delayed by replay_policy original and rate_limit_bps, on a virtual clock."""

from __future__ import annotations

from typing import Any

from tests.unit.jetstream.consumerfixture import ConsumerFixture

MS = 1_000_000


class PaceFixture(ConsumerFixture):
    """A stream S of s.>; the client subscribes to in.> and, for push consumers, to out."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.inbox.send(b"SUB out 2\r\n")


def spaced(*gaps_ms: int) -> PaceFixture:
    """Return a stream of messages m1, m2, ... that were stored with the given gaps."""
    js = PaceFixture()
    js.fill(1)
    for gap in gaps_ms:
        js.advance(milliseconds=gap)
        js.fill(1)
    js.advance(seconds=20)
    return js


def seqs(js: PaceFixture) -> list[int]:
    """Return the sequences received since the last call."""
    return [message.seq for message in js.deliveries()]


def push(js: PaceFixture, **config: object) -> None:
    """Create or change a consumer that delivers to the client."""
    js.consumer(deliver_subject="out", **{"ack_policy": "none", **config})


# -- replay_policy original ------------------------------------------------------------------------------------


def test_a_replay_keeps_the_distances_of_the_messages() -> None:
    js = spaced(100, 300)
    push(js, replay_policy="original")
    assert seqs(js) == [1]
    js.advance(milliseconds=98)
    assert seqs(js) == []
    js.advance(milliseconds=2)
    assert seqs(js) == [2]
    js.advance(milliseconds=298)
    assert seqs(js) == []
    js.advance(milliseconds=2)
    assert seqs(js) == [3]


def test_a_replay_sets_one_deadline_and_waits_for_it() -> None:
    js = spaced(100, 300)
    push(js, replay_policy="original")
    assert seqs(js) == [1]
    assert js.node.timers.next_deadline_ns() == js.clock.now_ns() + 100 * MS


def test_messages_stored_together_are_replayed_together() -> None:
    js = PaceFixture()
    js.fill(3)
    js.advance(milliseconds=50)
    js.fill(2)
    js.advance(seconds=20)
    push(js, replay_policy="original")
    assert seqs(js) == [1, 2, 3]
    js.advance(milliseconds=50)
    assert seqs(js) == [4, 5]


def test_turns_that_come_late_do_not_add_up() -> None:
    js = spaced(100, 100, 100)
    push(js, replay_policy="original")
    js.advance(milliseconds=110)
    js.advance(milliseconds=90)
    assert seqs(js) == [1, 2, 3]
    js.advance(milliseconds=100)
    assert seqs(js) == [4]


def test_only_what_the_consumer_gets_has_a_distance() -> None:
    js = PaceFixture()
    js.fill(1)
    js.advance(milliseconds=40)
    js.fill(1, "s.b")
    js.advance(milliseconds=60)
    js.fill(1)
    js.advance(seconds=20)
    push(js, replay_policy="original", filter_subject="s.a")
    js.advance(milliseconds=98)
    assert seqs(js) == [1]
    js.advance(milliseconds=2)
    assert seqs(js) == [3]


def test_what_is_stored_after_the_replay_began_comes_at_once() -> None:
    js = spaced(100)
    push(js, replay_policy="original")
    js.fill(1)
    assert seqs(js) == [1]
    js.advance(milliseconds=100)
    assert seqs(js) == [2, 3]
    js.advance(seconds=5)
    js.fill(1)
    assert seqs(js) == [4]


def test_pull_requests_get_the_same_distances() -> None:
    js = spaced(100, 300)
    js.consumer(replay_policy="original")
    assert [message.seq for message in js.pull(batch=3, expires=60_000 * MS)] == [1]
    js.advance(milliseconds=100)
    assert seqs(js) == [2]
    js.advance(milliseconds=300)
    assert seqs(js) == [3]


def test_a_pull_after_the_distance_has_passed_does_not_wait() -> None:
    js = spaced(100, 300)
    js.consumer(replay_policy="original")
    assert [message.seq for message in js.pull(batch=1)] == [1]
    js.advance(seconds=10)
    assert [message.seq for message in js.pull(batch=2, expires=60_000 * MS)] == [2]
    js.advance(milliseconds=298)
    assert seqs(js) == []
    js.advance(milliseconds=2)
    assert seqs(js) == [3]


def test_a_pull_request_may_expire_while_a_message_is_held_back() -> None:
    js = spaced(10_000)
    js.consumer(replay_policy="original")
    js.pull(batch=2, expires=1000 * MS)
    js.advance(milliseconds=1100)
    assert js.statuses() == ["408 Request Timeout"]
    js.advance(seconds=9)
    assert [message.seq for message in js.pull()] == [2]


def test_redeliveries_do_not_wait_for_the_replay() -> None:
    js = spaced(10_000)
    push(js, replay_policy="original", ack_policy="explicit")
    (first,) = js.deliveries()
    js.ack(first, b"-NAK")
    assert seqs(js) == [1]
    js.advance(seconds=10)
    assert seqs(js) == [2]


def test_a_purge_of_the_message_that_is_held_back_goes_on_with_the_next() -> None:
    js = spaced(1000, 1000)
    push(js, replay_policy="original")
    assert seqs(js) == [1]
    js.api("STREAM.MSG.DELETE.S", {"seq": 2})
    js.advance(milliseconds=1000)
    assert seqs(js) == []
    js.advance(milliseconds=1000)
    assert seqs(js) == [3]


def test_a_restart_in_the_middle_goes_on_with_the_next_message_at_once() -> None:
    js = PaceFixture(storage="file")
    for _ in range(4):
        js.fill(1)
        js.advance(seconds=10)
    js.consumer(replay_policy="original", ack_policy="none")
    assert [message.seq for message in js.pull(batch=4, expires=1000 * MS)] == [1]

    again = js.restart()
    inbox = again.client()
    inbox.send(b"SUB in.> 1\r\n")
    inbox.take()
    body = b'{"batch":4,"expires":60000000000}'
    again.user.send(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.c in.1 %d\r\n%b\r\n" % (len(body), body))
    assert len(inbox.frames()) == 1
    again.advance(seconds=9)
    assert inbox.frames() == []
    again.advance(seconds=1)
    assert len(inbox.frames()) == 1


# -- rate_limit_bps --------------------------------------------------------------------------------------------


def big(js: PaceFixture, count: int, size: int = 1000) -> None:
    for _ in range(count):
        js.user.send(b"PUB s.a %d\r\n%b\r\n" % (size, b"x" * size))


def test_a_rate_limit_lets_a_burst_through_and_then_its_rate() -> None:
    js = PaceFixture(max_msg_size=4000)
    big(js, 10)
    push(js, rate_limit_bps=8000)  # 1000 bytes per second
    assert seqs(js) == [1, 2, 3]
    js.advance(milliseconds=200)
    assert seqs(js) == [4]  # four messages of 1042 bytes, including subject and reply
    js.advance(milliseconds=1042)
    assert seqs(js) == [5]
    js.advance(milliseconds=1042)
    assert seqs(js) == [6]


def test_a_rate_limit_holds_on_the_whole() -> None:
    js = PaceFixture(max_msg_size=4000)
    big(js, 100)
    push(js, rate_limit_bps=80_000)  # 10,000 bytes per second
    got = len(seqs(js))
    for _ in range(1000):
        js.advance(milliseconds=5)
        got += len(seqs(js))
    assert 47 <= got <= 54  # 50,000 bytes plus a burst of 4,000, in messages of about 1,050 bytes


def test_a_held_back_message_sets_one_deadline_not_sooner_than_a_millisecond() -> None:
    js = PaceFixture(max_msg_size=100)
    big(js, 50, 50)
    push(js, rate_limit_bps=8_000_000_000)
    assert seqs(js)[0] == 1
    assert js.node.timers.next_deadline_ns() == js.clock.now_ns() + MS


def test_a_message_larger_than_the_burst_goes_when_the_bucket_is_full() -> None:
    js = PaceFixture()
    big(js, 2, 1000)
    js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory", "max_msg_size": 10})
    push(js, rate_limit_bps=8000)
    assert seqs(js) == [1]
    js.advance(milliseconds=900)
    assert seqs(js) == []
    js.advance(milliseconds=300)
    assert seqs(js) == [2]


def test_another_rate_counts_at_once() -> None:
    js = PaceFixture(max_msg_size=1100)
    big(js, 3)
    push(js, rate_limit_bps=8)  # each message takes a quarter of an hour
    assert seqs(js) == [1]
    push(js, rate_limit_bps=80_000)
    js.advance(milliseconds=200)
    assert seqs(js) == [2, 3]


def test_redeliveries_count_for_the_rate_as_well() -> None:
    js = PaceFixture(max_msg_size=1100)
    big(js, 1)
    push(js, rate_limit_bps=8000, ack_policy="explicit")
    (first,) = js.deliveries()
    js.ack(first, b"-NAK")
    assert seqs(js) == []
    js.advance(milliseconds=1100)
    assert seqs(js) == [1]


def test_a_rate_limit_of_any_size_is_accepted() -> None:
    js = PaceFixture()
    js.fill(3)
    push(js, rate_limit_bps=2**64 - 1)
    assert seqs(js) == [1, 2, 3]
    assert js.info()["config"]["rate_limit_bps"] == 2**64 - 1

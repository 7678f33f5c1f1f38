"""Interest and workqueue streams, and a stream's calls of its consumers, which only record them here."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
from tests.support.stored_streams import finish
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.manage import streams
from pyjs.jetstream.stream.stream import Stream
from pyjs.jetstream.stream.stream_consumer import StreamConsumer
from pyjs.subjects.sublist import Sublist
from pyjs.subjects.tokens import subject_matches

NS = 1_000_000_000


class NotingConsumer(StreamConsumer):
    """Acknowledges when told to, and records the stream's calls."""

    def __init__(self, stream: Stream, name: str, filters: tuple[bytes, ...] = ()) -> None:
        super().__init__(name, filters)
        self.stream = stream
        self.config = ConsumerConfig()
        self.settled: list[int] = []
        self.done: set[int] = set()
        self.notes: list[object] = []

    def ack(self, *seqs: int) -> None:
        self.settled.extend(seqs)
        self.done.update(seqs)
        assert self.inbox is not None
        self.inbox.has_acknowledged(self)

    def take_acknowledged(self, most: int) -> list[int]:
        taken, self.settled = self.settled[:most], self.settled[most:]
        return taken

    def wake(self, seq: int) -> None:
        self.notes.append(f"wake {seq}")

    def needs(self, seq: int) -> bool:
        message = self.stream.store.get(seq)
        assert message is not None
        matches = not self.filters or any(subject_matches(message.subject, f) for f in self.filters)
        return matches and seq not in self.done

    def dropped(self, seq: int) -> None:
        self.notes.append(seq)

    def on_purge(self, first_seq: int) -> None:
        self.notes.append(f"purge {first_seq}")

    def stop(self, reason: str) -> None:
        self.notes.append(reason)


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


def consumer(js: JetStreamFixture, stream: str, name: str, *filters: bytes) -> NotingConsumer:
    out = NotingConsumer(js.stream(stream), name, filters)
    js.stream(stream).add_consumer(out)
    return out


def test_a_workqueue_drops_what_is_acknowledged(js: JetStreamFixture) -> None:
    js.add("W", subjects=["w"], retention="workqueue")
    worker = consumer(js, "W", "c")
    for i in range(3):
        js.publish("w", b"%d" % i)

    worker.ack(2)
    js.turn()

    assert js.payloads("W") == [b"0", b"2"]
    assert worker.settled == []


def test_a_workqueue_keeps_messages_without_consumers(js: JetStreamFixture) -> None:
    js.add("W", subjects=["w"], retention="workqueue")
    js.publish("w")
    consumer(js, "W", "c")
    js.stream("W").remove_consumer("c")
    assert js.payloads("W") == [b"x"]


def test_interest_keeps_until_every_consumer_is_done(js: JetStreamFixture) -> None:
    js.add("I", subjects=["i.*"], retention="interest")
    a, b = consumer(js, "I", "a"), consumer(js, "I", "b", b"i.b")
    js.publish("i.a", b"1")
    js.publish("i.b", b"2")

    a.ack(1, 2)
    js.turn()
    assert js.payloads("I") == [b"2"]

    b.ack(2)
    js.turn()
    assert js.payloads("I") == []


def test_interest_stores_only_what_somebody_filters_for(js: JetStreamFixture) -> None:
    js.add("I", subjects=["i.*"], retention="interest")
    consumer(js, "I", "a", b"i.a")
    assert js.publish("i.a", b"1")["seq"] == 1
    assert js.publish("i.b", b"2")["seq"] == 2
    assert js.payloads("I") == [b"1"]


def test_interest_ends_with_the_consumer(js: JetStreamFixture) -> None:
    js.add("I", subjects=["i.*"], retention="interest")
    consumer(js, "I", "a")
    consumer(js, "I", "b", b"i.b")
    for subject in ("i.a", "i.b", "i.c"):
        js.publish(subject, subject.encode())

    js.stream("I").remove_consumer("a")
    js.turn()
    assert js.payloads("I") == [b"i.b"]

    js.stream("I").remove_consumer("b")
    js.turn()
    assert js.payloads("I") == []
    assert js.publish("i.a")["seq"] == 4


def test_nothing_more_is_swept_from_a_stream_that_keeps_everything_now(js: JetStreamFixture) -> None:
    # given
    js.add("I", subjects=["i"], retention="interest")
    consumer(js, "I", "a")
    for _ in range(100):
        js.user.send(b"PUB i 0\r\n\r\n" * 1000)
    assert js.state("I")["messages"] == 100_000

    # when
    js.stream("I").remove_consumer("a")
    js.node.turn(js.clock.now_ns())
    finish(streams.update(js.engine, replace(js.stream("I").config, retention="limits")))
    kept = js.stream("I").store.msgs
    for _ in range(5):
        js.turn()

    # then
    assert 0 < kept < 100_000
    assert js.state("I")["messages"] == kept


def test_changed_filters_are_seen_by_publishes(js: JetStreamFixture) -> None:
    js.add("I", subjects=["i.*"], retention="interest")
    a = consumer(js, "I", "a", b"i.a")
    js.publish("i.a", b"1")
    a.filters = (b"i.b",)

    js.stream("I").update_interest(a)
    js.turn()
    js.publish("i.b", b"2")

    assert js.payloads("I") == [b"2"]


def test_a_stream_that_becomes_an_interest_stream_asks_for_settled_messages(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    a = consumer(js, "S", "a")
    assert a.inbox is not None
    assert not a.inbox.asks
    js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", "retention": "interest"})
    assert a.inbox.asks


def test_consumers_that_wait_are_woken_once_by_a_commit(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    a, b = consumer(js, "S", "a"), consumer(js, "S", "b")
    assert a.inbox is not None
    a.inbox.caught_up(a)
    a.inbox.caught_up(a)

    js.user.send(b"PUB s 1\r\nx\r\nPUB s 1\r\nx\r\n")
    js.user.send(b"PUB s 1\r\nx\r\n")

    assert a.notes == ["wake 0"]
    assert b.notes == []


def test_of_many_that_wait_those_are_woken_whose_filter_matches(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"])
    waiting = [consumer(js, "S", f"c{i}", b"s.%d" % i) for i in range(10)]
    for each in waiting:
        assert each.inbox is not None
        each.inbox.caught_up(each)

    js.user.send(b"PUB s.x 1\r\nx\r\nPUB s.3 1\r\nx\r\nPUB s.7 1\r\nx\r\nPUB s.3 1\r\nx\r\n")

    assert [each.notes for each in waiting] == [[]] * 3 + [["wake 2"]] + [[]] * 3 + [["wake 3"]] + [[]] * 2


@pytest.mark.parametrize("next_seq", [10**8, 10**15])
def test_a_wide_gap_keeps_nobody_waiting_who_waits(js: JetStreamFixture, next_seq: int) -> None:
    # given
    js.add("S", subjects=["s.*"])
    waiting = [consumer(js, "S", f"c{i}", b"s.%d" % i) for i in range(10)]
    for each in waiting:
        assert each.inbox is not None
        each.inbox.caught_up(each)

    # when
    js.api("STREAM.PURGE.S", {"seq": next_seq})
    js.publish("s.7")

    # then
    assert waiting[7].notes == [f"purge {next_seq}", f"wake {next_seq}"]


def test_who_waits_with_changed_filters_goes_on_waiting(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"])
    waiting = [consumer(js, "S", f"c{i}", b"s.%d" % i) for i in range(10)]
    for each in waiting:
        assert each.inbox is not None
        each.inbox.caught_up(each)
    waiting[0].filters = (b"s.x",)

    js.stream("S").update_interest(waiting[0])
    js.user.send(b"PUB s.x 1\r\nx\r\n")

    assert waiting[0].notes == ["wake 1"]


def test_a_purge_of_a_subject_is_told_to_those_who_want_it(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"])
    a, b = consumer(js, "S", "a", b"s.a"), consumer(js, "S", "b", b"s.b")
    js.publish("s.a")

    js.api("STREAM.PURGE.S", {"filter": "s.a"})
    assert (a.notes, b.notes) == (["purge 2"], [])

    js.api("STREAM.PURGE.S", {"filter": "s.*"})
    assert (a.notes, b.notes) == (["purge 2", "purge 2"], ["purge 2"])


def test_a_consumer_hears_of_a_drop_once_whatever_number_of_its_filters_match(js: JetStreamFixture) -> None:
    # given
    js.add("S", subjects=["s.>"])
    config = {"name": "c", "ack_policy": "explicit", "filter_subjects": ["s.a.*", "s.*.b"]}
    js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    for _ in range(3):
        js.publish("s.a.b")
    before = js.api("CONSUMER.INFO.S.c")["num_pending"]

    # when
    js.api("STREAM.MSG.DELETE.S", {"seq": 2})

    # then
    assert (before, js.api("CONSUMER.INFO.S.c")["num_pending"]) == (3, 2)


def test_consumers_hear_of_drops_and_purges(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], max_msgs=2)
    a = consumer(js, "S", "a")
    for subject in ("s.a", "s.b", "s.c"):
        js.publish(subject)
    js.api("STREAM.MSG.DELETE.S", {"seq": 3})
    js.api("STREAM.PURGE.S", {"filter": "s.b"})
    js.api("STREAM.DELETE.S")
    assert a.notes == [1, 3, "purge 4", "deleted"]


def test_what_is_remembered_of_subjects_has_a_bound_however_many_expire(js: JetStreamFixture) -> None:
    # given
    js.add("S", subjects=["s.>"], max_age=NS)
    consumer(js, "S", "a", b"s.nobody")
    store, now_ns = js.stream("S").store, js.clock.now_ns()
    for i in range(200_000):
        store.store(b"s.%d" % i, b"", b"", now_ns)
    js.publish("s.last")

    # when
    js.advance(seconds=3)
    for _ in range(10):
        js.turn()

    # then
    routes = [each.num_cached() for each in gc.get_objects() if isinstance(each, Sublist)]
    assert js.state("S")["messages"] == 0
    assert max(routes) < 100_000


def test_a_lower_consumer_limit_names_those_above_it(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    a = consumer(js, "S", "a")
    a.config = ConsumerConfig(max_ack_pending=10)
    update = {"name": "S", "subjects": ["s"], "storage": "memory", "consumer_limits": {"max_ack_pending": 5}}
    assert js.error("STREAM.UPDATE.S", update) == (500, 10069, "change to limits violates consumers: a")

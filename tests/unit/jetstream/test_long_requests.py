"""Requests that are too long for one turn: others are served between their steps, and none sees a partial result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.manage import streams
from pyjs.testing import RawClient

API = "$JS.API."


class LongFixture(JetStreamFixture):
    """Clients that send requests without waiting, and turns that are counted."""

    def asker(self) -> RawClient:
        """Return a client that is subscribed to its inbox."""
        client = self.client()
        client.send(b"SUB _I.> 1\r\n")
        client.take()
        return client

    def ask_later(self, client: RawClient, subject: str, body: Any = b"", reply: bytes = b"_I.a") -> None:
        """Send a request; it is not answered before a turn."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        client.session.receive_data(
            b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply, len(payload), payload)
        )

    def one_turn(self) -> None:
        self.node.turn(self.clock.now_ns())

    def turns_until_idle(self) -> int:
        """Return the number of turns until there is no work left."""
        turns = 0
        while turns == 0 or self.node.has_work or self.run_jobs():
            self.one_turn()
            turns += 1
        return turns

    def fill(self, subjects: int, messages: int, prefix: str = "s") -> None:
        """Publish to many subjects, in sequence."""
        for begin in range(0, messages, 1000):
            numbers = range(begin, min(begin + 1000, messages))
            self.user.send(
                b"".join(b"PUB %b.%d 1\r\nx\r\n" % (prefix.encode(), n % subjects) for n in numbers)
            )


@pytest.fixture
def js() -> LongFixture:
    return LongFixture()


def test_a_batched_get_ends_with_its_batch(js: LongFixture) -> None:
    js.add("S", subjects=["s.*"], allow_direct=True)
    js.fill(10, 20_000)
    asker = js.asker()

    js.ask_later(asker, API + "DIRECT.GET.S", {"seq": 1, "batch": 2})
    turns = js.turns_until_idle()

    frames = asker.frames()
    assert turns == 1
    assert len(frames) == 3
    assert b"Nats-Num-Pending: 19998\r\n" in frames[2].headers


def test_a_large_batched_get_leaves_time_for_others(js: LongFixture) -> None:
    js.add("S", subjects=["s.*"], allow_direct=True)
    js.fill(10, 20_000)
    asker, other = js.asker(), js.client()

    js.ask_later(asker, API + "DIRECT.GET.S", {"seq": 1, "batch": 20_000})
    js.one_turn()
    other.session.receive_data(b"PING\r\n")
    js.one_turn()
    early = len(asker.frames())

    assert other.take() == b"PONG\r\n"
    assert early < 20_000
    assert js.turns_until_idle() >= 1
    assert early + len(asker.frames()) == 20_001


def test_a_batched_get_ends_when_nobody_listens_any_more(js: LongFixture) -> None:
    js.add("S", subjects=["s.*"], allow_direct=True)
    js.fill(10, 20_000)
    asker = js.asker()

    js.ask_later(asker, API + "DIRECT.GET.S", {"seq": 1, "batch": 20_000})
    js.one_turn()
    asker.session.connection_lost()

    assert js.turns_until_idle() <= 2


def test_too_many_last_messages_are_refused_however_many_there_are(js: LongFixture) -> None:
    js.add("S", subjects=["s.*"], allow_direct=True)
    js.fill(1025, 1025)

    answer = js.ask(API + "DIRECT.GET.S", {"multi_last": ["s.*"]})

    assert answer.headers == b"NATS/1.0 413 Too Many Results\r\n\r\n"


def test_many_subjects_are_compared_in_steps(js: LongFixture) -> None:
    js.add("T", subjects=["t.5"])
    asker = js.asker()
    subjects = [f"s.{number}" for number in range(60_000)]

    js.ask_later(asker, API + "STREAM.CREATE.S", {"name": "S", "subjects": subjects, "storage": "memory"})
    turns = js.turns_until_idle()

    assert turns > 3
    assert json.loads(asker.frames()[0].payload)["did_create"]


def test_a_stream_made_between_the_steps_of_another_has_its_subjects(js: LongFixture) -> None:
    asker, other = js.asker(), js.client()
    subjects = [f"s.{number}" for number in range(60_000)]
    js.ask_later(asker, API + "STREAM.CREATE.S", {"name": "S", "subjects": subjects, "storage": "memory"})
    js.one_turn()

    js.ask_later(
        other, API + "STREAM.CREATE.T", {"name": "T", "subjects": ["s.7"], "storage": "memory"}, b"_I.b"
    )
    js.turns_until_idle()

    answers = {frame.subject: json.loads(frame.payload) for frame in asker.frames()}
    assert answers[b"_I.b"]["did_create"]
    assert answers[b"_I.a"]["error"]["err_code"] == 10065


def test_the_subjects_of_a_stream_that_still_subscribes_are_taken(js: LongFixture) -> None:
    asker, other = js.asker(), js.client()
    until_half_subscribed(js, asker)

    js.ask_later(
        other, API + "STREAM.CREATE.T", {"name": "T", "subjects": ["s.59999"], "storage": "memory"}, b"_I.b"
    )
    js.turns_until_idle()

    answers = {frame.subject: json.loads(frame.payload) for frame in asker.frames()}
    assert answers[b"_I.a"]["did_create"]
    assert answers[b"_I.b"]["error"]["err_code"] == 10065
    assert js.publish("s.59999")["stream"] == "S"


def test_a_stream_that_is_closed_while_it_subscribes_leaves_nothing(js: LongFixture) -> None:
    asker = js.asker()
    until_half_subscribed(js, asker)

    streams.abandon(js.engine, js.stream("S"), RuntimeError("closed by the test"))
    js.turns_until_idle()

    assert json.loads(asker.frames()[0].payload)["error"]["err_code"] == 10049
    assert js.engine.subjects.is_empty
    assert not js.engine.subscriptions


def until_half_subscribed(js: LongFixture, asker: RawClient) -> None:
    """Request a stream of many subjects, and stop when it has subscribed to some of them."""
    subjects = [f"s.{number}" for number in range(60_000)]
    js.ask_later(asker, API + "STREAM.CREATE.S", {"name": "S", "subjects": subjects, "storage": "memory"})
    while not js.engine.subscriptions.get("S"):
        js.one_turn()
    assert len(js.engine.subscriptions["S"]) < len(subjects)


def test_many_filters_are_compared_in_steps(js: LongFixture) -> None:
    js.add("S", subjects=["s.>"])
    asker = js.asker()
    filters = [f"s.{number}" for number in range(60_000)]
    body = {"stream_name": "S", "config": {"name": "c", "ack_policy": "explicit", "filter_subjects": filters}}

    js.ask_later(asker, API + "CONSUMER.CREATE.S.c", body)
    turns = js.turns_until_idle()

    assert turns > 2
    assert json.loads(asker.frames()[0].payload)["name"] == "c"


def test_an_overlap_among_many_subjects_is_named_as_among_few(js: LongFixture) -> None:
    subjects = [f"s.{number}" for number in range(3000)] + ["s.1700"]

    answer = js.error("STREAM.CREATE.S", {"name": "S", "subjects": subjects})

    assert answer == (500, 10052, 'subject "s.1700" overlaps with "s.1700"')


def test_a_consumer_of_the_last_of_many_subjects_is_made_in_steps(js: LongFixture) -> None:
    # given
    js.add("S", subjects=["s.*"], storage="memory")
    js.fill(50_000, 60_000)
    asker, other = js.asker(), js.client()
    config = {"durable_name": "c", "filter_subject": "s.*", "ack_policy": "none"}
    config["deliver_policy"] = "last_per_subject"
    # now the subjects of the stream are indexed
    js.ask_later(asker, API + "STREAM.MSG.GET.S", {"last_by_subj": "s.*"})
    js.turns_until_idle()
    asker.take()
    # when
    js.ask_later(asker, API + "CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    js.one_turn()
    other.session.receive_data(b"PUB s.1 1\r\ny\r\nPING\r\n")
    js.one_turn()
    early, served = asker.frames(), other.take()
    turns = js.turns_until_idle()
    # then
    assert early == []
    assert served == b"PONG\r\n"
    assert turns > 1
    assert json.loads(asker.frames()[0].payload)["num_pending"] == 50_001
    # when
    js.ask_later(asker, API + "CONSUMER.MSG.NEXT.S.c", {"batch": 100_000, "no_wait": True})
    js.turns_until_idle()
    # then: the last message of each subject at the time of the request, then newer ones
    subjects = [frame.subject for frame in asker.frames() if frame.reply]
    assert subjects == [b"s.%d" % (n % 50_000) for n in range(10_000, 60_000)] + [b"s.1"]


@pytest.mark.parametrize("removed", [False, True])
def test_the_matches_of_a_new_consumer_are_counted_in_steps(js: LongFixture, removed: bool) -> None:
    # given
    js.add("S", subjects=["s.*", "t.*"], storage="memory")
    js.fill(30_000, 30_000)
    js.fill(10_000, 10_000, "t")
    asker = js.asker()
    config = {"durable_name": "c", "filter_subject": "s.*"}
    # when
    js.ask_later(asker, API + "CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
    js.one_turn()
    js.user.session.receive_data(b"PUB s.new 1\r\ny\r\nPUB t.new 1\r\ny\r\n")
    js.one_turn()
    if removed:
        js.stream("S").delete_msg(7, False)
    turns = js.turns_until_idle()
    # then
    assert turns > 1
    assert json.loads(asker.frames()[0].payload)["num_pending"] == 30_001 - removed


def test_a_changed_filter_is_counted_in_steps(js: LongFixture) -> None:
    # given
    js.add("S", subjects=["s.*", "t.*"], storage="memory")
    js.fill(30_000, 30_000)
    js.fill(10_000, 10_000, "t")
    asker = js.asker()
    config = {"durable_name": "c", "filter_subject": "t.*"}
    body = {"stream_name": "S", "config": config}
    js.ask_later(asker, API + "CONSUMER.DURABLE.CREATE.S.c", body)
    js.turns_until_idle()
    asker.take()
    # when
    config["filter_subject"] = "s.*"
    js.ask_later(asker, API + "CONSUMER.DURABLE.CREATE.S.c", body)
    js.one_turn()
    js.user.session.receive_data(b"PUB s.new 1\r\ny\r\n")
    turns = js.turns_until_idle()
    # then
    assert turns > 1
    assert json.loads(asker.frames()[0].payload)["num_pending"] == 30_001


def test_the_first_get_by_wildcard_among_many_subjects_takes_steps(js: LongFixture) -> None:
    # given
    js.add("S", subjects=["s.*"], storage="memory", allow_direct=True)
    js.fill(50_000, 50_000)
    asker = js.asker()
    # when
    js.ask_later(asker, API + "STREAM.MSG.GET.S", {"last_by_subj": "*.49999"})
    js.one_turn()
    early = asker.frames()
    turns = js.turns_until_idle()
    # then
    assert early == []
    assert turns > 1
    assert json.loads(asker.frames()[0].payload)["message"]["seq"] == 50_000
    # when: the subjects of the stream are indexed now
    js.ask_later(asker, API + "STREAM.MSG.GET.S", {"next_by_subj": "*.49998", "seq": 1})
    js.one_turn()
    # then
    assert json.loads(asker.frames()[0].payload)["message"]["seq"] == 49_999


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ({"last_by_subj": "*.77"}, b"Nats-Sequence: 78\r\n"),
        ({"multi_last": ["*.77", "s.5"], "batch": 9}, b"Nats-Sequence: 6\r\n"),
        ({"next_by_subj": "*.77", "batch": 2, "seq": 1}, b"Nats-Sequence: 78\r\n"),
    ],
)
def test_the_first_direct_get_by_wildcard_among_many_subjects_takes_steps(
    js: LongFixture, body: dict[str, Any], first: bytes
) -> None:
    js.add("S", subjects=["s.*"], storage="memory", allow_direct=True)
    js.fill(50_000, 50_000)
    asker = js.asker()

    js.ask_later(asker, API + "DIRECT.GET.S", body)
    js.one_turn()
    early = asker.frames()
    turns = js.turns_until_idle()

    assert early == []
    assert turns > 1
    assert first in asker.frames()[0].headers


def test_the_consumers_of_a_deleted_stream_are_stopped_in_steps(js: LongFixture) -> None:
    # given
    js.add("S", subjects=["s.*"], storage="memory", max_consumers=10_000)
    js.fill(10, 10)
    asker = js.asker()
    for number in range(1_500):
        body = {"stream_name": "S", "config": {"durable_name": f"c{number}", "ack_policy": "explicit"}}
        js.ask_later(asker, API + f"CONSUMER.DURABLE.CREATE.S.c{number}", body)
    js.turns_until_idle()
    js.ask_later(asker, API + "CONSUMER.MSG.NEXT.S.c1499", {"batch": 20, "expires": 10**10}, b"_I.pull")
    js.turns_until_idle()
    asker.take()
    # when
    js.ask_later(asker, API + "STREAM.DELETE.S")
    js.one_turn()
    js.ask_later(asker, API + "CONSUMER.MSG.NEXT.S.c1498", {"batch": 1}, b"_I.late")
    js.ask_later(asker, API + "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], "storage": "memory"})
    early = asker.frames()
    turns = js.turns_until_idle()
    # then
    assert early == []
    assert turns > 1
    answers = asker.frames()
    assert [f.headers for f in answers if f.subject == b"_I.pull"] == [
        b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
    ]
    assert [f.headers for f in answers if f.subject == b"_I.late"] == [
        b"NATS/1.0 409 Consumer Deleted\r\n\r\n"
    ]
    deleted, created = (json.loads(f.payload) for f in answers if f.subject == b"_I.a")
    assert deleted["success"]
    assert created["state"]["consumer_count"] == 0
    assert js.stream("S").store.msgs == 0


@pytest.mark.parametrize("request_", ["CONSUMER.INFO.S.C", "CONSUMER.LIST.S"])
def test_many_subjects_are_counted_in_several_turns_for_an_info(js: LongFixture, request_: str) -> None:
    js.add("S", subjects=["s.*"])
    js.fill(80_000, 80_000)  # more than one step counts
    filters = [f"s.{number}" for number in range(5)] + ["*.6", "*.*.x"]
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subjects": filters}
    js.ask(API + "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    consumer = js.node.jetstream.accounts["$G"].streams["S"].consumers["C"]  # type: ignore[union-attr]
    consumer.cursor.reset(1)  # as after a start of the server
    asker = js.asker()

    js.ask_later(asker, API + request_)
    turns = js.turns_until_idle()

    (frame,) = asker.frames()
    answer = json.loads(frame.payload)
    assert turns > 1
    assert (answer["consumers"][0] if "consumers" in answer else answer)["num_pending"] == 6
    js.ask_later(asker, API + "CONSUMER.INFO.S.C")
    assert js.turns_until_idle() == 1  # the count is known

"""Consumers whose num_pending needs a count in several turns."""

from __future__ import annotations

import pytest
from tests.unit.jetstream.consumerfixture import ConsumerFixture

MSGS = 80_000  # more messages, and more subjects, than one step of a count examines


@pytest.fixture
def js() -> ConsumerFixture:
    """Return a consumer in the middle of a stream, reset to where its count begins again."""
    js = ConsumerFixture()
    js.stream("S").store.catalogue.drops.tracked = True
    for number in range(MSGS):
        js.stream("S").store.store(b"s.b.%d" % number, b"", b"", 1)
    js.fill(1)
    js.consumer(filter_subject="s.b.*", deliver_policy="by_start_sequence", opt_start_seq=11)
    js.core().cursor.reset(11)
    return js


def test_the_answers_to_create_info_and_reset_have_the_whole_count(js: ConsumerFixture) -> None:
    assert js.info()["num_pending"] == MSGS - 10
    assert js.api("CONSUMER.RESET.S.c", {"seq": 21})["num_pending"] == MSGS - 20
    fields = {"filter_subject": "s.b.*", "deliver_policy": "by_start_sequence", "opt_start_seq": 31}
    assert js.consumer("d", **fields)["num_pending"] == MSGS - 30


def test_a_list_has_the_whole_count(js: ConsumerFixture) -> None:
    (listed,) = js.api("CONSUMER.LIST.S")["consumers"]
    assert listed["num_pending"] == MSGS - 10


def test_a_delivery_waits_for_the_count(js: ConsumerFixture) -> None:
    assert [(m.seq, m.pending) for m in js.pull(batch=2)] == [(11, MSGS - 11), (12, MSGS - 12)]


def test_a_request_that_does_not_wait_for_messages_waits_for_the_count(js: ConsumerFixture) -> None:
    assert [(m.seq, m.pending) for m in js.pull(batch=1, no_wait=True)] == [(11, MSGS - 11)]


def test_requests_that_do_not_wait_are_refused_beyond_max_waiting(js: ConsumerFixture) -> None:
    consumer = js.core()
    for _ in range(consumer.config.max_waiting + 1):
        consumer.request_next(b"in.1", b'{"batch": 1, "no_wait": true}')
    js.advance(milliseconds=1)
    assert js.statuses() == ["409 Exceeded MaxWaiting"]
    assert js.info()["num_ack_pending"] == consumer.config.max_waiting

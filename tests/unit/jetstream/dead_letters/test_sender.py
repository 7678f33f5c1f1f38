"""Dead letters: a message that is given up is stored in another stream before it counts as acknowledged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.jetstream.consumerfixture import ConsumerFixture
from tests.unit.jetstream.deadfixture import PREFIX_KEY, STREAM_KEY, Dead

from pyjs.core.sink import Request
from pyjs.models import parse_advisory
from pyjs.models.advisories import DeadLetterRefused

NS = 1_000_000_000


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_a_terminated_message_gets_a_letter_before_it_is_done(retention: str) -> None:
    # given
    js = Dead(retention=retention)
    js.consumer(max_deliver=2)
    js.fill(1)
    (message,) = js.pull(batch=1)
    # when
    js.ack(message, b"+TERM  no such\r\ncustomer ")
    # then
    assert js.letters() == [("$DLQ.S.c.1.s.a", b"m1")]
    head = js.headers()
    assert head["Dead-Letter-Reason"] == "term: no such customer"
    assert (head["Dead-Letter-Stream"], head["Dead-Letter-Consumer"]) == ("S", "c")
    assert (head["Dead-Letter-Subject"], head["Dead-Letter-Sequence"]) == ("s.a", "1")
    assert head["Dead-Letter-Deliveries"] == "1"
    assert head["Dead-Letter-Time"].startswith("2023-11-14T22:13:20")
    assert js.position() == ((1, 1), (1, 1))
    assert js.given_up() == {}
    assert js.state("S")["messages"] == (1 if retention == "limits" else 0)


@pytest.mark.parametrize("retention", ["limits", "interest", "workqueue"])
def test_max_deliver_gives_a_letter_by_time(retention: str) -> None:
    js = Dead(retention=retention)
    js.consumer(max_deliver=2, ack_wait=NS)
    js.fill(1)
    for _ in range(2):
        js.pull(batch=1)
        js.advance(milliseconds=1100)
    assert js.letters() == [("$DLQ.S.c.1.s.a", b"m1")]
    assert js.headers()["Dead-Letter-Reason"] == "max_deliver"
    assert js.headers()["Dead-Letter-Deliveries"] == "2"
    assert js.state("S")["messages"] == (1 if retention == "limits" else 0)
    assert js.info()["num_ack_pending"] == 0


def test_max_deliver_gives_a_letter_by_refusals_and_with_backoff() -> None:
    js = Dead(retention="workqueue")
    js.consumer(max_deliver=2, backoff=[NS, 2 * NS])
    js.fill(3)
    js.nak_all(3)
    assert [payload for _, payload in js.letters()] == [b"m1", b"m2", b"m3"]
    assert js.state("S")["messages"] == 0


def test_with_ack_policy_all_a_term_acknowledges_what_is_before_it() -> None:
    js = Dead()
    js.consumer(max_deliver=2, ack_policy="all")
    js.fill(3)
    got = js.pull(batch=3)
    js.ack(got[1], b"+TERM")
    assert js.letters() == [("$DLQ.S.c.2.s.a", b"m2")]
    assert js.headers()["Dead-Letter-Reason"] == "term"
    assert js.info()["num_ack_pending"] == 1
    js.ack(got[2])
    assert js.position() == ((3, 3), (3, 3))


@pytest.mark.parametrize("answer", [b"+TERM", b"-NAK"])
def test_with_ack_policy_all_messages_with_letters_are_removed_before_the_floor_passes_them(
    answer: bytes,
) -> None:
    js = Dead(retention="interest")
    js.consumer(max_deliver=1, ack_policy="all")
    js.fill(3)
    got = js.pull(batch=3)
    js.ack(got[0] if answer == b"+TERM" else got[1], answer)
    js.pull(batch=1, no_wait=True)
    assert len(js.letters()) == 1
    assert js.state("S")["messages"] == 2
    js.ack(got[2])
    assert js.state("S")["messages"] == 0


def test_push_ephemeral_and_prioritised_consumers_have_letters() -> None:
    js = Dead()
    js.inbox.send(b"SUB in.p 2\r\n")
    js.api("CONSUMER.CREATE.S.p", _push("p"))
    js.consumer("g", max_deliver=2, priority_groups=["G"], priority_policy="overflow")
    js.fill(1)
    pushed = js.deliveries()[0]
    js.ack(pushed, b"+TERM")
    (pulled,) = js.pull("g", batch=1, group="G")
    js.ack(pulled, b"+TERM")
    assert [subject for subject, _ in js.letters()] == ["$DLQ.S.p.1.s.a", "$DLQ.S.g.1.s.a"]


def _push(name: str) -> dict[str, Any]:
    return {"stream_name": "S", "config": {"name": name, "ack_policy": "explicit", "deliver_subject": "in.p"}}


def test_headers_of_the_message_are_kept_and_do_not_act_on_the_letter() -> None:
    js = Dead(allow_msg_ttl=True, allow_rollup_hdrs=True)
    js.consumer(max_deliver=2)
    js.publish(
        "s.a", b"x", Nats_Msg_Id="7", Nats_TTL="1h", Nats_Rollup="sub", Colour="red", Dead_Letter_Reason="no"
    )
    js.ack(js.pull(batch=1)[0], b"+TERM")
    head = js.headers()
    assert head["Colour"] == "red"
    assert head["Dead-Letter-Original-Nats-Msg-Id"] == "7"
    assert head["Dead-Letter-Original-Nats-TTL"] == "1h"
    assert head["Dead-Letter-Original-Nats-Rollup"] == "sub"
    assert head["Dead-Letter-Original-Dead-Letter-Reason"] == "no"
    assert head["Dead-Letter-Reason"] == "term"


def test_the_advisories_and_the_answer_to_a_term_are_as_without_letters() -> None:
    js = Dead()
    js.consumer(max_deliver=1, ack_wait=NS)
    js.fill(2)
    watcher = js.client()
    watcher.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.> 1\r\nSUB out 2\r\n")
    got = js.pull(batch=2)
    watcher.take()
    js.ack(got[0], b"+TERM no", reply=b"out")
    js.advance(milliseconds=1100)
    frames = watcher.frames()
    assert [frame.subject for frame in frames] == [
        b"out",
        b"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c",
        b"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.c",
    ]
    assert len(js.letters()) == 2


def test_many_letters_are_stored_in_order_and_in_batches() -> None:
    js = Dead(retention="workqueue")
    js.consumer(max_deliver=1, ack_wait=NS)
    js.fill(200)
    js.pull(batch=200)
    js.advance(milliseconds=1100)
    assert [payload for _, payload in js.letters()] == [b"m%d" % number for number in range(1, 201)]
    assert js.state("S")["messages"] == 0


def test_large_letters_go_in_several_batches() -> None:
    js = Dead()
    js.consumer(max_deliver=1, ack_wait=NS)
    for _ in range(3):
        js.publish("s.a", bytes(700_000))
    js.pull(batch=3)
    js.advance(milliseconds=1100)
    assert len(js.letters()) == 3


# -- refusals ------------------------------------------------------------------------------------------------------


def test_a_full_stream_lets_letters_wait_and_says_so() -> None:
    # given
    js = Dead({"max_msgs": 1, "discard": "new"}, retention="workqueue")
    js.consumer(max_deliver=2)
    js.fill(3)
    watcher = js.client()
    watcher.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.DEAD_LETTER_REFUSED.S.c 1\r\n")
    # when
    for message in js.pull(batch=3):
        js.ack(message, b"+TERM x")
    # then
    assert js.letters() == [("$DLQ.S.c.1.s.a", b"m1")]
    assert js.given_up() == {2: 1, 3: 1}
    assert js.state("S")["messages"] == 2
    reason = js.why()
    assert "2 given-up messages wait" in reason["text"]
    assert "maximum messages exceeded" in reason["refusal"]
    assert (reason["refused_seq"], reason["dead_letter_stream"]) == (2, "D")
    (advisory,) = map(parse_advisory, watcher.payloads())
    assert isinstance(advisory, DeadLetterRefused)
    assert (advisory.consumer, advisory.stream_seq, advisory.reason) == ("c", 2, reason["refusal"])
    assert sum("dead letters wait" in line for _, line in js.log.lines) == 1
    # and when there is room again
    js.reconfigure("D", max_msgs=-1)
    js.advance(seconds=5)
    assert [payload for _, payload in js.letters()] == [b"m1", b"m2", b"m3"]
    assert js.headers(3)["Dead-Letter-Reason"] == "term: x"
    assert (js.given_up(), js.why(), js.state("S")["messages"]) == ({}, {}, 0)


def test_a_letter_that_is_too_large_does_not_hold_up_others() -> None:
    js = Dead({"max_msg_size": 600})
    js.consumer(max_deliver=2)
    js.publish("s.a", bytes(600))
    js.publish("s.a", b"small")
    for message in js.pull(batch=2):
        js.ack(message, b"+TERM")
    assert [payload for _, payload in js.letters()] == [b"small"]
    assert "message size exceeds maximum allowed" in js.why()["refusal"]
    js.publish("s.a", b"later")
    js.ack(js.pull(batch=1)[0], b"+TERM")
    assert [payload for _, payload in js.letters()] == [b"small", b"later"]


def test_many_letters_that_are_too_large_do_not_hold_up_others() -> None:
    js = Dead({"max_msg_size": 600})
    js.consumer(max_deliver=1, ack_wait=NS)
    for _ in range(130):
        js.publish("s.a", bytes(600))
    js.publish("s.a", b"small")
    js.pull(batch=131)
    js.advance(seconds=10)
    assert [payload for _, payload in js.letters()] == [b"small"]
    assert "130 given-up messages wait" in js.why()["text"]
    js.reconfigure("D", max_msg_size=-1)
    js.advance(seconds=31)
    assert len(js.letters()) == 131


def test_letters_that_stay_too_large_do_not_hold_up_others_that_were_refused() -> None:
    js = Dead({"max_msgs": 1, "discard": "new"})
    js.consumer(max_deliver=1, ack_wait=NS)
    for _ in range(65):
        js.publish("s.a", bytes(600))
    js.fill(2)
    js.pull(batch=67)
    js.advance(seconds=5)
    assert (len(js.letters()), len(js.given_up())) == (1, 66)
    js.reconfigure("D", max_msgs=-1, max_msg_size=600)
    js.advance(seconds=91)
    assert [payload for _, payload in js.letters()][1:] == [b"m1", b"m2"]


def test_a_change_of_the_stream_is_noticed_and_otherwise_not_examined_again() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(3)
    first, second, third = js.pull(batch=3)
    js.ack(first, b"+TERM")
    js.reconfigure("D", max_msg_size=5000)
    js.ack(second, b"+TERM")
    js.reconfigure("D", subjects=["other"])
    js.ack(third, b"+TERM")
    assert len(js.letters()) == 2
    assert "no subject that covers" in js.why()["refusal"]


def test_a_full_stream_is_not_asked_for_each_of_many_letters() -> None:
    js = Dead({"max_msgs": 1, "discard": "new"})
    js.consumer(max_deliver=1, ack_wait=NS)
    js.fill(1000)
    tries = js.client()
    tries.send(b"SUB $DLQ.> 1\r\n")
    js.pull(batch=1000)
    js.advance(milliseconds=1100)
    assert len(tries.frames()) == 128  # the first batch, of which one letter is stored, and the next
    js.advance(seconds=60)
    assert len(tries.frames()) <= 7 * 64
    js.reconfigure("D", max_msgs=-1)
    js.advance(seconds=31)
    assert len(js.letters()) == 1000


def test_a_deleted_stream_lets_letters_wait_and_attempts_become_rare() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    js.api("STREAM.DELETE.D")
    js.ack(js.pull(batch=1)[0], b"+TERM")
    assert "does not exist: create it first" in js.why()["text"]
    js.advance(seconds=120)
    js.add("D", subjects=["$DLQ.S.>"])
    js.advance(seconds=31)
    assert len(js.letters()) == 1


def test_no_answer_counts_as_a_refusal() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    js.engine.account.unsubscribe(js.engine.subscriptions["D"]["$DLQ.S.>"])  # as without a leader
    js.ack(js.pull(batch=1)[0], b"+TERM")
    assert js.why()["text"].endswith("are not removed and not delivered again.")
    js.advance(milliseconds=5100)
    assert "no answer within 5 seconds" in js.why()["refusal"]
    assert js.given_up() == {1: 1}


def test_an_interest_stream_set_later_is_not_trusted_with_letters() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    js.reconfigure("D", retention="interest")
    js.ack(js.pull(batch=1)[0], b"+TERM")
    assert "retention interest" in js.why()["refusal"]


def test_a_purge_takes_messages_whose_letters_wait() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(2)
    js.api("STREAM.DELETE.D")
    for message in js.pull(batch=2):
        js.ack(message, b"+TERM")
    js.api("STREAM.MSG.DELETE.S", {"seq": 1})
    js.api("STREAM.PURGE.S")
    assert (js.given_up(), js.core().acks.terms) == ({}, {})
    js.advance(seconds=31)
    assert js.why() == {}


def test_a_late_ack_and_a_second_term_while_a_letter_waits() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(2)
    js.api("STREAM.DELETE.D")
    first, second = js.pull(batch=2)
    for message in (first, second, second):
        js.ack(message, b"+TERM")
    assert js.given_up() == {1: 1, 2: 1}
    js.ack(first)
    assert js.given_up() == {2: 1}


# -- configuration -------------------------------------------------------------------------------------------------


def test_a_consumer_chooses_its_own_stream_and_prefix_or_none() -> None:
    js = Dead()
    js.add("E", subjects=["dead.S.>"])
    js.consumer("c", metadata={STREAM_KEY: "E", PREFIX_KEY: "dead"})
    js.consumer("d", metadata={STREAM_KEY: ""})
    js.fill(1)
    for name in ("c", "d"):
        js.ack(js.pull(name, batch=1)[0], b"+TERM")
    assert js.letters() == []
    assert js.letters("E") == [("dead.S.c.1.s.a", b"m1")]
    assert js.core("d").letters is None


def test_what_was_given_up_before_gets_its_letter_when_the_stream_is_set() -> None:
    js = ConsumerFixture()
    js.consumer(max_deliver=1, ack_wait=NS)
    js.fill(1)
    js.pull(batch=1)
    js.advance(milliseconds=1100)
    js.add("D", subjects=["$DLQ.S.>"])
    config = js.api("STREAM.INFO.S")["config"]
    js.api("STREAM.UPDATE.S", {**config, "metadata": {STREAM_KEY: "D"}})
    assert js.state("D")["messages"] == 1
    assert js.core().acks.exhausted == {}


def test_a_removed_key_settles_terminated_messages_and_keeps_others() -> None:
    js = Dead(retention="workqueue")
    js.consumer(max_deliver=1, ack_wait=NS)
    js.fill(2)
    js.api("STREAM.DELETE.D")
    js.ack(js.pull(batch=2)[0], b"+TERM")
    js.advance(milliseconds=1100)
    assert js.given_up() == {1: 1, 2: 1}
    js.edit()
    assert js.given_up() == {2: 1}
    assert js.state("S")["messages"] == 1


def test_another_stream_gets_the_letters_that_wait_at_once() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    js.api("STREAM.DELETE.D")
    js.ack(js.pull(batch=1)[0], b"+TERM")
    js.add("E", subjects=["$DLQ.>"])
    js.edit(**{STREAM_KEY: "E"})
    assert js.letters("E") == [("$DLQ.S.c.1.s.a", b"m1")]


def test_a_consumer_is_not_removed_while_letters_wait() -> None:
    js = Dead()
    js.consumer(max_deliver=2, inactive_threshold=NS)
    js.fill(1)
    js.api("STREAM.DELETE.D")
    js.ack(js.pull(batch=1)[0], b"+TERM")
    js.advance(seconds=60)
    assert "c" in js.stream("S").consumers
    js.add("D", subjects=["$DLQ.S.>"])
    js.advance(seconds=35)
    assert len(js.letters()) == 1
    js.advance(seconds=5)
    assert "c" not in js.stream("S").consumers


def test_a_deleted_consumer_takes_its_waiting_letters_with_it() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    js.api("STREAM.DELETE.D")
    js.ack(js.pull(batch=1)[0], b"+TERM")
    js.api("CONSUMER.DELETE.S.c")
    js.add("D", subjects=["$DLQ.S.>"])
    js.advance(seconds=60)
    assert js.letters() == []


# -- once ----------------------------------------------------------------------------------------------------------


def test_a_letter_of_an_earlier_stream_or_consumer_of_the_same_name_does_not_count() -> None:
    js = Dead()
    for _ in range(3):
        js.consumer(max_deliver=2)
        js.fill(1)
        js.ack(js.pull(batch=1)[0], b"+TERM")
        js.api("CONSUMER.DELETE.S.c")
        js.api("STREAM.DELETE.S")
        js.advance(seconds=1)
        js.add("S", subjects=["s.>"], metadata={STREAM_KEY: "D"})
    assert js.letters() == [("$DLQ.S.c.1.s.a", b"m1")] * 3


def test_a_letter_is_not_stored_again_while_it_cannot_be_read_whether_it_is_there() -> None:
    # given: answers of a server that knows of a message with the letter's subject, which another one cannot find
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    last_seq = answering(js, "wrong last sequence: 7")
    # when
    js.ack(js.pull(batch=1)[0], b"+TERM")
    js.advance(milliseconds=900)
    # then
    assert last_seq == [0]
    assert "no message found" in js.why()["refusal"]


def test_other_messages_with_the_subject_of_a_letter_do_not_keep_the_sender_busy() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    for _ in range(9):
        js.publish("$DLQ.S.c.1.s.a", b"not a letter")
    last_seq = answering(js, *(f"wrong last sequence: {seq}" for seq in range(1, 10)))
    js.ack(js.pull(batch=1)[0], b"+TERM")
    js.advance(milliseconds=900)
    assert last_seq == list(range(8))
    assert "not this letter" in js.why()["refusal"]


def test_a_removal_of_the_message_that_was_found_is_no_endless_retry() -> None:
    js = Dead()
    js.consumer(max_deliver=2)
    js.fill(1)
    js.publish("$DLQ.S.c.1.s.a", b"not a letter")
    last_seq = answering(js, "wrong last sequence: 1", "wrong last sequence: 1")
    js.ack(js.pull(batch=1)[0], b"+TERM")
    js.advance(milliseconds=900)
    assert last_seq == [0, 1]
    assert "removed meanwhile" in js.why()["refusal"]


def answering(js: Dead, *refusals: str) -> list[int]:
    """Let a client answer letters in place of the stream; return the list of the last sequences that they expect."""
    js.engine.account.unsubscribe(js.engine.subscriptions["D"]["$DLQ.S.>"])
    left, expected = list(refusals), []

    def answer(request: Request) -> None:
        block = request.headers.decode()
        expected.append(int(block.partition("Nats-Expected-Last-Subject-Sequence: ")[2].partition("\r")[0]))
        error = {"code": 400, "err_code": 10071, "description": left.pop(0)}
        js.engine.account.send(request.reply, json.dumps({"error": error}).encode())

    js.engine.account.subscribe_handler(b"$DLQ.>", answer)
    return expected


def test_the_timer_of_a_former_sender_takes_no_letters_of_the_present_one() -> None:
    js = Dead()
    js.consumer(max_deliver=2, max_ack_pending=20_000)
    js.fill(4201)
    js.api("STREAM.DELETE.D")
    for _ in range(21):  # more than the queue keeps when they are no longer given up
        for message in js.pull(batch=200):
            js.ack(message, b"+TERM")

    js.edit()  # no stream for letters: all of them count as acknowledged
    js.add("D", subjects=["$DLQ.S.>"])
    js.edit(**{STREAM_KEY: "D"})
    for _ in range(40):
        js.advance(seconds=1)
    (message,) = js.pull(batch=1)
    js.ack(message, b"+TERM")
    js.advance(seconds=1)

    assert len(js.letters()) == 1

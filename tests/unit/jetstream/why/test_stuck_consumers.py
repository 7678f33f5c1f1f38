"""Twenty consumers that deliver nothing, each with the reason that the API gives."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.why.receivers import REQUESTS_MAX, receivers
from pyjs.testing import RawClient

SECOND_NS = 1_000_000_000
CID = 6  # id of the second client


class Stuck(JetStreamFixture):
    """A node with a stream that has five messages."""

    def __init__(self) -> None:
        super().__init__()
        self.add("ORDERS", subjects=["orders.>"])
        for number in range(5):
            self.publish(f"orders.{number}")
        self.second = self.client()

    def consumer(self, name: str = "C", **config: Any) -> None:
        """Create a durable consumer with explicit acks."""
        made = {"durable_name": name, "ack_policy": "explicit", **config}
        answer = self.api(f"CONSUMER.CREATE.ORDERS.{name}", {"stream_name": "ORDERS", "config": made})
        assert "error" not in answer, answer

    def pull(self, client: RawClient, body: dict[str, Any], name: str = "C") -> None:
        """Send a pull request with an inbox to which the client has subscribed."""
        text = json.dumps(body).encode()
        inbox = b"in.%d" % id(client)
        client.send(
            b"SUB %b 9\r\nPUB $JS.API.CONSUMER.MSG.NEXT.ORDERS.%b %b %d\r\n%b\r\n"
            % (inbox, name.encode(), inbox, len(text), text)
        )
        self.turn()

    def why(self, *names: str) -> dict[str, Any]:
        """Return the report about a stream or a consumer."""
        answer: dict[str, Any] = json.loads(self.ask("$JS.API.PYJS.WHY." + ".".join(names)).payload)
        assert answer.pop("type") == "io.pyjs.api.v1.why_response"
        return answer

    def kinds(self) -> list[str]:
        """Return the kinds of all reasons of the consumer C."""
        return [reason["kind"] for reason in self.why("ORDERS", "C")["reasons"]]

    def first(self) -> dict[str, Any]:
        """Return the most important reason why consumer C delivers nothing."""
        report = self.why("ORDERS", "C")
        assert report["delivers"] is False
        reason: dict[str, Any] = report["reasons"][0]
        return reason


@pytest.fixture
def js() -> Stuck:
    return Stuck()


def test_a_consumer_that_delivers_has_no_reason(js: Stuck) -> None:
    js.consumer(max_ack_pending=100)
    for number in range(5):
        js.pull(js.user, {"batch": 1, "expires": 10 * SECOND_NS})
        if number < 4:
            assert js.why("ORDERS", "C")["num_pending"] == 4 - number
    js.publish("orders.more")

    assert js.kinds() == ["no_waiting_pull"]


def test_nobody_pulls(js: Stuck) -> None:
    js.consumer()

    assert js.first()["kind"] == "no_waiting_pull"
    assert js.first()["text"].startswith("No pull request waits: no client asks for messages now.")


def test_the_last_client_left(js: Stuck) -> None:
    js.consumer()
    js.pull(js.second, {"batch": 1, "expires": SECOND_NS})
    js.at(js.clock.now_ns() + 5 * SECOND_NS)

    assert "acknowledgement was 5s ago" in js.first()["text"]


def test_nobody_is_subscribed_to_the_deliver_subject(js: Stuck) -> None:
    js.consumer(deliver_subject="to.here")

    assert js.first() == {
        "kind": "no_interest",
        "text": "Nobody is subscribed to its deliver subject to.here.",
        "stops": True,
        "deliver_subject": "to.here",
    }


def test_the_subscriber_forgot_the_queue_group(js: Stuck) -> None:
    js.consumer(deliver_subject="to.here", deliver_group="workers")
    js.second.send(b"SUB to.here 1\r\n")

    reason = js.first()
    assert (reason["kind"], reason["deliver_group"]) == ("no_interest", "workers")
    assert (
        'to.here in the queue group "workers". A subscription has no queue group. Its client: cid 6'
        in reason["text"]
    )


def test_too_many_deliveries_wait_for_an_acknowledgement(js: Stuck) -> None:
    js.consumer(max_ack_pending=2, ack_wait=30 * SECOND_NS)
    js.pull(js.second, {"batch": 5, "expires": 100 * SECOND_NS})
    js.at(js.clock.now_ns() + 12 * SECOND_NS)

    reason = js.first()
    assert reason["kind"] == "max_ack_pending"
    assert (reason["ack_pending"], reason["max_ack_pending"], reason["oldest_seq"]) == (2, 2, 1)
    assert (reason["oldest_age"], reason["oldest_deliveries"]) == ("12s", 1)
    assert [each["cid"] for each in reason["holders"]] == [CID]
    assert "2 of 2 deliveries wait" in reason["text"]
    assert "The next redelivery is due in 18" in reason["text"]


def test_no_client_receives_while_deliveries_wait(js: Stuck) -> None:
    js.consumer(max_ack_pending=1)
    js.pull(js.second, {"batch": 1, "expires": SECOND_NS})

    assert js.kinds() == ["no_waiting_pull", "max_ack_pending"]
    assert js.why("ORDERS", "C")["reasons"][1]["text"].endswith(
        "Clients that receive now: none in this account."
    )


def test_it_is_paused(js: Stuck) -> None:
    js.consumer(pause_until="2100-01-01T00:00:00Z")
    js.pull(js.user, {"batch": 1, "expires": SECOND_NS})

    assert (js.first()["kind"], js.first()["until"]) == ("paused", "2100-01-01T00:00:00Z")


def test_the_filter_matches_nothing_that_is_stored(js: Stuck) -> None:
    js.publish("orders.new.europe")
    js.consumer(filter_subject="orders.new.europa")
    js.pull(js.user, {"batch": 1, "expires": SECOND_NS})

    reason = js.first()
    assert reason["kind"] == "filter_matches_nothing"
    assert reason["nearest_subjects"][0] == "orders.new.europe"
    assert (
        "its filter orders.new.europa. Of the stored subjects, the most similar are orders.new.europe"
        in reason["text"]
    )


def test_subjects_that_are_hard_to_compare_take_no_time(js: Stuck) -> None:
    js.add("HARD", subjects=["aa.>"])
    for number in range(10, 26):
        js.publish("aa." * 65 + str(number))
    made = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "aa.a." + "a." * 96 + "a"}
    js.api("CONSUMER.CREATE.HARD.C", {"stream_name": "HARD", "config": made})

    began = time.process_time()
    reason = js.why("HARD", "C")["reasons"][0]

    assert (reason["kind"], len(reason["nearest_subjects"])) == ("filter_matches_nothing", 3)
    assert time.process_time() - began < 0.2


def test_several_filters_match_nothing(js: Stuck) -> None:
    js.consumer(filter_subjects=[f"orders.x{number}" for number in range(5)])

    assert js.first()["filters"] == 5
    assert "orders.x0, orders.x1, orders.x2 and 2 more" in js.first()["text"]


def test_the_stream_is_empty(js: Stuck) -> None:
    js.api("STREAM.PURGE.ORDERS")
    js.consumer()

    assert js.kinds() == ["stream_empty", "no_waiting_pull"]


def test_everything_is_delivered_and_acknowledged(js: Stuck) -> None:
    js.consumer(ack_policy="none")
    js.pull(js.user, {"batch": 5, "expires": SECOND_NS})
    js.pull(js.user, {"batch": 5, "expires": SECOND_NS})

    assert js.kinds() == ["up_to_date"]
    assert "up to sequence 5" in js.first()["text"]


def test_it_begins_behind_the_last_message(js: Stuck) -> None:
    js.consumer(deliver_policy="new")

    assert js.first()["text"].startswith("It begins at sequence 6, and no message from there on matches")


def test_everything_is_delivered_and_waits_for_acknowledgements(js: Stuck) -> None:
    js.consumer()
    js.pull(js.user, {"batch": 10, "expires": 100 * SECOND_NS})

    reason = js.first()
    assert (reason["kind"], reason["ack_pending"]) == ("awaiting_acks", 5)
    assert (
        "5 deliveries wait for an acknowledgement. The oldest is sequence 1, after 1 delivery"
        in reason["text"]
    )


def test_a_refused_delivery_is_delayed(js: Stuck) -> None:
    js.consumer(filter_subject="orders.4")
    js.pull(js.user, {"batch": 2, "expires": 100 * SECOND_NS})
    ack = js.user.frames()[-1].reply
    js.user.send(b'PUB %b 23\r\n-NAK {"delay": 60000000000}\r\n'.replace(b" 23\r", b" 27\r") % ack)
    js.turn()

    assert js.first()["kind"] == "backoff"
    assert "The next redelivery is due in 1m0s" in js.first()["text"]


def test_the_waits_between_redeliveries_grow(js: Stuck) -> None:
    js.consumer(filter_subject="orders.4", backoff=[SECOND_NS, 90 * SECOND_NS], max_deliver=5)
    js.pull(js.user, {"batch": 9, "expires": 300 * SECOND_NS})
    js.at(js.clock.now_ns() + 2 * SECOND_NS)

    assert (js.first()["kind"], js.first()["oldest_deliveries"]) == ("backoff", 2)


def test_messages_were_given_up(js: Stuck) -> None:
    js.consumer(max_deliver=1, ack_wait=SECOND_NS)
    js.pull(js.user, {"batch": 9, "expires": 300 * SECOND_NS})
    js.at(js.clock.now_ns() + 2 * SECOND_NS)

    report = js.why("ORDERS", "C")
    given_up = report["reasons"][0]
    assert (given_up["kind"], given_up["given_up"], given_up["given_up_seq"]) == ("max_deliver", 5, 1)
    assert given_up["stops"] is False
    assert "5 messages were given up after 1 delivery (max_deliver)" in given_up["text"]


def test_another_client_is_pinned(js: Stuck) -> None:
    js.consumer(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=100 * SECOND_NS)
    js.pull(js.user, {"batch": 1, "expires": 50 * SECOND_NS, "group": "A"})
    js.pull(js.second, {"batch": 1, "expires": 50 * SECOND_NS, "group": "A"})

    reason = js.first()
    assert (reason["kind"], reason["group"]) == ("pinned", "A")
    assert [each["cid"] for each in reason["waiting"]] == [CID]


def test_the_requests_wait_for_an_overflow(js: Stuck) -> None:
    js.consumer(priority_policy="overflow", priority_groups=["A"])
    js.pull(js.second, {"batch": 1, "expires": 50 * SECOND_NS, "group": "A", "min_pending": 100})

    reason = js.first()
    assert (reason["kind"], reason["num_pending"]) == ("overflow", 5)


def test_the_rate_is_limited(js: Stuck) -> None:
    js.consumer(deliver_subject="to.here", rate_limit_bps=8)
    for _ in range(20):
        js.publish("orders.big", b"x" * 60_000)
    js.second.send(b"SUB to.here 1\r\n")
    js.turn()

    reason = js.first()
    assert (reason["kind"], reason["rate_limit_bps"]) == ("rate_limit", 8)


def test_messages_are_replayed_at_their_original_intervals(js: Stuck) -> None:
    js.at(js.clock.now_ns() + 1000 * SECOND_NS)
    js.publish("orders.late")
    js.consumer(deliver_subject="to.here", replay_policy="original")
    js.second.send(b"SUB to.here 1\r\n")
    js.turn()
    js.turn()

    assert js.first()["kind"] == "replay_original"


def test_the_subscriber_does_not_answer_flow_control(js: Stuck) -> None:
    js.consumer(deliver_subject="to.here", flow_control=True, idle_heartbeat=SECOND_NS)
    js.second.send(b"SUB to.here 1\r\n")
    for _ in range(50):
        js.publish("orders.big", b"x" * 60_000)

    reason = js.first()
    assert reason["kind"] == "flow_control"
    assert [each["cid"] for each in reason["receivers"]] == [CID]


def test_the_report_of_a_stream_lists_consumers_with_a_problem(js: Stuck) -> None:
    js.consumer("IDLE", deliver_policy="new")
    js.consumer("STUCK")

    silent = js.why("ORDERS")["silent_consumers"]
    assert [(each["consumer"], each["kind"]) for each in silent] == [("STUCK", "no_waiting_pull")]


def test_unknown_names_are_refused(js: Stuck) -> None:
    assert js.why("NONE")["error"]["err_code"] == 10059
    assert js.why("ORDERS", "NONE")["error"]["err_code"] == 10014


def test_a_redelivery_waits_for_the_pinned_client(js: Stuck) -> None:
    config = {
        "priority_policy": "pinned_client",
        "priority_groups": ["A"],
        "priority_timeout": 100 * SECOND_NS,
    }
    js.consumer(filter_subject="orders.0", ack_wait=SECOND_NS, **config)
    js.pull(js.user, {"batch": 1, "expires": 50 * SECOND_NS, "group": "A"})
    js.pull(js.second, {"batch": 1, "expires": 50 * SECOND_NS, "group": "A"})
    js.at(js.clock.now_ns() + 2 * SECOND_NS)

    assert js.first()["kind"] == "pinned"


def test_a_redelivery_waits_for_an_overflow(js: Stuck) -> None:
    js.consumer(
        filter_subject="orders.0", ack_wait=SECOND_NS, priority_policy="overflow", priority_groups=["A"]
    )
    js.pull(js.user, {"batch": 1, "expires": 50 * SECOND_NS, "group": "A"})
    js.pull(js.second, {"batch": 1, "expires": 50 * SECOND_NS, "group": "A", "min_pending": 100})
    js.at(js.clock.now_ns() + 2 * SECOND_NS)

    assert js.first()["kind"] == "overflow"


def test_a_work_queue_that_was_emptied_is_up_to_date(js: Stuck) -> None:
    js.add("WORK", subjects=["work.>"], retention="workqueue")
    js.publish("work.a")
    js.publish("work.b")
    config = {"durable_name": "C", "ack_policy": "explicit", "filter_subject": "work.b"}
    js.api("CONSUMER.CREATE.WORK.C", {"stream_name": "WORK", "config": config})
    js.user.send(b"SUB w 8\r\nPUB $JS.API.CONSUMER.MSG.NEXT.WORK.C w 1\r\n1\r\n")
    js.user.send(b"PUB %b 4\r\n+ACK\r\n" % js.user.frames()[-1].reply)
    js.turn()

    assert js.why("WORK", "C")["reasons"][0]["kind"] == "up_to_date"
    assert js.why("WORK")["silent_consumers"] == []


def test_a_new_consumer_for_subjects_to_come_is_up_to_date(js: Stuck) -> None:
    js.consumer(filter_subject="orders.later", deliver_policy="new")

    assert js.kinds()[0] == "up_to_date"


def test_a_consumer_that_gave_up_everything_is_listed(js: Stuck) -> None:
    js.consumer(max_deliver=1, ack_wait=SECOND_NS)
    js.pull(js.user, {"batch": 9, "expires": 300 * SECOND_NS})
    js.at(js.clock.now_ns() + 2 * SECOND_NS)

    assert [each["kind"] for each in js.why("ORDERS")["silent_consumers"]] == ["max_deliver"]


def test_a_subscriber_that_acknowledges_by_flow_control_and_does_not(js: Stuck) -> None:
    js.consumer(
        ack_policy="flow_control",
        deliver_subject="to.here",
        flow_control=True,
        idle_heartbeat=SECOND_NS,
        max_ack_pending=2,
    )
    js.second.send(b"SUB to.here 1\r\n")
    js.turn()

    reason = js.first()
    assert reason["kind"] == "flow_control"
    assert "next_redelivery" not in reason


def test_a_client_that_listens_to_everything_receives_nothing(js: Stuck) -> None:
    js.client().send(b"SUB > 1\r\n")
    js.consumer(max_ack_pending=1)
    js.pull(js.second, {"batch": 5, "expires": 100 * SECOND_NS})

    assert [each["cid"] for each in js.first()["holders"]] == [CID]


def test_thousands_of_subscriptions_to_the_same_subjects_are_examined_in_no_time(js: Stuck) -> None:
    js.second.send(b"".join(b"SUB in.* %d\r\n" % number for number in range(3_000)))
    account = js.second.session.account

    began = time.process_time()
    found = receivers(account, [b"in.%d" % number for number in range(REQUESTS_MAX)], is_shown=True)

    assert [session.cid for session in found.sessions] == [CID]
    assert time.process_time() - began < 0.5


def test_a_request_whose_client_has_left_does_not_count(js: Stuck) -> None:
    js.consumer(filter_subject="orders.later", deliver_policy="new")
    js.pull(js.second, {"batch": 1, "expires": 3000 * SECOND_NS})
    js.second.session.connection_lost()

    assert js.kinds() == ["up_to_date", "no_waiting_pull"]


def test_deliveries_that_a_nak_holds_back_are_counted(js: Stuck) -> None:
    js.consumer(max_ack_pending=1)
    js.pull(js.second, {"batch": 5, "expires": 100 * SECOND_NS})
    body = b'-NAK {"delay": 60000000000}'
    js.second.send(b"PUB %b %d\r\n%b\r\n" % (js.second.frames()[-1].reply, len(body), body))
    js.turn()

    reason = js.first()
    assert (reason["kind"], reason["nak_delayed"]) == ("max_ack_pending", 1)
    assert "A NAK with a delay holds back 1 of them." in reason["text"]

"""The list of consumers, and one consumer."""

from __future__ import annotations

import json

import pytest
from tests.unit.monitor.conftest import finish
from tests.unit.monitor.dashboard.conftest import Dash

from pyjs.jetstream.why import report
from pyjs.monitor.dashboard import consumers
from pyjs.monitor.own.consumer_reading import SEARCHED


def names(page: dict[str, list[dict[str, str]]]) -> list[str]:
    return [row["name"] for row in page["consumers"]]


@pytest.fixture
def busy(dash: Dash) -> Dash:
    """A stream with three messages; C has delivered two of them, and nobody asks D."""
    dash.stream("A")
    dash.consumer("A", "C", max_ack_pending=2)
    dash.consumer("A", "D", filter_subjects=["a.1", "a.2", "a.3", "a.4"])
    dash.publish("a.1", b"x", b"y", b"z")
    dash.pull("A", "C", 5)
    return dash


def test_the_list_says_why_each_consumer_delivers_nothing(busy: Dash) -> None:
    found = {row["name"]: row for row in busy.view("consumers")["consumers"]}

    assert (found["C"]["kind"], found["C"]["level"]) == ("max_ack_pending", "stopped")
    assert found["C"]["text"].startswith("max_ack_pending is reached: 2 of 2")
    assert (found["C"]["pending"], found["C"]["ack_pending"], found["C"]["waiting"]) == (1, 2, 1)
    assert (found["D"]["kind"], found["D"]["filters"], found["D"]["num_filters"]) == (
        "no_waiting_pull",
        ["a.1", "a.2", "a.3"],
        4,
    )
    assert found["D"]["lag_ns"] == 1_000_000_000
    assert found["C"]["unacked_ns"] == 1_000_000_000


def test_the_list_is_sorted_searched_and_limited_to_a_stream(busy: Dash) -> None:
    busy.stream("B")
    busy.consumer("B", "E")

    assert names(busy.view("consumers")) == ["D", "C", "E"]
    assert names(busy.view("consumers?sort=name")) == ["C", "D", "E"]
    assert names(busy.view("consumers?sort=-pending&limit=1")) == ["D"]
    assert names(busy.view("consumers?search=e")) == ["E"]
    assert names(busy.view("consumers?search=a&sort=stream")) == ["C", "D"]
    assert names(busy.view("consumers?acc=$G&stream=B")) == ["E"]
    assert names(busy.view("consumers?acc=X&stream=B")) == []
    for sort in ("ack_pending", "redelivered", "rate"):
        assert len(names(busy.view(f"consumers?sort={sort}"))) == 3


def test_a_long_page_is_read_in_steps(busy: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "STEP", 2)
    busy.view("consumers")
    before = busy.steps_of("/dashboard/data/consumers")
    monkeypatch.setattr(consumers, "STEP", 100)

    assert before == busy.steps_of("/dashboard/data/consumers") + 1


def test_a_consumer_that_was_deleted_since_the_survey_has_its_last_numbers(busy: Dash) -> None:
    busy.view("consumers")
    busy.user.request(b"$JS.API.CONSUMER.DELETE.A.D", b"")

    found = {row["name"]: row for row in busy.json("/dashboard/data/consumers")["consumers"]}
    assert (found["D"]["pending"], found["D"]["text"]) == (3, "")


def test_one_consumer_has_its_reasons_receivers_and_deliveries(busy: Dash) -> None:
    found = busy.view("consumer?acc=$G&stream=A&consumer=C")

    assert [each["kind"] for each in found["reasons"]] == ["max_ack_pending"]
    assert [each["name"] for each in found["receivers"]] == ["tester"]
    assert found["receivers_elsewhere"] == 0
    assert [(row["seq"], row["deliveries"], row["state"]) for row in found["deliveries"]] == [
        (1, 1, "waits for ack"),
        (2, 1, "waits for ack"),
    ]
    assert (found["deliveries"][0]["age_ns"], found["deliveries"][0]["due_ns"]) == (10**9, 29 * 10**9)
    assert found["info"]["delivered"]["stream_seq"] == 2
    assert "config" not in found["info"]


def test_the_number_of_deliveries_is_bounded(busy: Dash) -> None:
    assert len(busy.view("consumer?acc=$G&stream=A&consumer=C&rows=1")["deliveries"]) == 1
    for rows in (-1, 1001):
        refused = busy.refusal(f"consumer?acc=$G&stream=A&consumer=C&rows={rows}")
        assert refused == f"rows={rows}: use 1 to 1000"


def test_a_push_consumer_names_its_subscriber(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "P", deliver_subject="to.me")

    found = dash.view("consumer?acc=$G&stream=A&consumer=P")
    assert (found["push"], found["waiting"], found["receivers"]) == (True, 0, [])


def test_a_consumer_with_filters_on_many_messages_is_read_in_steps_of_its_own(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "F", filter_subject="a.*.x")
    dash.publish("a.1", *[b""] * (SEARCHED + 1))

    assert dash.view("consumer?acc=$G&stream=A&consumer=F")["num_filters"] == 1


def test_a_consumer_with_many_requests_has_a_step_of_its_own(
    busy: Dash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MANY_REQUESTS", 1)

    assert busy.steps_of("/dashboard/data/consumer?acc=$G&stream=A&consumer=C") == 2


def test_unknown_names_are_refused(busy: Dash) -> None:
    refused = busy.refusal("consumer?acc=$G&stream=A&consumer=X")
    assert refused == 'consumer "X" of stream "A" is not open on this server'
    assert busy.refusal("consumer?acc=$G&stream=X&consumer=C").startswith('stream "X" of account')


def test_a_consumer_that_is_deleted_during_the_answer_is_refused(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "F", filter_subject="a.*.x")
    dash.publish("a.1", *[b""] * (SEARCHED + 1))
    steps = dash.router.answer("/dashboard/data/consumer?acc=$G&stream=A&consumer=F")
    next(steps)
    dash.user.request(b"$JS.API.CONSUMER.DELETE.A.F", b"")

    answer = finish(steps)
    assert (answer.status, answer.body) == (400, b"the consumer was deleted")


def test_a_consumer_that_is_deleted_while_its_row_is_read_has_its_last_numbers(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "F", filter_subject="a.*.x")
    dash.publish("a.1", *[b""] * (SEARCHED + 1))
    dash.view("consumers")
    steps = dash.router.answer("/dashboard/data/consumers")
    next(steps)  # the list is sorted
    next(steps)  # begins the row
    dash.user.request(b"$JS.API.CONSUMER.DELETE.A.F", b"")

    (row,) = json.loads(finish(steps).body)["consumers"]
    assert (row["pending"], row["kind"], row["text"]) == (0, "filter_matches_nothing", "")

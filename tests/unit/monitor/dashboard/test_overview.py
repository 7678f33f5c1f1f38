"""The overview."""

from __future__ import annotations

from tests.unit.monitor.dashboard.conftest import Dash

from pyjs.config.options import Options
from pyjs.monitor.dashboard.overview import ATTENTION_MAX


def test_the_overview_has_counters_sizes_and_totals(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "C")
    dash.publish("a.1", b"x", b"y")

    found = dash.view("overview")

    assert (found["in_msgs"], found["connections"], found["mem"], found["cpu"]) == (4, 1, 12345, 2.5)
    assert found["routes"] == 0
    js = found["jetstream"]
    assert (js["streams"], js["consumers"], js["msgs"], js["pending"], js["ack_pending"]) == (1, 1, 2, 2, 0)
    assert js["levels"] == {"idle": 0, "ok": 0, "waiting": 0, "warning": 0, "stopped": 1}
    assert js["config"]["max_storage"] == -1


def test_what_needs_attention_comes_with_its_reason_the_worst_first(dash: Dash) -> None:
    dash.stream("FULL", max_msgs=1, discard="new")
    dash.publish("full.1", b"x")
    dash.stream("A")
    dash.consumer("A", "IDLE")
    dash.stream("B")
    for number in range(ATTENTION_MAX + 1):
        dash.consumer("B", f"C{number}", deliver_policy="all" if number else "last")
    dash.publish("b.1", b"x", b"y")

    rows = dash.view("overview")["attention"]

    assert [(row["stream"], row["kind"]) for row in rows[:2]] == [
        ("FULL", "max_msgs"),
        ("B", "no_waiting_pull"),
    ]
    assert rows[0]["text"].startswith("max_msgs is reached (1 of 1 messages)")
    assert len(rows) == 1 + ATTENTION_MAX
    assert "IDLE" not in [row.get("name") for row in rows]


def test_a_stream_that_was_deleted_since_the_survey_has_no_text(dash: Dash) -> None:
    dash.stream("FULL", max_msgs=1, discard="new")
    dash.publish("full.1", b"x")
    dash.view("overview")
    dash.user.request(b"$JS.API.STREAM.DELETE.FULL", b"")

    (row,) = dash.json("/dashboard/data/overview")["attention"]
    assert (row["kind"], row["text"]) == ("max_msgs", "")


def test_without_jetstream_the_rest_is_shown() -> None:
    dash = Dash(Options())

    found = dash.view("overview")
    assert (found["jetstream"], found["attention"], found["connections"]) == (None, [], 1)
    assert dash.view("streams")["streams"] == []
    assert dash.view("cluster")["meta"] is None
    assert dash.refusal("stream?acc=$G&stream=A").startswith("stream")


def test_a_stream_of_an_account_that_lost_jetstream_has_no_text(dash: Dash) -> None:
    dash.stream("FULL", max_msgs=1, discard="new")
    dash.publish("full.1", b"x")
    dash.view("overview")
    assert dash.node.jetstream is not None
    dash.node.jetstream.accounts.clear()

    (row,) = dash.json("/dashboard/data/overview")["attention"]
    assert (row["kind"], row["text"]) == ("max_msgs", "")

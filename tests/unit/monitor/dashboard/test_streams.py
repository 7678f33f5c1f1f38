"""The list of streams, and one stream."""

from __future__ import annotations

from tests.unit.monitor.dashboard.conftest import Dash


def names(page: dict[str, list[dict[str, str]]]) -> list[str]:
    return [row["name"] for row in page["streams"]]


def test_the_list_has_what_an_operator_looks_for_first(dash: Dash) -> None:
    dash.stream("A", subjects=["a.1", "a.2", "a.3", "a.4"])
    dash.consumer("A", "C")
    dash.publish("a.1", b"xx", b"y")

    (row,) = dash.view("streams")["streams"]

    assert (row["msgs"], row["consumers"], row["pending"], row["level"], row["kind"]) == (2, 1, 2, "ok", "")
    assert (row["subjects"], row["num_subjects"]) == (["a.1", "a.2", "a.3"], 4)
    assert (row["storage"], row["replicas"]) == ("memory", 1)


def test_the_list_is_sorted_searched_and_cut_by_the_server(dash: Dash) -> None:
    for number in range(3):
        dash.stream(f"S{number}", subjects=[f"orders.{number}"])
        dash.publish(f"orders.{number}", *[b"x"] * number)

    assert names(dash.view("streams")) == ["S0", "S1", "S2"]
    assert names(dash.view("streams?sort=-msgs&limit=2")) == ["S2", "S1"]
    assert names(dash.view("streams?sort=bytes&offset=1")) == ["S1", "S2"]
    assert names(dash.view("streams?search=s1")) == ["S1"]
    assert names(dash.view("streams?search=ORDERS.2")) == ["S2"]
    assert names(dash.view("streams?search=$g")) == ["S0", "S1", "S2"]
    page = dash.view("streams?search=nothing")
    assert (page["total"], page["of"], page["streams"]) == (0, 3, [])
    for sort in ("rate", "consumers", "pending", "level"):
        assert len(names(dash.view(f"streams?sort={sort}"))) == 3


def test_numbers_are_of_this_moment_and_the_order_is_of_the_survey(dash: Dash) -> None:
    dash.stream("A")
    dash.view("streams")
    dash.publish("a.1", b"x")

    (row,) = dash.json("/dashboard/data/streams")["streams"]
    assert row["msgs"] == 1


def test_a_stream_that_was_deleted_since_the_survey_has_its_last_numbers(dash: Dash) -> None:
    dash.stream("A")
    dash.publish("a.1", b"x")
    dash.view("streams")
    dash.user.request(b"$JS.API.STREAM.DELETE.A", b"")

    (row,) = dash.json("/dashboard/data/streams")["streams"]
    assert (row["msgs"], "subjects" in row) == (1, False)
    assert dash.json("/dashboard/data/streams?search=a")["total"] == 1
    assert dash.json("/dashboard/data/streams?search=a.")["total"] == 0


def test_streams_without_replicas_can_be_left_out(dash: Dash) -> None:
    dash.stream("A")

    assert dash.view("streams?replicated=true")["streams"] == []


def test_one_stream_has_its_reasons_and_its_state(dash: Dash) -> None:
    dash.stream("A", max_msgs=1, discard="new")
    dash.publish("a.1", b"x")

    found = dash.view("stream?acc=$G&stream=A")

    assert (found["level"], found["reasons"][0]["kind"]) == ("stopped", "max_msgs")
    assert (found["state"]["messages"], found["max_msgs"], found["retention"]) == (1, 1, "limits")
    assert found["cluster"] == {}


def test_the_configuration_is_a_view_of_its_own(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "C")

    assert dash.view("config?acc=$G&stream=A")["config"]["subjects"] == ["a.>"]
    assert dash.view("config?acc=$G&stream=A&consumer=C")["config"]["durable_name"] == "C"


def test_a_mirror_shows_its_origin(dash: Dash) -> None:
    dash.stream("A")
    dash.stream("M", subjects=[], mirror={"name": "A"})

    found = dash.view("stream?acc=$G&stream=M")
    assert (found["level"], found["mirror"]["name"]) == ("ok", "A")


def test_an_unknown_stream_is_refused(dash: Dash) -> None:
    assert dash.refusal("stream?acc=$G&stream=A") == 'stream "A" of account "$G" is not open on this server'
    assert dash.refusal("config?acc=X&stream=A") == 'stream "A" of account "X" is not open on this server'

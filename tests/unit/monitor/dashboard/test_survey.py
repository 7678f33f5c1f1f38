"""The survey that all open dashboards share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.monitor.conftest import finish
from tests.unit.monitor.dashboard.conftest import Dash, jetstream_options

from pyjs.monitor.dashboard import survey
from pyjs.monitor.dashboard.survey import ABANDONED_NS, EMPTY, REST_NS, SHARE, Snapshot, Survey
from pyjs.monitor.own.consumer_reading import SEARCHED


class SlowClock:
    """A clock that goes on by some time each time it is read."""

    def __init__(self, tick_ns: int) -> None:
        self.now = 10**18
        self.tick_ns = tick_ns

    def now_ns(self) -> int:
        self.now += self.tick_ns
        return self.now


def drained(steps: Any) -> Snapshot:
    found: Snapshot = finish(steps)
    return found


def survey_of(dash: Dash, clock: Any = None) -> Survey:
    return Survey(dash.monitored, clock or dash.fixture.clock)


def test_a_survey_has_the_numbers_of_everything(dash: Dash) -> None:
    dash.stream("A")
    dash.stream("B")
    dash.consumer("A", "C", max_ack_pending=2)
    dash.publish("a.1", b"x", b"yy", b"zzz")
    dash.pull("A", "C", 2)

    found = drained(survey_of(dash).fresh())

    assert [(row.name, row.msgs, row.num_consumers, row.num_pending) for row in found.streams] == [
        ("A", 3, 1, 1),
        ("B", 0, 0, 0),
    ]
    (row,) = found.consumers
    assert (row.account, row.stream, row.name) == ("$G", "A", "C")
    assert (row.num_pending, row.num_ack_pending, row.kind) == (1, 2, "no_waiting_pull")
    assert found.num_connections == 1
    assert found.traffic.in_msgs == dash.node.counters()[0]
    assert found.traffic.out_bytes == dash.node.counters()[3]


def test_rates_are_differences_from_the_previous_survey(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "C")
    made = survey_of(dash)
    assert drained(made.fresh()).streams[0].rate == 0
    dash.publish("a.1", *[b"x"] * 20)
    dash.pull("A", "C", 10)
    dash.fixture.advance(seconds=2)

    found = drained(made.fresh())

    assert (found.streams[0].rate, found.consumers[0].rate) == (10.0, 5.0)


def test_a_survey_is_shared_until_it_is_old(dash: Dash) -> None:
    made = survey_of(dash)
    first = drained(made.fresh())
    dash.stream("A")

    assert drained(made.fresh()) is first
    dash.fixture.advance(milliseconds=REST_NS // 1_000_000)
    assert len(drained(made.fresh()).streams) == 1


def test_surveys_that_take_long_are_made_less_often(dash: Dash) -> None:
    clock = SlowClock(tick_ns=100_000_000)
    made = Survey(dash.monitored, clock)  # type: ignore[arg-type]
    found = drained(made.fresh())
    assert found.took_ns > REST_NS / SHARE

    clock.tick_ns = 0
    clock.now += found.took_ns * SHARE - 1
    assert drained(made.fresh()) is found
    clock.now += 1
    assert drained(made.fresh()) is not found


def test_a_request_that_ends_early_leaves_the_survey_to_the_next_one(dash: Dash) -> None:
    for number in range(3 * survey.STEP):
        dash.stream(f"S{number}")
    made = survey_of(dash)
    abandoned = made.fresh()
    next(abandoned)
    next(abandoned)
    del abandoned
    assert made.latest is EMPTY

    assert len(drained(made.fresh()).streams) == 3 * survey.STEP


def test_a_survey_that_nobody_continued_is_begun_again(dash: Dash) -> None:
    made = survey_of(dash)
    abandoned = made.fresh()
    next(abandoned)
    dash.user.send(b"PUB a 1\r\nx\r\n")
    dash.fixture.advance(milliseconds=ABANDONED_NS // 1_000_000 + 1)

    found = drained(made.fresh())

    assert found.at_ns == dash.fixture.clock.now_ns()
    assert found.traffic.in_msgs == dash.node.counters()[0]


def test_a_survey_that_fails_is_begun_again(dash: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    dash.stream("A")
    made = survey_of(dash)
    with monkeypatch.context() as broken:
        broken.setattr(survey, "why_stream", lambda js, stream: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            drained(made.fresh())

    assert len(drained(made.fresh()).streams) == 1


def test_many_connections_take_several_steps(dash: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SESSIONS_STEP", 2)
    for _ in range(4):
        dash.client()

    assert sum(1 for _ in survey_of(dash).fresh()) >= 3


def test_a_client_that_closes_during_a_survey_is_counted_once(dash: Dash) -> None:
    leaving = dash.client()
    leaving.send(b"PUB a 1\r\nx\r\n" * 5)
    before = dash.node.counters()
    made = survey_of(dash)
    steps = made.fresh()
    next(steps)
    leaving.session.close("Client Closed")

    assert drained(steps).traffic.in_msgs == before[0]
    dash.fixture.advance(seconds=1)
    assert drained(made.fresh()).traffic.in_msgs == before[0]


def test_a_consumer_with_filters_on_many_messages_has_a_step_of_its_own(dash: Dash) -> None:
    dash.stream("A")
    dash.consumer("A", "C", filter_subject="a.*.x")
    dash.consumer("A", "D")
    dash.publish("a.1", *[b""] * (SEARCHED + 1))
    dash.publish("a.1.x", b"")

    found = drained(survey_of(dash).fresh())

    assert [(row.name, row.num_pending) for row in found.consumers] == [("C", 1), ("D", SEARCHED + 2)]


def test_a_consumer_that_is_deleted_during_the_survey_is_left_out(dash: Dash) -> None:
    dash.stream("A")
    for name in ("C", "D"):
        dash.consumer("A", name, filter_subject="a.*.x")
    dash.publish("a.1", *[b""] * (SEARCHED + 1))
    steps = survey_of(dash).fresh()
    next(steps)  # the connections
    next(steps)  # begins the step of the first consumer
    dash.user.request(b"$JS.API.CONSUMER.DELETE.A.D", b"")

    assert [row.name for row in drained(steps).consumers] == ["C"]


def test_a_stream_that_is_not_open_is_listed(tmp_path: Path) -> None:
    broken = tmp_path / "$G" / "streams" / "A"
    broken.mkdir(parents=True)
    (broken / "meta.a").write_bytes(b"?")
    dash = Dash(jetstream_options(tmp_path))
    dash.node.start_jetstream()

    (row,) = drained(survey_of(dash).fresh()).streams

    assert (row.name, row.kind, row.level.name) == ("A", "unrecovered", "STOPPED")
    assert dash.view("streams")["streams"][0]["level"] == "stopped"
    (problem,) = dash.view("overview")["attention"]
    assert "pyjs-server fsck" in problem["text"]
    dash.node.stop()

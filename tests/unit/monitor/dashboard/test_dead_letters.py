"""The streams and consumers whose dead letters a stream has."""

from __future__ import annotations

import pytest
from tests.unit.monitor.conftest import finish
from tests.unit.monitor.dashboard.conftest import Dash

from pyjs.base.errors import NotNow
from pyjs.jetstream.config.dead_letters import STREAM_KEY
from pyjs.monitor.dashboard import dead_letters
from pyjs.monitor.dashboard.dead_letters import SENDERS_MAX, is_replay_allowed

VIEW = "dead_letters?acc=$G&stream=D"


@pytest.fixture
def letters(dash: Dash) -> Dash:
    """The stream D takes the letters of S, and those of one consumer of T."""
    dash.stream("D", subjects=["$DLQ.>"])
    dash.stream("S", metadata={STREAM_KEY: "D"})
    dash.stream("T")
    dash.consumer("T", "own", metadata={STREAM_KEY: "D"})
    dash.consumer("T", "none")
    return dash


def test_the_senders_of_letters_are_listed(letters: Dash) -> None:
    found = letters.view(VIEW)

    assert found["senders"] == [{"stream": "S"}, {"stream": "T", "consumer": "own"}]
    assert (found["num_senders"], found["letters"], found["replay"]) == (2, False, True)
    assert (found["is_leader"], found["leader"]) == (True, "")
    assert letters.view("dead_letters?acc=$G&stream=S")["num_senders"] == 0


def test_only_some_senders_are_named(letters: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "STEP", 3)
    for number in range(SENDERS_MAX):
        letters.consumer("S", f"c{number}", metadata={STREAM_KEY: "D"})

    found = letters.view(VIEW)
    assert (len(found["senders"]), found["num_senders"]) == (SENDERS_MAX, SENDERS_MAX + 2)
    assert letters.steps_of(f"/dashboard/data/{VIEW}") == 10


def test_letters_at_one_end_of_the_stream_are_seen(letters: Dash) -> None:
    letters.publish("$DLQ.other", b"no letter")
    assert letters.view(VIEW)["letters"] is False
    letters.letter(1)
    assert letters.view(VIEW)["letters"] is True
    letters.publish("$DLQ.other", b"no letter")
    assert letters.view(VIEW)["letters"] is False
    letters.user.request(b"$JS.API.STREAM.MSG.DELETE.D", b'{"seq":1}')
    assert letters.view(VIEW)["letters"] is True


def test_a_message_that_cannot_be_read_now_counts_as_none() -> None:
    class Short:
        msgs, first_seq, last_seq = 1, 1, 1

        def get(self, seq: int) -> None:
            raise NotNow("message 1 cannot be read now")

    class Unreadable:
        closed, store = False, Short()

    assert finish(dead_letters._has_letters(Unreadable())) is False  # type: ignore[arg-type]


def test_a_stream_that_is_not_here_is_refused(dash: Dash) -> None:
    assert dash.refusal(VIEW) == 'stream "D" of account "$G" is not open on this server'


def test_replays_need_a_login_that_allows_them(letters: Dash) -> None:
    site = letters.router._dashboard._site
    login = letters.monitored.options.monitoring.login
    assert login is not None
    login.replay = False
    assert letters.view(VIEW)["replay"] is False
    letters.monitored.options.monitoring.login = None
    assert not is_replay_allowed(site)

"""The action that replays dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.monitor.dashboard.conftest import Dash, jetstream_options

from pyjs.config.options import HttpLogin
from pyjs.jetstream.api import dead_letters as api
from pyjs.jetstream.api.endpoint import ApiCall
from pyjs.jetstream.errcodes import LeaderChanged
from pyjs.monitor.dashboard.replay import BROKEN, MOVED, OFF, RUNNING
from pyjs.monitor.state import no_turns

TARGET = "actions/replay?acc=$G&stream=D"


@pytest.fixture
def letters(dash: Dash) -> Dash:
    """The stream D, with three letters of messages of S."""
    dash.stream("S")
    dash.stream("D", subjects=["$DLQ.>"])
    for seq, consumer in enumerate(("a", "b", "a"), 1):
        dash.letter(seq, consumer=consumer)
    return dash


def replay(dash: Dash, **fields: Any) -> dict[str, Any]:
    answer = dash.post(TARGET, json.dumps(fields).encode())
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


def refusal(dash: Dash, body: bytes, status: int, target: str = TARGET) -> str:
    answer = dash.post(target, body)
    assert answer.status == status, answer.body
    return answer.body.decode().rstrip("\n")


def msgs(dash: Dash, stream: str) -> int:
    found: int = dash.view(f"stream?acc=$G&stream={stream}")["state"]["messages"]
    return found


def test_letters_are_replayed_as_by_the_api(letters: Dash) -> None:
    found = replay(letters, consumer="a", limit=1)

    assert found == {"stream": "D", "replayed": 1, "failed": 0, "skipped": 0, "next_seq": 2}
    assert (msgs(letters, "S"), msgs(letters, "D")) == (1, 2)
    assert replay(letters, consumer="a", seq=found["next_seq"])["replayed"] == 1
    assert replay(letters, keep=True)["next_seq"] == 0
    assert (msgs(letters, "S"), msgs(letters, "D")) == (3, 1)


def test_the_log_says_who_replays_what(letters: Dash) -> None:
    letters.letter(4, subject="nowhere")
    replay(letters)
    refusal(letters, b'{"limit": 0}', 400)
    refusal(letters, b'{"\\n[INF] x": 0}', 400)

    by = 'Replay of dead letters of stream "D" in account "$G", by the dashboard at 10.1.2.3:4: '
    assert [text for level, text in letters.log.lines if level == "INF" and text.startswith(by)] == [
        f"{by}3 replayed, 1 failed, 0 skipped",
        f'{by}refused: "replay of dead letters: limit is 0: it is the maximum number of letters, 1 to 1000"',
        rf'{by}refused: "invalid JSON: json: unknown field \"\n[INF] x\""',
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "invalid JSON"),
        (b"[]", "invalid JSON"),
        (b'{"limits": 1}', "invalid JSON"),
        (b'{"seq": 18446744073709551616}', "invalid JSON"),
        (b'{"seq": -1}', "invalid JSON"),
        (b'{"limit": 9223372036854775808}', "invalid JSON"),
        (b'{"limit": 9223372036854775807}', "limit is 9223372036854775807"),
        (b'{"subject": "a..b"}', "subject is no valid subject"),
        (b'{"keep": "yes"}', "invalid JSON"),
        (b"[" * 16_000, "invalid JSON"),
        (b"\xff\x00", "invalid JSON"),
    ],
)
def test_what_the_api_refuses_is_refused(letters: Dash, body: bytes, text: str) -> None:
    assert text in refusal(letters, body, 400)
    assert (msgs(letters, "S"), msgs(letters, "D")) == (0, 3)


def test_a_sequence_beyond_the_end_replays_nothing(letters: Dash) -> None:
    assert replay(letters, seq=1 << 63)["replayed"] == 0
    assert replay(letters, seq=(1 << 64) - 1)["replayed"] == 0


@pytest.mark.parametrize("login", [None, HttpLogin(token="t", messages=True)])
def test_it_is_off_without_a_login_or_without_the_option(tmp_path: Path, login: HttpLogin | None) -> None:
    options = jetstream_options(tmp_path)
    options.monitoring.login = login
    dash = Dash(options)
    dash.node.start_jetstream()
    dash.stream("D", subjects=["$DLQ.>"])
    dash.letter(1)

    assert refusal(dash, b"{}", 403) == OFF
    assert msgs(dash, "D") == 1


def test_a_get_changes_nothing(letters: Dash) -> None:
    answer = letters.ask(f"/dashboard/{TARGET}")

    assert (answer.status, dict(answer.headers)["Allow"]) == (405, "POST")
    assert msgs(letters, "D") == 3


@pytest.mark.parametrize(
    "query", ["", "acc=$G", "stream=D", "acc=OTHER&stream=D", "acc=$G&stream=E", "acc=$SYS&stream=D"]
)
def test_a_wrong_account_or_stream_is_refused(letters: Dash, query: str) -> None:
    assert "is not open on this server" in refusal(letters, b"{}", 404, f"actions/replay?{query}")


def test_a_post_to_a_view_is_answered_as_a_get(letters: Dash) -> None:
    assert letters.post("data/streams", b"{}").status == 200
    assert letters.post("actions/other", b"{}").status == 404


def test_one_replay_runs_at_a_time(letters: Dash) -> None:
    letters.monitored.in_turns = no_turns  # the first replay never begins
    refusal(letters, b"{}", 500)

    assert refusal(letters, b"{}", 503) == RUNNING


def test_a_replay_that_breaks_off_is_reported(letters: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: ApiCall) -> None:
        raise ZeroDivisionError("broken replay")

    monkeypatch.setattr(api, "replay", broken)

    assert refusal(letters, b"{}", 500) == BROKEN
    assert "broken replay" in str(letters.log.lines)
    monkeypatch.undo()
    assert replay(letters)["replayed"] == 3


def test_a_replay_that_another_server_must_do_is_reported(
    letters: Dash, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(call: ApiCall) -> None:
        raise LeaderChanged

    monkeypatch.setattr(api, "replay", moved)

    assert refusal(letters, b"{}", 503) == MOVED


def test_letters_that_cannot_be_removed_are_kept(letters: Dash) -> None:
    letters.stream("K", subjects=["k.>"], deny_delete=True)

    text = refusal(letters, b"{}", 400, "actions/replay?acc=$G&stream=K")
    assert 'send "keep": true' in text

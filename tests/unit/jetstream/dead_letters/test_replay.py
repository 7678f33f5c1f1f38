"""Replays of dead letters: the selected letters, their target, repeated replays, and the letters that remain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.jetstream.deadfixture import STREAM_KEY, Dead

from pyjs.jetstream.dead_letters.replay import BATCH, Replay, Wanted

NS = 1_000_000_000


@pytest.fixture
def js() -> Dead:
    """Six letters: two consumers terminated three messages each."""
    made = Dead(retention="limits", allow_rollup_hdrs=True)
    made.consumer("c", max_deliver=2)
    made.consumer("d", max_deliver=2)
    made.publish("s.a", b"m1", Nats_Rollup="sub", Nats_Msg_Id="1", Colour="red")
    made.publish("s.b.c", b"m2")
    made.publish("s.b.d", b"m3")
    for name in ("c", "d"):
        for message in made.pull(name, batch=3):
            made.ack(message, b"+TERM bad" if message.seq == 1 else b"+TERM")
    assert len(made.letters()) == 6
    return made


def replay(js: Dead, body: bytes = b"", **fields: Any) -> dict[str, Any]:
    """Ask for a replay; return the answer without its type and stream."""
    answer: dict[str, Any] = json.loads(js.ask("$JS.API.PYJS.DEAD_LETTERS.REPLAY.D", body or fields).payload)
    assert answer.pop("type") == "io.pyjs.api.v1.dead_letters_replay_response"
    assert answer.pop("stream", "D") == "D"
    return answer


def counts(js: Dead, **fields: Any) -> tuple[int, int, int, int]:
    """Ask for a replay; return (replayed, failed, skipped, next_seq)."""
    answer = replay(js, **fields)
    return answer["replayed"], answer["failed"], answer["skipped"], answer["next_seq"]


def test_all_letters_go_back_and_are_removed(js: Dead) -> None:
    assert replay(js, b"") == {"replayed": 6, "failed": 0, "skipped": 0, "next_seq": 0}
    assert js.letters() == []
    assert js.payloads("S") == [b"m1", b"m2", b"m3"] * 3
    message = js.stream("S").store.get(4)
    assert message is not None
    assert message.subject == b"s.a"
    assert b"Colour: red\r\n" in message.headers
    assert b"Rollup" not in message.headers
    assert message.headers.endswith(b"Dead-Letter-Replay: D 1 c\r\n\r\n")


@pytest.mark.parametrize(
    ("fields", "payloads"),
    [
        ({"consumer": "d"}, [b"m1", b"m2", b"m3"]),
        ({"consumer": "d", "subject": "s.b.>"}, [b"m2", b"m3"]),
        ({"reason": "term: b"}, [b"m1", b"m1"]),
        ({"seq": 5}, [b"m2", b"m3"]),
        ({"limit": 1}, [b"m1"]),
        ({"stream": "S", "seq": 6}, [b"m3"]),
        ({"stream": "T"}, []),
        ({"seq": (1 << 64) - 1}, []),
    ],
)
def test_only_some_letters_go_back(js: Dead, fields: dict[str, Any], payloads: list[bytes]) -> None:
    assert replay(js, **fields)["replayed"] == len(payloads)
    assert js.payloads("S")[3:] == payloads
    assert len(js.letters()) == 6 - len(payloads)


def test_a_replay_continues_where_it_ended(js: Dead) -> None:
    assert counts(js, limit=4, keep=True) == (4, 0, 0, 5)
    assert counts(js, limit=4, keep=True, seq=5) == (2, 0, 0, 0)
    assert len(js.letters()) == 6
    assert len(js.payloads("S")) == 9


def test_a_repeated_replay_stores_nothing_twice_within_the_window(js: Dead) -> None:
    replay(js, keep=True)
    assert counts(js) == (6, 0, 0, 0)
    assert len(js.payloads("S")) == 9
    assert js.letters() == []


def test_a_replayed_message_that_is_given_up_again_has_a_new_letter(js: Dead) -> None:
    replay(js, consumer="c", limit=1)
    (message,) = js.pull("c", batch=1)
    js.ack(message, b"+TERM again")
    assert js.letters()[-1] == ("$DLQ.S.c.4.s.a", b"m1")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"limit": 0}, "limit is 0: it is the maximum number of letters, 1 to 1000"),
        ({"limit": 1001}, "limit is 1001"),
        ({"limit": -(1 << 63)}, "limit is -9223372036854775808"),
        ({"subject": "a..b"}, "subject is no valid subject"),
    ],
)
def test_wrong_requests_are_refused(js: Dead, fields: dict[str, Any], text: str) -> None:
    error = replay(js, **fields)["error"]
    assert (error["code"], error["err_code"]) == (400, 20006)
    assert text in error["description"]
    assert len(js.letters()) == 6


def test_what_is_no_request_is_refused(js: Dead) -> None:
    assert replay(js, b'{"limits": 1}')["error"]["err_code"] == 10025
    assert replay(js, b'{"seq": 18446744073709551616}')["error"]["err_code"] == 10025
    assert replay(js, b"{")["error"]["err_code"] == 10025
    answer = json.loads(js.ask("$JS.API.PYJS.DEAD_LETTERS.REPLAY.NONE").payload)
    assert answer["error"]["err_code"] == 10059


def test_letters_that_cannot_be_removed_must_be_kept(js: Dead) -> None:
    js.reconfigure("D", deny_delete=True)
    assert '"keep": true' in replay(js)["error"]["description"]
    assert counts(js, keep=True) == (6, 0, 0, 0)


def test_letters_stay_if_their_stream_refuses_them(js: Dead) -> None:
    js.reconfigure("S", max_msgs=4, discard="new")
    answer = replay(js)
    assert (answer["replayed"], answer["failed"]) == (1, 5)
    assert answer["errors"][0] == {"seq": 2, "error": "maximum messages exceeded"}
    assert len(js.letters()) == 5


def test_letters_stay_if_their_stream_is_gone_or_listens_no_more(js: Dead) -> None:
    js.reconfigure("S", subjects=["t"])
    answer = replay(js, limit=1)
    assert answer["errors"] == [{"seq": 1, "error": 'the stream "S" does not listen to "s.a"'}]
    js.api("STREAM.DELETE.S")
    assert replay(js, limit=1)["errors"] == [{"seq": 1, "error": 'the stream "S" does not exist'}]
    assert len(js.letters()) == 6


def test_a_replay_ends_when_nobody_answers(js: Dead) -> None:
    js.engine.account.unsubscribe(js.engine.subscriptions["S"]["s.>"])  # as without a leader
    js.user.send(b"SUB out 9\r\nPUB $JS.API.PYJS.DEAD_LETTERS.REPLAY.D out 0\r\n\r\n")
    js.advance(seconds=6)
    (answer,) = [json.loads(payload) for payload in js.user.payloads()]
    assert answer["failed"] == 6
    assert answer["errors"][0]["error"] == "no answer within 5 seconds"
    assert len(js.letters()) == 6


def test_a_replay_ends_when_nobody_answers_any_more() -> None:
    # given: a batch of letters whose subject has a stream, and more than a batch of others
    js = Dead(retention="limits")
    js.consumer(max_deliver=1, ack_wait=NS)
    js.reconfigure("S", subjects=["s.a", "s.b"])
    js.fill(BATCH)
    js.fill(2 * BATCH, "s.b")
    js.pull(batch=3 * BATCH)
    js.advance(milliseconds=1100)
    js.engine.account.unsubscribe(js.engine.subscriptions["S"]["s.b"])
    # when
    js.user.send(
        b"SUB out 9\r\nPUB $JS.API.PYJS.DEAD_LETTERS.REPLAY.D out 14\r\n" + b'{"limit":1000}' + b"\r\n"
    )
    js.advance(seconds=6)
    # then
    (answer,) = [json.loads(payload) for payload in js.user.payloads()]
    assert (answer["replayed"], answer["failed"], answer["next_seq"]) == (BATCH, BATCH, 2 * BATCH + 1)


@pytest.mark.parametrize(
    ("stream", "subject", "outcome"),
    [
        ("S", "$JS.API.STREAM.DELETE.S", "failed"),
        ("S", "t", "failed"),
        ("", "s.a", "skipped"),
        ("S", "s.>", "skipped"),
        ("\u20ac", "s.a", "failed"),
    ],
)
def test_forged_letters_reach_only_subjects_of_their_stream(
    js: Dead, stream: str, subject: str, outcome: str
) -> None:
    js.publish("$DLQ.S.x", b"forged", Dead_Letter_Stream=stream, Dead_Letter_Subject=subject)
    assert replay(js, seq=7)[outcome] == 1
    assert "S" in js.engine.streams
    assert len(js.letters()) == 7


def test_a_stream_without_letters_is_read_in_steps() -> None:
    js = Dead()
    js.edit(**{STREAM_KEY: ""})
    for number in range(300):
        js.publish(f"$DLQ.S.{number}")
    assert counts(js) == (0, 0, 300, 0)


def test_long_headers_are_read_in_steps_of_their_own() -> None:
    js = Dead()
    js.edit(**{STREAM_KEY: ""})
    for number in range(3):
        js.publish(f"$DLQ.S.{number}", Large="x" * 60_000)
    steps = Replay(js.engine, js.stream("D"), Wanted(1, 10)).steps()
    assert list(steps) == [None] * 3


def test_many_subjects_of_the_stream_are_compared_in_steps(js: Dead) -> None:
    js.reconfigure("S", subjects=[f"many.{number}" for number in range(20_000)])
    letter = {"Dead_Letter_Stream": "S", "Dead_Letter_Subject": "s.a"}
    js.publish("$DLQ.S.x", b"forged", **letter)
    steps = Replay(js.engine, js.stream("D"), Wanted(7, 10)).steps()
    assert sum(step is None for step in steps) == 4


def test_many_letters_go_back_in_batches() -> None:
    js = Dead(retention="workqueue")
    js.consumer(max_deliver=1, ack_wait=NS)
    js.fill(150)
    js.pull(batch=150)
    js.advance(milliseconds=1100)
    assert counts(js, limit=1000) == (150, 0, 0, 0)
    assert js.payloads("S") == [b"m%d" % number for number in range(1, 151)]


def test_a_replay_examines_a_bounded_number_of_messages_and_can_be_continued(
    js: Dead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyjs.jetstream.dead_letters.replay.EXAMINED_MAX", 4)
    answer = replay(js, consumer="nobody")
    assert (answer["replayed"], answer["next_seq"]) == (0, 5)
    assert replay(js, consumer="nobody", seq=5)["next_seq"] == 0

"""Advisories on a virtual clock: their contents, and that none is sent without a listener."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.jetstream.consumerfixture import ConsumerFixture
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.config.options import JetStreamOptions, Options
from pyjs.jetstream import advisories


def listen(fixture: JetStreamFixture, subject: str) -> Any:
    """Return a client that subscribes to `subject`."""
    client = fixture.client()
    client.send(f"SUB {subject} 1\r\n".encode())
    client.take()
    return client


def events(client: Any) -> list[dict[str, Any]]:
    """Return the events that `client` received."""
    return [json.loads(frame.payload) for frame in client.frames()]


def test_a_stream_tells_when_it_comes_changes_and_goes() -> None:
    js = JetStreamFixture()
    told = listen(js, "$JS.EVENT.ADVISORY.STREAM.>")
    js.add("S")
    js.add("S")  # this stream exists already
    js.api("STREAM.UPDATE.S", {"name": "S", "storage": "memory", "max_msgs": 5})
    js.api("STREAM.DELETE.S")
    found = events(told)
    assert [(event["stream"], event["action"]) for event in found] == [
        ("S", "create"),
        ("S", "modify"),
        ("S", "delete"),
    ]
    assert list(found[0]) == ["type", "id", "timestamp", "stream", "action"]
    assert len({event["id"] for event in found}) == 3


def test_a_deleted_stream_tells_of_its_consumers_first() -> None:
    js = ConsumerFixture()
    js.consumer()
    told = listen(js, "$JS.EVENT.ADVISORY.*.DELETED.>")
    js.api("STREAM.DELETE.S")
    assert [event.get("consumer") for event in events(told)] == ["c", None]


def test_a_refused_change_of_a_stream_tells_nothing() -> None:
    js = JetStreamFixture()
    js.add("S")
    told = listen(js, "$JS.EVENT.ADVISORY.STREAM.>")
    assert "error" in js.api("STREAM.UPDATE.S", {"name": "S", "storage": "file"})
    assert "error" in js.api("STREAM.DELETE.T")
    assert events(told) == []


def test_without_interest_no_event_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an event nobody wants")

    monkeypatch.setattr(advisories, "publish", refuse)
    js = ConsumerFixture()
    js.consumer(sample_freq="100")
    js.fill(1)
    for verb in (b"-NAK", b"+ACK"):
        js.ack(js.pull()[0], verb)
    js.api("STREAM.DELETE.S")


def test_an_audit_holds_question_answer_and_who_asked() -> None:
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, domain="hub")))
    told = listen(js, "$JS.EVENT.ADVISORY.API")
    answer = js.ask("$JS.hub.API.STREAM.NAMES", b'{"offset":0}')
    (event,) = events(told)
    assert list(event) == [
        *("type", "id", "timestamp", "server", "client", "subject", "request", "response", "domain")
    ]
    assert event["subject"] == "$JS.API.STREAM.NAMES"
    assert (event["request"], event["response"]) == ('{"offset":0}', answer.payload.decode())
    assert event["client"]["acc"] == "$G"
    assert "user" not in event["client"]


def test_an_api_call_without_reply_is_carried_out_and_told() -> None:
    js = JetStreamFixture()
    told = listen(js, "$JS.EVENT.ADVISORY.API")
    js.user.send(b'PUB $JS.API.STREAM.CREATE.S 12\r\n{"name":"S"}\r\n')
    (event,) = events(told)
    assert "did_create" in json.loads(event["response"])


def test_a_found_message_is_not_told() -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"])
    js.publish("s")
    told = listen(js, "$JS.EVENT.ADVISORY.API")
    assert "message" in js.api("STREAM.MSG.GET.S", {"seq": 1})
    assert "error" in js.api("STREAM.MSG.GET.S", {"seq": 2})
    assert len(events(told)) == 1


def test_a_consumer_made_or_changed_while_paused_tells_so() -> None:
    js = ConsumerFixture()
    told = listen(js, "$JS.EVENT.ADVISORY.CONSUMER.>")
    until = "2120-01-01T00:00:00Z"
    js.consumer(pause_until=until)
    js.consumer(description="x")
    js.api("CONSUMER.PAUSE.S.c")
    found = events(told)
    assert [event.get("action") for event in found] == ["create", None, None, None]
    assert [(event["paused"], event["pause_until"]) for event in found[1:]] == [
        (True, until),
        (True, until),
        (False, "0001-01-01T00:00:00Z"),
    ]

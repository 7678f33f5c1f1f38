"""Streams and consumers that a newer server stored: listed as offline, not served, their files unchanged.

The texts and codes are from nats-server's jetstream.go and jetstream_api.go: it cannot be made to store a higher
level.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.config import declared
from pyjs.jetstream.config.level import META_REQUIRED_LEVEL
from pyjs.jetstream.config.offline import offline_stream

REASON = "unsupported - required API level: 6, current API level: 5"


def newer(js: JetStreamFixture, name: str) -> None:
    """Store the configuration of a stream in the form of a server of API level 6."""
    stream = js.stream(name)
    stream.config.metadata = {**stream.config.metadata, META_REQUIRED_LEVEL: "6"}
    js.engine.files.save(stream.config, stream.created_ns, stream.store)


@pytest.fixture
def js() -> JetStreamFixture:
    """Return a server with the offline stream N and the stream S."""
    before = JetStreamFixture()
    for name in ("N", "S"):
        before.add(name, subjects=[f"{name.lower()}.>"], storage="file")
        before.publish(f"{name.lower()}.1", b"kept")
    newer(before, "N")
    return before.restart()


def test_an_offline_stream_is_listed_with_its_reason(js: JetStreamFixture) -> None:
    listed = js.api("STREAM.LIST")
    assert [each["config"]["name"] for each in listed["streams"]] == ["S"]
    assert (listed["total"], listed["missing"], listed["offline"]) == (2, ["N"], {"N": REASON})
    assert js.api("STREAM.NAMES")["streams"] == ["N", "S"]
    assert js.api("STREAM.NAMES", {"subject": "n.1"})["streams"] == ["N"]
    assert "offline" not in js.api("STREAM.LIST", {"subject": "s.1"})


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("STREAM.INFO.N", {}),
        ("STREAM.UPDATE.N", {"name": "N", "subjects": ["n.>"]}),
        ("STREAM.PURGE.N", {}),
        ("STREAM.MSG.GET.N", {"seq": 1}),
        ("STREAM.MSG.DELETE.N", {"seq": 1}),
        ("CONSUMER.CREATE.N.c", {"stream_name": "N", "config": {"durable_name": "c"}}),
        ("CONSUMER.LIST.N", {}),
        ("CONSUMER.INFO.N.c", {}),
    ],
)
def test_requests_to_an_offline_stream_are_told_why(js: JetStreamFixture, endpoint: str, body: Any) -> None:
    assert js.error(endpoint, body or b"") == (500, 10194, f"stream is offline: {REASON}")


def test_its_name_and_subjects_are_taken(js: JetStreamFixture) -> None:
    assert js.error("STREAM.CREATE.N", {"name": "N", "subjects": ["n.>"]})[1] == 10058
    assert js.error("STREAM.CREATE.X", {"name": "X", "subjects": ["n.1"]})[1] == 10065


def test_it_is_there_again_for_a_server_that_knows_its_level(js: JetStreamFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr("pyjs.jetstream.config.level.API_LEVEL", 6)
    again = js.restart()
    assert again.payloads("N") == [b"kept"]


def test_it_can_be_deleted(js: JetStreamFixture) -> None:
    assert js.api("STREAM.DELETE.N")["success"] is True
    assert "offline" not in js.api("STREAM.LIST")
    js.add("N", subjects=["n.>"], storage="file")
    again = js.restart()
    assert again.payloads("N") == []


def test_a_consumer_of_a_higher_level_stops_its_stream(monkeypatch: Any) -> None:
    js = JetStreamFixture()
    js.add("S", subjects=["s"], storage="file")
    js.publish("s", b"kept")
    paused = {"pause_until": "2099-01-01T00:00:00Z"}  # requires API level 1
    for name, more in (("c", paused), ("d", {})):
        config = {"durable_name": name, "ack_policy": "explicit", **more}
        js.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
    monkeypatch.setattr("pyjs.jetstream.config.level.API_LEVEL", 0)

    again = js.restart()

    assert again.api("STREAM.LIST")["offline"] == {"S": 'stopped - unsupported consumer "c"'}
    assert again.error("CONSUMER.INFO.S.c") == (
        500,
        10195,
        "consumer is offline: unsupported - required API level: 1, current API level: 0",
    )
    assert again.error("CONSUMER.INFO.S.d")[1] == 10194
    monkeypatch.undo()
    once_more = again.restart()
    assert once_more.payloads("S") == [b"kept"]
    assert once_more.api("CONSUMER.NAMES.S")["consumers"] == ["c", "d"]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, ""),
        ({"speed": 7}, 'decoding error: json: unknown field "speed"'),
        (
            {"speed": 7, "metadata": {META_REQUIRED_LEVEL: "6"}},
            'unsupported - config error: unknown field "speed"',
        ),
        (
            {"metadata": {META_REQUIRED_LEVEL: "x"}},
            "unsupported - required API level: x, current API level: 5",
        ),
        ({"metadata": {META_REQUIRED_LEVEL: "5"}}, ""),
    ],
)
def test_unknown_options_take_a_stream_offline_too(more: dict[str, Any], reason: str) -> None:
    js = JetStreamFixture()
    js.add("S")
    values = declared.to_meta(js.stream("S").config) | more
    found = offline_stream(values)
    assert ("" if found is None else found.reason) == reason

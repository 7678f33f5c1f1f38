"""Streams that refuse publishes, each with the reason that the API gives."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture
from tests.unit.jetstream.test_durability import FullDisk

from pyjs.config.options import AccountJetStreamOptions, AccountOptions, JetStreamOptions, Options


def why(js: JetStreamFixture, name: str = "S") -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(js.ask(f"$JS.API.PYJS.WHY.{name}").payload)
    return answer


def first(js: JetStreamFixture, name: str = "S") -> dict[str, Any]:
    """Return the most important reason why a stream refuses publishes."""
    report = why(js, name)
    assert report["accepts"] is False, report
    reason: dict[str, Any] = report["reasons"][0]
    return reason


@pytest.fixture
def js() -> JetStreamFixture:
    return JetStreamFixture()


def test_a_stream_that_takes_publishes_has_no_reason(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_msgs=1)
    js.publish("s")

    assert why(js)["accepts"] is True
    assert why(js)["reasons"] == []


def test_a_sealed_stream(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"])
    js.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", "sealed": True})

    assert first(js)["kind"] == "sealed"


def test_a_mirror(js: JetStreamFixture) -> None:
    js.add("O", subjects=["o"])
    js.add("S", mirror={"name": "O"})

    assert (first(js)["kind"], first(js)["mirror"]) == ("mirror", "O")


def test_a_stream_that_only_has_sources(js: JetStreamFixture) -> None:
    js.add("O", subjects=["o"])
    js.add("S", sources=[{"name": "O"}])

    assert first(js)["kind"] == "no_subjects"


def test_as_many_messages_as_allowed(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_msgs=2, discard="new")
    js.publish("s")
    assert why(js)["accepts"] is True
    js.publish("s")

    assert (first(js)["kind"], first(js)["messages"], first(js)["max_msgs"]) == ("max_msgs", 2, 2)
    assert js.refused("s")[1] == 10077


def test_as_many_bytes_as_allowed(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], max_bytes=300, discard="new")
    js.publish("s", b"x" * 200)
    (reason,) = why(js)["reasons"]
    assert (reason["kind"], reason["stops"]) == ("max_bytes", False)  # a smaller message is still accepted
    assert "no room for a message of the usual size" in reason["text"]
    assert js.refused("s", b"x" * 200)[1] == 10077
    used = js.state("S")["bytes"]
    fields = {"name": "S", "subjects": ["s"], "storage": "memory", "discard": "new", "max_bytes": used + 1}
    js.api("STREAM.UPDATE.S", fields)

    assert first(js)["kind"] == "max_bytes"
    assert js.refused("s", b"")[1] == 10077


def test_a_message_that_replaces_another_is_still_accepted(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s.*"], max_msgs=1, max_msgs_per_subject=1, discard="new")
    js.publish("s.1")

    assert [(each["kind"], each["stops"]) for each in why(js)["reasons"]] == [("max_msgs", False)]
    assert "error" not in js.publish("s.1")
    assert js.refused("s.2")[1] == 10077


def test_a_stream_that_keeps_what_consumers_want_and_has_none(js: JetStreamFixture) -> None:
    js.add("S", subjects=["s"], retention="interest")

    assert [(each["kind"], each["stops"]) for each in why(js)["reasons"]] == [("no_consumers", False)]


def test_a_mirror_of_a_stream_that_does_not_exist(js: JetStreamFixture) -> None:
    js.add("S", mirror={"name": "NONE"})

    kinds = [each["kind"] for each in why(js)["reasons"]]
    assert kinds == ["mirror", "origin_unheard"]
    assert 'The origin "NONE" was not heard' in why(js)["reasons"][1]["text"]


def test_the_storage_of_the_server_is_used_up() -> None:
    js = JetStreamFixture(Options(jetstream=JetStreamOptions(enabled=True, max_memory=1000)))
    js.add("S", subjects=["s"])
    js.publish("s", b"x" * 2000)

    assert first(js)["kind"] == "server_limit"
    assert not any(
        digit in first(js)["text"] for digit in "0123456789"
    )  # the figures are totals over all accounts
    assert js.refused("s")[1] == 10023


def test_the_storage_of_the_account_is_used_up() -> None:
    accounts = {"$G": AccountOptions(jetstream=AccountJetStreamOptions(max_memory=1000))}
    js = JetStreamFixture(Options(accounts=accounts))
    js.add("S", subjects=["s"])
    js.publish("s", b"x" * 600)

    (reason,) = why(js)["reasons"]
    assert (reason["kind"], reason["stops"]) == ("account_limit", False)
    assert js.refused("s", b"x" * 600)[1] == 10002


def test_the_disk_is_full() -> None:
    disk = FullDisk()
    js = JetStreamFixture(disk=disk)
    js.add("S", subjects=["s"], storage="file")
    disk.full = True
    js.refused("s")

    reason = first(js)
    assert (reason["kind"], reason["resumes"]) == ("store_failed", True)
    assert reason["text"].startswith("Its store cannot write: no space left on device")

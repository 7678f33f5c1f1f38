"""Unexpected exceptions: they affect only their stream or consumer, which is reopened from its files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.unit.jetstream.jsfixture import API, JetStreamFixture

from pyjs.jetstream.api import direct, router
from pyjs.jetstream.api.endpoint import ApiCall
from pyjs.jetstream.consumer import consumer as consumer_module
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.stream.stream_consumer import StreamInbox
from pyjs.testing import CONNECT

FILTERED = {"ack_policy": "explicit", "durable_name": "c"}


class Failing:
    """Replaces a stream's call after a commit, and fails."""

    def committed(self) -> None:
        raise ZeroDivisionError("in a commit")


def fail(*_: object) -> None:
    raise ZeroDivisionError("on purpose")


class FailingInbox(StreamInbox):
    """Fails in the middle of a pump when a consumer has caught up."""

    caught_up = fail


@pytest.fixture
def js() -> JetStreamFixture:
    fixture = JetStreamFixture()
    for name in ("S", "T"):
        fixture.add(name, subjects=[f"{name}.*"], storage="file", allow_direct=True)
    return fixture


def add_consumer(js: JetStreamFixture, stream: str, **config: Any) -> Consumer:
    js.api(f"CONSUMER.DURABLE.CREATE.{stream}.c", {"stream_name": stream, "config": {**FILTERED, **config}})
    return cast(Consumer, js.stream(stream).consumers["c"])


def pulled(js: JetStreamFixture, stream: str) -> bytes:
    return js.ask(f"{API}CONSUMER.MSG.NEXT.{stream}.c", b'{"batch":1,"no_wait":true}').payload


def test_a_commit_that_fails_stays_with_its_stream(js: JetStreamFixture) -> None:
    failing = js.stream("S")
    failing.inflow = cast(Any, Failing())

    js.user.send(b"PUB S.1 1\r\na\r\nPUB T.1 1\r\nb\r\n")

    assert js.payloads("T") == [b"b"]
    assert js.node.faults.counts == {"commit": 1}
    assert [
        text for level, text in js.log.lines if level == "ERR" and "ZeroDivisionError: in a commit" in text
    ]


def test_a_stream_whose_commit_failed_begins_again_with_its_files(js: JetStreamFixture) -> None:
    js.publish("S.1", b"before")
    failing = js.stream("S")
    failing.inflow = cast(Any, Failing())
    js.user.send(b"PUB S.1 6\r\nduring\r\n")

    assert js.stream("S") is not failing
    assert js.payloads("S") == [b"before", b"during"]
    assert js.publish("S.1", b"after")["seq"] == 3
    assert js.node.faults.counts == {"commit": 1}
    assert js.ask(API + "DIRECT.GET.S", {"seq": 1}).payload == b"before"


def test_requests_for_a_stream_wait_until_it_is_open_again(js: JetStreamFixture) -> None:
    js.publish("S.1", b"1")
    js.stream("S").inflow = cast(Any, Failing())
    js.user.send(b"SUB _I.> 1\r\n")
    js.user.take()

    js.user.session.receive_data(b"PUB S.1 1\r\n2\r\nPUB $JS.API.STREAM.INFO.S _I.a 0\r\n\r\n")
    js.node.turn(js.clock.now_ns())
    js.turn()

    (answer,) = js.user.frames()
    assert json.loads(answer.payload).get("state", {}).get("messages", 2) == 2


def test_a_stream_that_fails_again_stays_closed_until_the_next_start(js: JetStreamFixture) -> None:
    js.publish("S.1", b"kept")
    for _ in range(2):
        js.stream("S").inflow = cast(Any, Failing())
        js.user.send(b"PUB S.1 1\r\nx\r\n")

    assert "S" not in js.engine.streams
    assert js.error("STREAM.CREATE.S", {"name": "S", "subjects": ["S.*"]})[1] == 10049
    assert js.error("STREAM.CREATE.O", {"name": "O", "subjects": ["S.>"]})[1] == 10065
    assert js.publish("T.1")["seq"] == 1
    again = js.restart()
    assert again.payloads("S") == [b"kept", b"x", b"x"]


def test_a_memory_stream_that_failed_is_gone(js: JetStreamFixture) -> None:
    js.add("M", subjects=["M.*"])
    js.stream("M").inflow = cast(Any, Failing())

    js.user.send(b"PUB M.1 1\r\nx\r\n")

    assert "M" not in js.engine.streams
    assert any("is deleted: its state is not to be trusted" in text for _, text in js.log.lines)
    js.add("M", subjects=["M.*"])
    assert js.publish("M.1")["seq"] == 1


def test_a_consumer_whose_pump_failed_begins_again_with_its_files(js: JetStreamFixture) -> None:
    js.user.send(b"PUB S.1 1\r\na\r\nPUB S.1 1\r\nb\r\nPUB S.1 1\r\nc\r\n")
    consumer = add_consumer(js, "S")
    assert pulled(js, "S") == b"a"
    FailingInbox(js.node.turn_state, None).join(consumer)
    js.user.send(b"SUB x 1\r\n")

    js.user.send(b'PUB $JS.API.CONSUMER.MSG.NEXT.S.c x 33\r\n{"batch":9,"expires":10000000000}\r\n')

    assert js.stream("S").consumers["c"] is not consumer
    assert js.node.faults.counts == {"delivery": 1}
    assert pulled(js, "S") == b"b"  # deliveries before the fault are not in the files, so they are repeated
    assert js.publish("T.1")["seq"] == 1


def test_a_consumer_without_files_that_failed_is_deleted(js: JetStreamFixture) -> None:
    consumer = add_consumer(js, "S", mem_storage=True)
    FailingInbox(js.node.turn_state, None).join(consumer)
    js.user.send(b"SUB x 1\r\n")
    js.user.take()

    js.user.send(b'PUB $JS.API.CONSUMER.MSG.NEXT.S.c x 33\r\n{"batch":9,"expires":10000000000}\r\n')

    assert not js.stream("S").consumers
    assert b"409 Consumer Deleted" in js.user.frames()[0].headers


def test_a_pull_that_fails_is_answered(js: JetStreamFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    add_consumer(js, "S")
    monkeypatch.setattr(consumer_module, "check_pull", fail)

    answer = js.ask(f"{API}CONSUMER.MSG.NEXT.S.c", b"1")

    assert answer.headers == b"NATS/1.0 500 Internal Server Error\r\n\r\n"
    monkeypatch.undo()
    js.publish("S.1", b"a")
    assert pulled(js, "S") == b"a"


def test_a_direct_get_that_fails_is_answered(js: JetStreamFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "decode", fail)

    answer = js.ask(API + "DIRECT.GET.S", {"seq": 1})

    assert answer.headers == b"NATS/1.0 500 Internal Server Error\r\n\r\n"
    assert js.node.faults.counts == {"request": 1}


def test_a_timer_that_fails_stays_with_its_owner(js: JetStreamFixture) -> None:
    fired: list[str] = []
    stream = js.stream("S")
    js.publish("S.1", b"kept")
    now_ns = js.clock.now_ns()
    js.node.timers.at(now_ns + 1, fail, stream)
    js.node.timers.at(now_ns + 2, lambda: fired.append("next"))

    js.advance(milliseconds=1)

    assert fired == ["next"]
    assert js.stream("S") is not stream
    assert js.payloads("S") == [b"kept"]
    assert js.node.faults.counts == {"timer": 1}


def test_a_request_that_fails_is_answered_and_its_stream_begins_again(
    js: JetStreamFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(call: ApiCall) -> Iterator[None]:
        yield
        raise ZeroDivisionError("halfway")

    endpoint = router.ENDPOINT_BY_WORDS["STREAM", "PURGE"]
    monkeypatch.setattr(endpoint, "handle", broken)
    stream = js.stream("S")

    answer = js.api("STREAM.PURGE.S")

    assert answer["error"] == {"code": 500, "err_code": 10051, "description": "internal error"}
    assert answer["purged"] == 0
    assert js.node.faults.counts == {"request": 1}
    assert js.stream("S") is not stream
    assert js.publish("S.1")["seq"] == 1


def test_a_report_that_fails_leaves_its_stream_alone(
    js: JetStreamFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router.ENDPOINT_BY_WORDS["STREAM", "INFO"], "handle", fail)
    stream = js.stream("S")

    assert js.error("STREAM.INFO.S") == (500, 10051, "internal error")
    assert js.stream("S") is stream


def test_a_session_whose_output_fails_is_closed_and_the_others_are_served(js: JetStreamFixture) -> None:
    bad, good = js.client(), js.client()
    for client in (bad, good):
        client.session.receive_data(b"SUB x 1\r\n")
    bad.link.write = fail  # type: ignore[method-assign]

    js.user.send(b"PUB x 2\r\nhi\r\n")

    assert good.payloads() == [b"hi"]
    assert bad.link.closed
    assert js.node.faults.counts["flush"] == 1
    assert js.client(CONNECT).info


def test_recovered_streams_keep_their_consumers(js: JetStreamFixture) -> None:
    js.user.send(b"PUB S.1 1\r\na\r\nPUB S.1 1\r\nb\r\n")
    add_consumer(js, "S")
    assert pulled(js, "S") == b"a"
    js.stream("S").inflow = cast(Any, Failing())
    js.user.send(b"PUB S.1 1\r\nc\r\n")

    assert pulled(js, "S") == b"b"
    assert pulled(js, "S") == b"c"

"""A start deletes the consumers with which another worker read the origin of a copy, and releases their messages."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.mirror.origin_consumers import prefix_of
from pyjs.jetstream.mirror.places import key_of


def with_consumer(kind: str, *, is_former: bool = True) -> JetStreamFixture:
    """Return a work queue with one message, its copy, and a pull consumer, which holds the message.

    The consumer has the name that another worker gives to a consumer of this copy, or another name.
    """
    js = JetStreamFixture()
    js.add("O", storage="file", subjects=["o.>"], retention="workqueue")
    place = {"name": "O"}
    more: dict[str, Any] = {"mirror": place} if kind == "mirror" else {"sources": [place]}
    js.add("C", storage="file", **more)
    stream = js.stream("C")
    source = stream.config.mirror or stream.config.sources[0]
    name = (prefix_of("C", stream.created_ns, key_of(source)) if is_former else "other-") + "x"
    config = {"name": name, "durable_name": name, "ack_policy": "explicit"}
    answer = js.api(f"CONSUMER.CREATE.O.{name}", {"stream_name": "O", "config": config})
    assert "error" not in answer, answer
    js.publish("o.a", b"1")
    js.turn()
    return js


@pytest.mark.parametrize("kind", ["mirror", "source"])
def test_a_start_deletes_the_consumer_of_another_worker_and_then_what_is_copied(kind: str) -> None:
    js = with_consumer(kind)
    assert (js.payloads("C"), js.payloads("O")) == ([b"1"], [b"1"])
    js = js.restart()
    js.advance(seconds=2)
    assert js.state("O")["consumer_count"] == 0
    assert (js.payloads("C"), js.payloads("O")) == ([b"1"], [])


@pytest.mark.parametrize("kind", ["mirror", "source"])
def test_a_start_leaves_a_consumer_of_somebody_else(kind: str) -> None:
    js = with_consumer(kind, is_former=False).restart()
    js.advance(seconds=5)
    assert js.state("O")["consumer_count"] == 1
    assert (js.payloads("C"), js.payloads("O")) == ([b"1"], [b"1"])


def test_nothing_more_is_asked_of_an_origin_that_was_deleted() -> None:
    js = with_consumer("source").restart()
    js.api("STREAM.DELETE.O")
    js.advance(seconds=5)
    assert js.payloads("C") == [b"1"]
    assert js.error("STREAM.INFO.O")[0] == 404

"""A node that was stopped leaves nothing behind in a process that continues."""

from __future__ import annotations

import gc

from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.base.file_map import open_maps
from pyjs.jetstream.consumer.consumer import Consumer
from pyjs.jetstream.stream.stream import Stream
from pyjs.node import Node

KINDS = (Node, Stream, Consumer)


def alive() -> tuple[list[str], int]:
    gc.collect()
    return sorted(type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS)), open_maps()


def used_node() -> None:
    """Publish and consume so that routes are cached, restart so that files are mapped, and stop the node."""
    js = JetStreamFixture()
    js.add("S", subjects=["s.>"], storage="file", retention="interest")
    js.api("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c", "ack_policy": "explicit"}})
    js.publish("s.a", b"x", Nats_Msg_Id="one")
    again = js.restart()
    again.publish("s.a", b"x")
    frame = again.ask(
        "$JS.API.STREAM.MSG.GET.S",
        {"seq": 1},
    )
    assert b'"seq":1' in frame.payload
    again.node.stop()


def test_a_stopped_node_leaves_no_object_and_no_file_behind() -> None:
    before = alive()
    used_node()
    assert alive() == before

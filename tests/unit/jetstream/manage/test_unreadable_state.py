"""Consumers whose stored state cannot be read, when their stream becomes a replicated one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import pytest
from tests.unit.jetstream.jsfixture import JetStreamFixture

from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.manage.persist import StoredConsumer
from pyjs.jetstream.manage.replicated_consumers import stored_state

if TYPE_CHECKING:
    from pyjs.jetstream.consumer.resources import Resources


@pytest.mark.parametrize(("opt_start_seq", "next_seq"), [(0, 3), (2, 3), (5, 5)])
def test_such_a_consumer_begins_where_it_was_created_to_begin(opt_start_seq: int, next_seq: int) -> None:
    js = JetStreamFixture()
    js.ask("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "storage": "memory", "max_msgs": 4})
    for _ in range(6):
        js.ask("s")
    config = ConsumerConfig(opt_start_seq=opt_start_seq)
    unreadable = StoredConsumer("C", config, 1, None, (), ("damaged",), None)

    state = stored_state(js.stream("S"), unreadable, cast("Resources", None))

    assert json.loads(state)["next_seq"] == next_seq

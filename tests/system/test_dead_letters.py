"""Dead letters as a client sees them: set up, read and replayed, across a restart, and with nats-py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import nats
from nats.js.api import ConsumerConfig, RetentionPolicy
from tests.conformance.harness.process import ServerProcess

StartServer = Callable[..., ServerProcess]
METADATA = {"_pyjs.dead_letter_stream": "DEAD", "team": "bread"}


async def test_a_client_sets_up_reads_and_replays_dead_letters(start_server: StartServer) -> None:
    # given
    server = start_server()
    client = await nats.connect(f"nats://127.0.0.1:{server.port}", allow_reconnect=False)
    js = client.jetstream()
    await js.add_stream(name="DEAD", subjects=["$DLQ.ORDERS.>"])
    await js.add_stream(name="ORDERS", subjects=["orders.>"], retention=RetentionPolicy.WORK_QUEUE)
    config = (await js.stream_info("ORDERS")).config
    config.metadata = {**(config.metadata or {}), **METADATA}
    await js.update_stream(config)
    for number in range(3):
        await js.publish(f"orders.{number}", b"%d" % number, headers={"Colour": "red"})
    settings = ConsumerConfig(max_deliver=2, ack_wait=60)
    bakery = await js.pull_subscribe("orders.>", durable="bakery", config=settings)
    # when
    first, second, third = await bakery.fetch(3)
    await first.ack_sync()
    await second.term()
    await third.nak()
    (again,) = await bakery.fetch(1)
    await again.nak()
    await client.publish(
        "$JS.API.CONSUMER.MSG.NEXT.ORDERS.bakery", b'{"expires": 1000000000}', reply="nowhere"
    )
    letters = await js.pull_subscribe("$DLQ.ORDERS.bakery.>", durable="reader")
    found = [*await letters.fetch(1, timeout=10), *await letters.fetch(1, timeout=10)]
    # then
    assert [letter.subject for letter in found] == [
        "$DLQ.ORDERS.bakery.2.orders.1",
        "$DLQ.ORDERS.bakery.3.orders.2",
    ]
    heads = [letter.headers or {} for letter in found]
    assert [head["Dead-Letter-Reason"] for head in heads] == ["term", "max_deliver"]
    assert {head["Colour"] for head in heads} == {"red"}
    assert (await js.stream_info("ORDERS")).state.messages == 0
    await client.close()

    # when: the server starts again, and the letters go back
    server.stop()
    server.start()
    client = await nats.connect(f"nats://127.0.0.1:{server.port}", allow_reconnect=False)
    js = client.jetstream()
    metadata = (await js.stream_info("ORDERS")).config.metadata or {}
    assert {key: metadata[key] for key in METADATA} == METADATA
    answer = await client.request("$JS.API.PYJS.DEAD_LETTERS.REPLAY.DEAD", b"{}", timeout=10)
    report: dict[str, Any] = json.loads(answer.data)
    # then
    assert (report["replayed"], report["failed"], report["next_seq"]) == (2, 0, 0)
    bakery = await js.pull_subscribe("orders.>", durable="bakery", config=settings)
    assert [message.data for message in await bakery.fetch(2)] == [b"1", b"2"]
    assert (await js.stream_info("DEAD")).state.messages == 0
    await client.close()

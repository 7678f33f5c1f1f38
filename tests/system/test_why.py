"""A stuck consumer, asked about by a client and on the monitoring port."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import nats
from nats.js.api import ConsumerConfig
from tests.conformance.harness.process import ServerProcess

StartServer = Callable[..., ServerProcess]


async def test_a_client_that_does_not_acknowledge_is_named(start_server: StartServer) -> None:
    server = start_server()
    client = await nats.connect(f"nats://127.0.0.1:{server.port}", name="shop", allow_reconnect=False)
    js = client.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for number in range(5):
        await js.publish(f"orders.{number}", b"x")
    config = ConsumerConfig(max_ack_pending=2, ack_wait=60)
    subscription = await js.pull_subscribe("orders.>", durable="C", config=config)
    assert len(await subscription.fetch(2)) == 2
    inbox = client.new_inbox()
    await client.subscribe(inbox)
    wanted = b'{"batch": 1, "expires": 50000000000}'
    await client.publish("$JS.API.CONSUMER.MSG.NEXT.ORDERS.C", wanted, reply=inbox)

    answer = await client.request("$JS.API.PYJS.WHY.ORDERS.C", b"", timeout=5)
    report: dict[str, Any] = json.loads(answer.data)
    assert report["delivers"] is False
    (reason,) = report["reasons"]
    assert (reason["kind"], reason["ack_pending"]) == ("max_ack_pending", 2)
    assert [each["name"] for each in reason["holders"]] == ["shop"]
    assert 'Clients that receive now: "shop"' in reason["text"]
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/whyz", timeout=5) as page:
        (row,) = json.load(page)["streams"]
    assert row["silent_consumers"] == [{"consumer": "C", "kind": "max_ack_pending", "text": reason["text"]}]
    await client.close()

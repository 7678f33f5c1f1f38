"""The reasons for a stuck consumer, requested by a client and on the monitoring port."""

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


ACCOUNTS = """
accounts {
  B { jetstream: enabled, users: [{user: b, password: b}], exports: [{service: "$JS.API.PYJS.WHY.>"}] }
  C {
    users: [{user: c, password: c}]
    imports: [{service: {account: B, subject: "$JS.API.PYJS.WHY.>"}, to: "WHY.>"}]
  }
}
no_auth_user: b
"""


async def test_another_account_learns_nothing_of_the_clients(start_server: StartServer) -> None:
    server = start_server(ACCOUNTS)
    url = f"nats://127.0.0.1:{server.port}"
    owner = await nats.connect(url, name="secret", allow_reconnect=False)
    js = owner.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    await js.publish("s", b"x")
    await js.publish("s", b"x")
    subscription = await js.pull_subscribe(
        "s", durable="C", config=ConsumerConfig(max_ack_pending=1, ack_wait=60)
    )
    assert len(await subscription.fetch(1)) == 1
    inbox = owner.new_inbox()
    await owner.subscribe(inbox)
    await owner.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch": 1, "expires": 50000000000}', reply=inbox)
    await owner.flush()
    stranger = await nats.connect(url, user="c", password="c", allow_reconnect=False)

    answer = await stranger.request("WHY.S.C", b"", timeout=5)
    report: dict[str, Any] = json.loads(answer.data)
    assert report["reasons"][0]["kind"] == "max_ack_pending"
    assert report["reasons"][0]["text"].endswith("Clients that receive now: not shown to other accounts.")
    assert "account" not in report
    assert "holders" not in report["reasons"][0]
    await owner.close()
    await stranger.close()

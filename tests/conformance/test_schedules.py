"""Repeating schedules: the times that each server writes into the published messages, with the real clock."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harness.both import needs_peer, of_both
from tests.conformance.harness.process import ServerProcess
from tests.support.raw import RawClient

from pyjs.jetstream.stream.features.headers import value_of

pytestmark = needs_peer
CONFIG = 'jetstream { store_dir: "<<store>>" }'
STREAM = {
    "name": "S",
    "subjects": ["s.>"],
    "allow_msg_schedules": True,
    "republish": {"src": "s.to.>", "dest": "r.>"},
}
LATE = timedelta(seconds=0.6)  # nats-server checks schedules four times per second


def block(*lines: str) -> bytes:
    return "".join(line + "\r\n" for line in ("NATS/1.0", *lines)).encode() + b"\r\n"


def ask(client: RawClient, subject: str, headers: bytes, payload: bytes) -> Any:
    inbox = client.inbox + b".ask"
    size = len(headers) + len(payload)
    client.send(
        b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject.encode(), inbox, len(headers), size, headers, payload)
    )
    return next(json.loads(body) for at, _, _, body in client.frames() if at == inbox)


def started(server: ServerProcess) -> RawClient:
    client = RawClient(server.port)
    ask(client, "$JS.API.STREAM.CREATE.S", block(), json.dumps(STREAM).encode())
    client.send(b"SUB r.> 9\r\n")
    return client


def products(client: RawClient, count: int) -> list[tuple[datetime, datetime]]:
    """Return for each of the next products when it was stored, and its announced time of the next one."""
    found = []
    for subject, _, headers, _ in client.frames():
        if subject.startswith(b"r."):
            stored = datetime.fromisoformat(value_of(headers, b"Nats-Time-Stamp").decode())
            found.append((stored, datetime.fromisoformat(value_of(headers, b"Nats-Schedule-Next").decode())))
            if len(found) == count:
                break
    return found


def apart(found: list[tuple[datetime, datetime]]) -> list[timedelta]:
    """Return the intervals between announced firings; each product must come soon after its announced time."""
    for (_, announced), (stored, _) in itertools.pairwise(found):
        assert announced <= stored < announced + LATE
    return [after[1] - before[1] for before, after in itertools.pairwise(found)]


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (("Nats-Schedule: @every 1s",), 1),
        (("Nats-Schedule: * * * * * *",), 1),
        (("Nats-Schedule: */2 * * * * *", "Nats-Schedule-Time-Zone: Asia/Kolkata"), 2),
    ],
)
def test_products_tell_the_time_of_the_next_one(tmp_path: Path, lines: tuple[str, ...], seconds: int) -> None:
    def look(server: ServerProcess) -> Any:
        client = started(server)
        ack = ask(client, "s.at", block(*lines, "Nats-Schedule-Target: s.to.1"), b"tick")
        found = products(client, 3)
        return ack, apart(found), [announced.utcoffset() for _, announced in found]

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer
    assert ours[1] == [timedelta(seconds=seconds)] * 2


def test_a_kill_does_not_stop_a_schedule(tmp_path: Path) -> None:
    def look(server: ServerProcess) -> Any:
        client = started(server)
        ask(client, "s.at", block("Nats-Schedule: @every 1s", "Nats-Schedule-Target: s.to.1"), b"tick")
        products(client, 1)
        server.kill()
        server.start()
        client = RawClient(server.port)
        client.send(b"SUB r.> 9\r\n")
        return apart(products(client, 3))

    peer, ours = of_both(tmp_path, CONFIG, look)
    assert ours == peer == [timedelta(seconds=1)] * 2

"""Atomic batches and kill -9 at any time of their publishing and commit: each is stored as a whole or not at all.

Batches of 2 to 400 messages are sent in sequence without waiting, and some have many megabytes; so a kill may come
while messages arrive, while commits wait, or while they are written. Each message names its batch and the number of
its messages.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess
from tests.crash.servers import Speaker, framed, make_server, read_messages, rng_of

CYCLES = 200
BATCHES = 12  # the number of batches between two kills
LARGE_SIZE, SMALL_SIZE = 60_000, 40  # payload sizes in bytes
MOMENT_S = 0.05  # the longest delay between the last awaited answer and the kill
PURGE_EVERY = 10  # number of cycles between purges


def batch_bytes(name: str, count: int, size: int, inbox: bytes) -> bytes:
    """Return the messages of a batch; the answer to its commit is sent to `inbox`."""
    out = []
    for number in range(1, count + 1):
        head = f"NATS/1.0\r\nNats-Batch-Id: {name}\r\nNats-Batch-Sequence: {number}\r\n"
        head += "Nats-Batch-Commit: 1\r\n\r\n" if number == count else "\r\n"
        payload = f"{name} {count} {number} ".encode().ljust(size, b".")
        out.append(framed(b"b", inbox if number == count else b"", payload, head.encode()))
    return b"".join(out)


def live(server: ServerProcess, rng: random.Random, cycle: int) -> set[str]:
    """Publish batches, and kill the server during one of them; return the names of the acknowledged batches."""
    client, acked = Speaker(server.port), set()
    enough, moment_s = rng.randrange(BATCHES), rng.uniform(0, MOMENT_S)
    names = {client.inbox + b"c%d" % number: f"c{cycle}-{number}" for number in range(BATCHES)}
    try:
        for inbox, name in names.items():
            is_large = rng.randrange(4) == 0
            count = rng.randint(2, 120 if is_large else 400)
            client.send(batch_bytes(name, count, LARGE_SIZE if is_large else SMALL_SIZE, inbox))
        if enough:
            for answered, _, _, payload in client.frames():
                if answered in names and b'"seq":' in payload and b'"error"' not in payload:
                    acked.add(names[answered])
                if len(acked) >= enough:
                    break
        time.sleep(moment_s)  # a random delay, which waits for no event
    finally:
        server.kill()
        client.close()
    return acked


def check(server: ServerProcess, acked: set[str]) -> list[str]:
    """Return the violations found in the batches of a restarted server."""
    counts: Counter[tuple[str, int]] = Counter()
    for _, payload in read_messages(server.port, "B"):
        name, total, _ = payload.split(b" ", 2)
        counts[name.decode(), int(total)] += 1
    found = [
        f"{name}: {count} of {total} messages" for (name, total), count in counts.items() if count != total
    ]
    return found + [f"{name} was acknowledged and is gone" for name in acked - {name for name, _ in counts}]


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run the cycles; the figures contain all violations."""
    rng, violations, total = rng_of(args.seed, "batches"), [], 0
    server = make_server(args.server, args.mode, scratch)
    server.start()
    acked: set[str] = set()
    try:
        client = Speaker(server.port)
        client.api("STREAM.CREATE.B", name="B", subjects=["b"], allow_atomic=True)
        client.close()
        for cycle in range(args.cycles or CYCLES):
            now_acked = live(server, rng, cycle)
            acked, total = acked | now_acked, total + len(now_acked)
            server.start()
            violations += [f"cycle {cycle}: {each}" for each in check(server, acked)]
            if cycle % PURGE_EVERY == PURGE_EVERY - 1:
                client = Speaker(server.port)
                client.api("STREAM.PURGE.B")
                client.close()
                acked = set()
    finally:
        server.kill()
    return {"cycles": args.cycles or CYCLES, "acknowledged batches": total, "violations": violations}

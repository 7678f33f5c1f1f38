"""Kills the server right after it has confirmed consumer acks; counts how many of them are delivered again."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tests.crash.servers import Speaker, framed, make_server

COUNT = 3000
CHUNK = 100
ACK_WAIT_NS = 1_000_000_000


def one_round(args: argparse.Namespace, directory: Path, count: int) -> dict[str, int]:
    """Confirm `count` acks, kill and restart the server, and return which messages are redelivered."""
    server = make_server(args.server, args.mode, directory)
    server.start()
    try:
        client = Speaker(server.port)
        client.api("STREAM.CREATE.A", name="A", subjects=["a"])
        config = {
            "durable_name": "c",
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_NS,
            "max_ack_pending": count,
        }
        client.api("CONSUMER.DURABLE.CREATE.A.c", stream_name="A", config=config)
        client.send(b"".join(framed(b"a", b"", b"%d" % number) for number in range(count)))
        client.fence()
        confirmed: set[int] = set()
        while len(confirmed) < count:
            pulled = {
                b"%bk%d" % (client.inbox, seq): (seq, reply) for seq, reply in client.pull("A", "c", CHUNK)
            }
            client.send(b"".join(framed(reply, inbox, b"+ACK") for inbox, (_, reply) in pulled.items()))
            frames = client.frames()
            for _ in range(len(pulled)):
                confirmed.add(pulled[next(frames)[0]][0])
        server.kill()
        server.start()
        client = Speaker(server.port)
        info = client.api("CONSUMER.INFO.A.c")
        again: set[int] = set()
        deadline = time.monotonic() + 2 * ACK_WAIT_NS / 1e9
        while time.monotonic() < deadline:
            again |= {seq for seq, _ in client.pull("A", "c", count)}
            time.sleep(0.1)  # pause between two pulls, until every ack wait is over
        return {
            "confirmed": len(confirmed),
            "redelivered": len(again & confirmed),
            "floor": info["ack_floor"]["stream_seq"],
        }
    finally:
        server.kill()


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run the number of rounds that the command line gives, by default 5."""
    rounds = [one_round(args, scratch / str(number), COUNT) for number in range(args.cycles or 5)]
    return {
        "rounds": rounds,
        "confirmed": sum(each["confirmed"] for each in rounds),
        "redelivered": sum(each["redelivered"] for each in rounds),
    }

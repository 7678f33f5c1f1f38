"""Kills the server at a random acknowledgement, in many cycles on one store, and checks everything after each."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess
from tests.crash.ledger import Ledger
from tests.crash.load import STREAM, Load, make_stream
from tests.crash.servers import Speaker, make_server, read_messages, rng_of

CYCLES = 500
ACKS_MAX = 4000  # the number of PubAcks between two kills
PURGE_EVERY = 8  # number of cycles between purges


def check(server: ServerProcess, ledger: Ledger) -> None:
    """Compare a restarted server with the ledger."""
    client = Speaker(server.port)
    state = client.api(f"STREAM.INFO.{STREAM}")["state"]
    info = client.api(f"CONSUMER.INFO.{STREAM}.worker")
    client.close()
    lost = ledger.check_messages(read_messages(server.port, STREAM), state["first_seq"], state["last_seq"])
    if lost:
        ledger.violation("acked lost", f"{len(lost)} such as {min(lost).decode()}", len(lost))
    ledger.check_floor(info["ack_floor"]["stream_seq"])


def purge(server: ServerProcess, ledger: Ledger) -> None:
    """Empty the stream, so that a later check only reads new messages."""
    client = Speaker(server.port)
    client.api(f"STREAM.PURGE.{STREAM}")
    ledger.forget(client.api(f"STREAM.INFO.{STREAM}")["state"]["last_seq"])
    client.close()


def run_cycles(
    server: ServerProcess, ledger: Ledger, cycles: int, seed: int, acks_max: int = ACKS_MAX
) -> int:
    """Run cycles on a started server; return the number of PubAcks."""
    rng = rng_of(seed, "kill")
    acks = 0
    for cycle in range(cycles):
        if cycle % PURGE_EVERY == PURGE_EVERY - 1:
            purge(server, ledger)
        enough = rng.randint(1, acks_max)
        acks += enough
        load = Load(server.port, ledger, f"{cycle}", enough, server.kill)
        load.run(rng)
        assert not load.failures, load.failures
        server.start()
        check(server, ledger)
        if cycle % 50 == 49:
            print(f"kill: {cycle + 1} cycles, {dict(ledger.found)}", file=sys.stderr, flush=True)
    return acks


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run the number of cycles that the command line gives."""
    cycles = args.cycles or CYCLES
    server = make_server(args.server, args.mode, scratch)
    ledger = Ledger()
    started = time.monotonic()
    server.start()
    try:
        make_stream(server.port)
        acks = run_cycles(server, ledger, cycles, args.seed)
    finally:
        server.kill()
    return {
        "cycles": cycles,
        "acks": acks,
        "confirmed consumer acks": len(ledger.settled),
        "violations": dict(ledger.found),
        "examples": ledger.examples,
        "seconds per cycle": round((time.monotonic() - started) / cycles, 2),
    }

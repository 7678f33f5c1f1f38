"""Dead letters and kill -9: no message that was given up is lost, and none has two letters.

A work queue gives messages up by +TERM and by max_deliver, with acknowledgements in between, and the server is killed
at any moment: before and after the letter is written, its sync, and the removal of the message. After each start, the
test waits for the letters that are still missing; then each message is in exactly one place.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess
from tests.crash.servers import Speaker, framed, make_server, read_messages, rng_of

CYCLES = 200
MESSAGES = 60  # of one life
MOMENT_S = 0.03  # the kill comes up to so long after the last of the acknowledgements
PURGE_EVERY = 20  # cycles
SETTLED_S = 20.0  # within which the letters of a started server are stored
QUEUE, LETTERS, CONSUMER = "QUEUE", "LETTERS", "worker"


class Dead:
    """What the clients of one store know."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}  # payloads by sequence of the queue
        self.acked: set[bytes] = set()  # an ack was sent
        self.confirmed: dict[bytes, str] = {}  # what an answer has confirmed: "+ACK" or "+TERM"
        self.interrupted = 0  # starts that found letters to store
        self.violations: list[str] = []

    def check(self, before: set[bytes], after: set[bytes], letters: Counter[bytes], cycle: int) -> None:
        """Hold what a started server has against what its clients know: the queue before and after its letters."""
        found = {
            "has two letters": {name for name, count in letters.items() if count > 1},
            "is lost": set(self.stored.values()) - before - set(letters) - self.acked,
            "has a letter although its ack was confirmed": {
                name for name in letters if self.confirmed.get(name) == "+ACK"
            },
            "has no letter although its term was confirmed": {
                name for name, verb in self.confirmed.items() if verb == "+TERM" and name not in letters
            },
            "is in both streams": after & set(letters),
        }
        self.violations += [
            f"cycle {cycle}: {name!r} {what}" for what, names in found.items() for name in names
        ]

    def forget(self) -> None:
        """Begin again with empty streams."""
        self.stored.clear()
        self.acked.clear()
        self.confirmed.clear()


def make_streams(client: Speaker) -> None:
    """Create the queue, its consumer, and the stream for the letters."""
    client.api(f"STREAM.CREATE.{LETTERS}", name=LETTERS, subjects=[f"$DLQ.{QUEUE}.>"])
    metadata = {"_pyjs.dead_letter_stream": LETTERS}
    made = client.api(
        f"STREAM.CREATE.{QUEUE}", name=QUEUE, subjects=["q.>"], retention="workqueue", metadata=metadata
    )
    assert "config" in made, made
    config = {"durable_name": CONSUMER, "ack_policy": "explicit", "max_deliver": 2, "ack_wait": 500_000_000}
    made = client.api(f"CONSUMER.CREATE.{QUEUE}.{CONSUMER}", stream_name=QUEUE, config=config)
    assert "config" in made, made


def live(server: ServerProcess, dead: Dead, rng: random.Random, cycle: int) -> None:
    """Publish and give up messages, and kill the server in the middle."""
    client = Speaker(server.port)
    try:
        for number in range(MESSAGES):
            payload = b"c%d-%d" % (cycle, number)
            dead.stored[client.publish(b"q.a", payload)["seq"]] = payload
        _work(client, dead, rng)
        time.sleep(rng.uniform(0, MOMENT_S))  # a random moment, not a wait for something
    finally:
        server.kill()
        _confirmations(client, dead)
        client.close()


def _work(client: Speaker, dead: Dead, rng: random.Random) -> None:
    """Receive everything twice at most, and answer it; stop at a random answer."""
    enough = rng.randint(1, 2 * MESSAGES)
    for _ in range(2):
        for seq, reply in client.pull(QUEUE, CONSUMER, MESSAGES):
            enough -= 1
            if enough < 0:
                return
            verb, payload = rng.choice(("+ACK", "+TERM", "+TERM", "-NAK", "-NAK")), dead.stored[seq]
            inbox = client.inbox + b"v." + payload + b"." + verb.encode()
            if verb == "+ACK":
                dead.acked.add(payload)
            body = b"+TERM of no use" if verb == "+TERM" else verb.encode()
            client.send(framed(reply, inbox, body))
    client.send(framed(f"$JS.API.CONSUMER.MSG.NEXT.{QUEUE}.{CONSUMER}".encode(), client.inbox + b"n", b"1"))


def _confirmations(client: Speaker, dead: Dead) -> None:
    """Read the answers to acks that came before the kill."""
    try:
        for subject, _, _, _ in client.frames():
            if subject.startswith(client.inbox + b"v."):
                *_, payload, verb = subject.split(b".")
                dead.confirmed.setdefault(payload, verb.decode())
    except (OSError, EOFError, AssertionError):
        pass  # the connection has ended


def settled(server: ServerProcess) -> bool:
    """Wait until a started server has stored the letters that wait; return whether any waited."""
    client, until, found = Speaker(server.port), time.monotonic() + SETTLED_S, False
    while time.monotonic() < until:
        why = json.loads(client.request(f"$JS.API.PYJS.WHY.{QUEUE}.{CONSUMER}".encode()))
        if all(reason["kind"] not in ("max_deliver", "dead_letters") for reason in why["reasons"]):
            break
        found = True
    client.close()
    return found


def check(server: ServerProcess, dead: Dead, cycle: int) -> int:
    """Hold both streams of a started server against what its clients know; return the number of letters.

    Messages of earlier lives are given up meanwhile. So the queue is read before the letters, to find what is lost,
    and again when these letters are settled, to find what is in both.
    """
    before = _payloads(server, dead)
    dead.interrupted += settled(server)
    letters = Counter(payload for _, payload in read_messages(server.port, LETTERS))
    settled(server)
    dead.check(before, _payloads(server, dead), letters, cycle)
    return letters.total()


def _payloads(server: ServerProcess, dead: Dead) -> set[bytes]:
    """Return the payloads in the queue; a work queue has no second consumer, so they are asked for one by one."""
    client = Speaker(server.port)
    state = client.api(f"STREAM.INFO.{QUEUE}", deleted_details=True)["state"]
    gone = set(state.get("deleted") or ())
    client.close()
    return {
        payload
        for seq, payload in dead.stored.items()
        if state["first_seq"] <= seq <= state["last_seq"] and seq not in gone
    }


def purge(server: ServerProcess, dead: Dead) -> None:
    """Empty both streams."""
    client = Speaker(server.port)
    for name in (QUEUE, LETTERS):
        client.api(f"STREAM.PURGE.{name}")
    client.close()
    dead.forget()


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run the cycles; the figures have all violations."""
    cycles, rng, dead, letters = args.cycles or CYCLES, rng_of(args.seed, "dead"), Dead(), 0
    server = make_server(args.server, args.mode, scratch)
    server.start()
    try:
        client = Speaker(server.port)
        make_streams(client)
        client.close()
        for cycle in range(cycles):
            live(server, dead, rng, cycle)
            server.start()
            stored = check(server, dead, cycle)
            if cycle % PURGE_EVERY == PURGE_EVERY - 1 or cycle == cycles - 1:
                letters += stored
                purge(server, dead)
    finally:
        server.kill()
    return {
        "kills": cycles,
        "kills while letters waited": dead.interrupted,
        "letters": letters,
        "violations": dead.violations,
    }

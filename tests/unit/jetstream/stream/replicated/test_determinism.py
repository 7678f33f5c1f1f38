"""Random histories on a leader and two followers with different turns and clocks end in equal states.

`python -m tests.unit.jetstream.stream.replicated.test_determinism FIRST LAST` plays more of them.
"""

from __future__ import annotations

import json
import random
import re
import sys
from typing import Any

import pytest
from tests.history.making import History, Publish, Request, make
from tests.unit.jetstream.stream.replicated.replicas import Loopback, config, replicas, same

from pyjs.jetstream.config.stream import StreamConfig
from pyjs.jetstream.stream.replicated import operations

S = 1_000_000_000
SAMPLE = range(30_000, 30_060)
_PLACE = re.compile(r"\{(last\+1|last|of:(\w+)|S|P)\}")


class Teller:
    """Plays a history at the leader of a group; members apply entries and run turns at random."""

    def __init__(self, group: Loopback, seed: int) -> None:
        self.group, self.rng, self.clocks = group, random.Random(seed), random.Random(seed)
        self.last, self.of = 0, dict[str, int]()

    def play(self, history: History) -> None:
        """Do those operations of a history that apply to a stream without consumers."""
        for operation in history.operations:
            if isinstance(operation, Publish):
                self.publish(operation)
            elif isinstance(operation, Request):
                self.request(operation)
            self.some_work()
        self.group.settle()

    def publish(self, publish: Publish) -> None:
        """Publish from a client of the leader."""
        lines = [f"{name}: {self.filled(value)}\r\n" for name, value in publish.headers]
        block = f"NATS/1.0\r\n{''.join(lines)}\r\n".encode() if lines else b""
        body = block + publish.payload.encode()
        verb, sizes = (b"HPUB", b"%d %d" % (len(block), len(body))) if block else (b"PUB", b"%d" % len(body))
        subject = f"s.{publish.subject}".encode()
        self.group.leader.js.user.send(b"%b %b r %b\r\n%b\r\n" % (verb, subject, sizes, body))
        self.of[publish.subject] = self.last = self.group.leader.store.last_seq

    def request(self, request: Request) -> None:
        """Propose the purge or deletion of a request."""
        body = json.loads(self.filled(request.body) or "{}")
        if request.endpoint.startswith("STREAM.PURGE"):
            payload = operations.purge(
                body.get("filter", "").encode(), body.get("seq", 0), body.get("keep", 0)
            )
        elif request.endpoint.startswith("STREAM.MSG.DELETE"):
            payload = operations.delete(body["seq"], not body.get("no_erase"))
        else:
            return
        self.group.leader.stream.turn.go_on(self.group.leader.replica.operate(payload))

    def some_work(self) -> None:
        """At random, let members work, lag, or become leader."""
        rng, group = self.rng, self.group
        if rng.random() < 0.5:
            group.leader.turn()
        if rng.random() < 0.5:
            group.commit(rng.randrange(1, 4))
        for member in group.members:
            if rng.random() < 0.4:
                group.apply(member, rng.randrange(1, 4))
            if rng.random() < 0.4:
                member.turn()
            if rng.random() < 0.1:
                member.js.advance(milliseconds=rng.randrange(1, 5_000))
            if self.clocks.random() < 0.01:
                member.js.clock.step_wall(self.clocks.randrange(-3600 * S, 3600 * S))
        if rng.random() < 0.03:
            group.lead(rng.choice(group.members))

    def filled(self, text: str) -> str:
        """Replace the placeholders of a text by the last sequences that were returned."""

        def value(match: re.Match[str]) -> str:
            if match[1] in ("S", "P"):
                return match[1].lower() if match[1] == "P" else "S"
            return str(self.of.get(match[2], 0) if match[2] else self.last + (match[1] == "last+1"))

        return _PLACE.sub(value, text)


def stream_of(history: History) -> StreamConfig:
    """Return the options of a history as those of the tested stream."""
    given: dict[str, Any] = {**history.config, "storage": "memory", "retention": "limits"}
    if "subject_delete_marker_ttl" in given:
        given["subject_delete_marker_ttl_ns"] = given.pop("subject_delete_marker_ttl")
    given.pop("first_seq", None)
    return config(**given)


def play(seed: int) -> dict[str, Any]:
    """Play one history; return the final state."""
    history = make(seed)
    group = replicas(stream_of(history))
    for number, member in enumerate(group.members):
        member.js.advance(seconds=17 * number)
    Teller(group, seed).play(history)
    return same(group)


def test_replicas_end_equal() -> None:
    stored = 0
    for seed in SAMPLE:
        try:
            stored += len(play(seed)["messages"])
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")
    assert stored > 100


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        play(number)

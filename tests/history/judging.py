"""Compares the results of a history on both servers, and minimizes histories that differ."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerProcess, our_command, peer_command
from tests.history.making import History, Operation, make
from tests.history.playing import Player, Seen

SETTLE_S = 3.0  # time until limits, acknowledgements and removals have taken effect on both servers
PLAYS = 3  # a history counts as different if the servers differ each time
SHORTEN_S = 60.0  # the time limit for shortening one history
# Histories in which nats-server is wrong in a way that making.py cannot exclude.
KNOWN = {
    67: "max_bytes holds for an atomic batch as a whole; in nats-server after each message (docs/compatibility.md)",
    271: "after a refused batch, nats-server tells 4 as the last sequence of a stream whose last is 3",
    441: "as 1103",
    641: "after a reset, nats-server counts a message in num_pending that was deleted right after its publish",
    1057: "ack policy all: if a message is removed, nats-server takes earlier ones for acknowledged",
    1061: "as 67",
    1103: "at max_msgs, nats-server removes the oldest message before a schedule replaces one",
    1523: "as 271",
    2051: "as 1103",
}
CONFIG = 'jetstream { store_dir: "<<store>>", max_mem: 256MB, max_file: 1GB }\n'


@dataclasses.dataclass
class Difference:
    """The first thing that differs."""

    # the operation, from 0; -1: the creation of the stream; the number of operations: the final state
    at: int
    peer: Any
    ours: Any


class Pair:
    """Plays histories on nats-server and on our server, and compares the answers."""

    def __init__(self, peer: Player, ours: Player) -> None:
        self._peer, self._ours = peer, ours

    def difference(self, history: History) -> Difference | None:
        """Play on both servers; return the first difference."""
        peer, ours = self._peer.play(history), self._ours.play(history)
        try:
            return first_difference(peer, ours) or self._rest(len(history.operations))
        finally:
            self._peer.forget()
            self._ours.forget()

    def _rest(self, at: int) -> Difference | None:
        deadline = time.monotonic() + SETTLE_S
        while True:
            peer, ours = self._peer.rest(), self._ours.rest()
            if peer == ours:
                return None
            if time.monotonic() > deadline:
                [(theirs, own), *_] = [pair for pair in zip(peer, ours, strict=True) if pair[0] != pair[1]]
                return Difference(at, *narrowed(theirs, own))

    def steady(self, history: History) -> Difference | None:
        """Play a history that may differ; return the difference only if it occurs each of PLAYS times.

        nats-server notifies a consumer of a new message after it has answered the publisher, so a fetch that does not
        wait may find nothing. Such a difference does not occur each time.
        """
        found = None
        for _ in range(PLAYS):
            if (found := self.difference(history)) is None:
                return None
        return found

    def shortest(self, history: History, found: Difference) -> tuple[History, Difference]:
        """Leave out operations as long as the servers still differ, for at most about SHORTEN_S."""
        deadline = time.monotonic() + SHORTEN_S
        history = with_operations(history, history.operations[: found.at + 1])
        at = len(history.operations) - 1
        while at >= 0 and time.monotonic() < deadline:
            shorter = with_operations(history, history.operations[:at] + history.operations[at + 1 :])
            if (still := self.steady(shorter)) is not None:
                history, found = shorter, still
            at = min(at, len(history.operations)) - 1
        return history, found


def with_operations(history: History, operations: tuple[Operation, ...]) -> History:
    """Return the history with its operations replaced."""
    return dataclasses.replace(history, operations=operations)


def first_difference(peer: Seen, ours: Seen) -> Difference | None:
    """Return the first answer that differs."""
    for at, (theirs, own) in enumerate(zip(peer, ours, strict=True)):
        if theirs != own:
            return Difference(at - 1, *narrowed(theirs, own))
    return None


def narrowed(peer: Any, ours: Any) -> tuple[Any, Any]:
    """Return the part in which two values differ."""
    if isinstance(peer, dict) and isinstance(ours, dict):
        keys = [key for key in {**peer, **ours} if peer.get(key, ...) != ours.get(key, ...)]
        return {key: peer.get(key) for key in keys}, {key: ours.get(key) for key in keys}
    if isinstance(peer, list) and isinstance(ours, list) and len(peer) == len(ours):
        pairs = [pair for pair in zip(peer, ours, strict=True) if pair[0] != pair[1]]
        return narrowed(*pairs[0]) if pairs else (peer, ours)
    return peer, ours


def told(history: History, found: Difference) -> str:
    """Return a text about a difference."""
    lines = [f"{history.kind} {history.config}"]
    lines += [f"{'>' if at == found.at else ' '} {each}" for at, each in enumerate(history.operations)]
    return "\n".join([f"seed {history.seed}", *lines, f"nats-server: {found.peer}", f"ours: {found.ours}"])


@contextmanager
def both_servers() -> Iterator[Pair]:
    """Start both servers and connect to them."""
    peer_words = peer_command()
    assert peer_words is not None, "nats-server is not here"
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="history-")))
        players = []
        for kind, command in (("peer", peer_words), ("ours", our_command())):
            os.mkdir(directory / kind)
            server = ServerProcess(command, CONFIG, directory / kind, with_http=False, may_fork=True)
            stack.callback(server.kill)
            server.start()
            players.append(Player(server.port))
            stack.callback(players[-1].close)
        yield Pair(*players)


def run(seeds: range, say: Callable[[str], None]) -> list[int]:
    """Play the histories of `seeds` except known ones; report and return those that differ, minimized."""
    failed = []
    with both_servers() as pair:
        for seed in seeds:
            history = make(seed)
            if seed not in KNOWN and (found := pair.steady(history)) is not None:
                failed.append(seed)
                say(told(*pair.shortest(history, found)))
    return failed

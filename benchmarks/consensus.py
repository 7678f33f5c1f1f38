"""The consensus of three nodes in one process: the cost of an entry on the leader and on a follower.

    python benchmarks/consensus.py [--entries N] [--rounds N] [--directory DIR] [--json FILE]

An entry is a batch of 100 messages of 168 B. Batches are passed to the receiver by a function call. Each node has a
log that discards its entries. With --directory, it has the real log, which is written but not synced. The figure is
processor time, the lowest of the rounds, since other programs can only increase it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyjs.base.disk import OsDisk
from pyjs.base.log import ListLog
from pyjs.base.rng import SeededRng
from pyjs.base.timers import Timers
from pyjs.consensus.consensus import Consensus, Tuning
from pyjs.consensus.engine import Conf, Role, Write, peer_id
from pyjs.consensus.log.node_log import NodeLog
from pyjs.consensus.log.records import Membership
from pyjs.core.faults import Faults
from pyjs.core.sink import Turn

NODES = (1, 2, 3)
GROUP = 1
MESSAGES = 100
PAYLOAD = bytes(MESSAGES * 168)
STEP_NS = 10_000_000


class NoLog:
    """A log that discards its entries."""

    boot = 1
    is_doubtful = False

    def __init__(self) -> None:
        self.groups: dict[int, Any] = {}

    def create(self, group: int, name: str, peer: int, conf: Conf, start: int, start_term: int) -> None:
        """Record a group."""
        self.groups[group] = SimpleNamespace(
            name=name, peer=peer, conf=Membership.of(conf), hard=(0, 0, 0), start=start, start_term=start_term,
            state=b"", is_damaged=False,
        )  # fmt: skip

    def entries(self, group: int) -> list[tuple[int, int, bytes]]:
        """Return no entries."""
        return []

    def write(self, write: Write, payloads: Sequence[bytes]) -> bool:
        """Discard the entries."""
        return True

    def stage_commits(self) -> bool:
        """Stage nothing."""
        return False

    def point(self, group: int, index: int, term: int, conf: Conf, state: bytes) -> None:
        """Record the start of the log."""
        self.groups[group].start = index

    def flush(self) -> None:
        """Write nothing."""

    def begin_sync(self) -> None:
        """Sync nothing."""

    def begin_fresh_file(self) -> None:
        """Make no file."""

    def witness(self) -> None:
        """Write nothing."""

    def crowding(self) -> tuple[int, ...]:
        """Return no group."""
        return ()


def log_in(directory: Path | None, number: int) -> Any:
    """Return the log of a node."""
    if directory is None:
        return NoLog()
    log = NodeLog(OsDisk(), str(directory / str(number)), ListLog(), time.time_ns())
    for _ in log.recover_steps():
        pass
    return log


class Node:
    """A node whose state machine counts the entries."""

    def __init__(self, number: int, directory: Path | None) -> None:
        self.number = number
        self.turn_state = Turn()
        self.timers, self.log, self.rng = Timers(), ListLog(), SeededRng(number)
        self.faults = Faults(self.log)
        self.inbox: list[tuple[int, bytes]] = []
        self.nodes: dict[int, Node] = {}
        self.count = 0
        self.leads = False
        self.seconds = 0.0
        tuning = Tuning(sync_interval_ns=1 << 60)
        self.consensus = Consensus(cast("Any", self), number, log_in(directory, number), self, tuning)
        self.consensus.open(GROUP, "orders", self, Conf([peer_id(node) for node in NODES]))

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        """Count an entry."""
        self.count += 1

    def role(self, term: int, role: Role, leader: int) -> None:
        """Record whether this node is the leader."""
        self.leads = role == Role.LEADER

    def dropped(self, proposal: object) -> None:
        """Fail: no proposal is dropped here."""
        raise AssertionError(proposal)

    def durable(self) -> int:
        """Return the last entry: the log may be cut at any place."""
        return self.count

    def snapshot(self) -> bytes:
        """Return the state."""
        return b"x"

    def install(self, index: int, data: bytes) -> None:
        """Fail: no snapshot is installed here."""
        raise AssertionError(index)

    def send(self, node: int, parts: Sequence[bytes]) -> None:
        """Put a batch into the inbox of a node."""
        self.nodes[node].inbox.append((self.number, b"".join(parts)))

    def pending_size(self, node: int) -> int:
        """Return 0: all data was read."""
        return 0

    def stop(self, reason: str) -> None:
        """Fail: nothing stops the node here."""
        raise AssertionError(reason)

    def work(self) -> bool:
        """Process input, and run turns; return whether there was work."""
        began = time.perf_counter()
        inbox, self.inbox = self.inbox, []
        for source, data in inbox:
            self.consensus.receive(source, data)
        has_work = bool(inbox or self.turn_state.consensus)
        while self.turn_state.consensus:
            for consensus in self.turn_state.take("consensus"):
                consensus.turn()
            for job in self.turn_state.take("jobs"):
                job.run()
                job.finish(None)
        self.seconds += time.perf_counter() - began
        return has_work


class Trio:
    """Three nodes."""

    def __init__(self, directory: Path | None) -> None:
        self.nodes = {number: Node(number, directory) for number in NODES}
        for node in self.nodes.values():
            node.nodes = self.nodes
        self.until(lambda: any(node.leads for node in self.nodes.values()))
        self.leader = next(node for node in self.nodes.values() if node.leads)

    def settle(self) -> None:
        """Run turns until nothing is left to do."""
        while sum(node.work() for node in self.nodes.values()):
            pass

    def until(self, reached: Callable[[], bool]) -> None:
        """Let time pass until `reached` is true."""
        while not reached():
            for node in self.nodes.values():
                node.turn_state.now += STEP_NS
                while node.timers.due(node.turn_state.now) is not None:
                    node.timers.pop()()
            self.settle()

    def measure(self, count: int, per_turn: int) -> tuple[float, float]:
        """Return the microseconds per entry on the leader and on a follower."""
        for node in self.nodes.values():
            node.seconds = 0.0
        before = self.leader.count
        start = time.process_time()
        for _ in range(count // per_turn):
            began = time.perf_counter()
            for _ in range(per_turn):
                assert self.leader.consensus.propose(GROUP, PAYLOAD, self)
            self.leader.seconds += time.perf_counter() - began
            self.settle()
        used = time.process_time() - start
        done = count // per_turn * per_turn
        assert self.leader.count - before == done
        wall = sum(node.seconds for node in self.nodes.values())
        # The processor time is divided in proportion to the wall time of the nodes.
        leader = used * self.leader.seconds / wall
        followers = len(self.nodes) - 1
        return leader * 1e6 / done, (used - leader) * 1e6 / done / followers


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--directory", type=Path, help="an empty one, for real logs")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, float] = {}
    trio = Trio(given.directory)
    for per_turn in (1, 16):
        rounds = [trio.measure(given.entries, per_turn) for _ in range(given.rounds)]
        for who, values in zip(("leader", "follower"), zip(*rounds, strict=True), strict=True):
            found[f"{who}_entry_us_{per_turn}_per_turn"] = min(values)
            found[f"{who}_message_us_{per_turn}_per_turn"] = min(values) / MESSAGES
    for name, value in found.items():
        print(f"{name:32} {value:10.3f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

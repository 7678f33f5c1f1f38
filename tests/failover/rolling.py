"""`python -m tests.failover.rolling`: three servers are restarted one by one, or replaced, under load of nats-py.

A restart stops a server with SIGTERM or in lame duck mode, starts it again, and waits until /healthz of every server
reports no problem. A replacement starts a server with a new name and an empty store, removes an old server from the
cluster, and stops the old server when its replicas have moved; with `evacuate`, the replicas move before the old
server is removed. The applications must see no error, and every acknowledged message must be stored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.failover.applications import Applications
from tests.failover.fleet import PATIENCE_S, Fleet, Stuck
from tests.failover.link import Link
from tests.failover.reading import Stored, messages

FIRST = ("a", "b", "c")
ADMIN = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"user":"admin","pass":"admin"}\r\n'
REPLACING = ("replace", "evacuate")
REST_S = 0.5  # pause after a server is healthy again
# pause after clients have connected: nats-py may wait two seconds before it tries an address again
SETTLED_S = 2.5


class Rolling:
    """Restarts or replaces the servers of a fleet one by one, in several rounds."""

    def __init__(self, fleet: Fleet, applications: Applications, servers: int = len(FIRST)) -> None:
        self._fleet = fleet
        self._servers = servers  # number of servers restarted in each round
        self.applications = applications
        self._count = 0  # number of servers that were added
        self.rounds: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()

    async def go(self, rounds: int, ways: list[str]) -> None:
        """Run rounds in each of the ways, then check the acknowledged messages."""
        await self.applications.prepare()
        working = asyncio.create_task(self.applications.run())
        try:
            await asyncio.sleep(SETTLED_S)
            for number in range(rounds):
                way = ways[number % len(ways)]
                await self._round(way)
                self.rounds[way] += 1
                print(f"{dict(self.rounds)} {dict(self.applications.errors)}", file=sys.stderr, flush=True)
        finally:
            self.applications.stop()
            await working
        await self._check()

    async def _round(self, way: str) -> None:
        for name in self._fleet.names[: self._servers]:
            if way in REPLACING:
                await self._replace(name, evacuated=way == "evacuate")
            else:
                self.applications.phase = f"{way} of {name}"
                await (self._fleet.stop(name) if way == "term" else self._fleet.retire(name))
                self.applications.phase = f"start of {name} after {way}"
                await self._fleet.start(name)
            self.applications.phase = f"wait for health after {name}"
            await self._fleet.healthy(*self._fleet.names)
            await asyncio.sleep(REST_S)

    async def _replace(self, old: str, *, evacuated: bool) -> None:
        """Add a server, wait until it is a member of the cluster, then remove another one."""
        fleet = self._fleet
        self._count += 1
        new = f"n{self._count}"
        fleet.add(new)
        self.applications.phase = f"start of {new}"
        await fleet.start(new)
        await fleet.healthy(new)
        keeper = next(name for name in fleet.names if name not in (old, new))
        link = Link("127.0.0.1", fleet.servers[keeper].port, ADMIN)
        link.begin()
        try:
            for name in ("SERVER.EVACUATE", "SERVER.REMOVE") if evacuated else ("SERVER.REMOVE",):
                self.applications.phase = f"{name} of {old}"
                await self._told(link, name, old)
                await self._until_left(old)
        finally:
            await link.end()
        self.applications.phase = f"end of {old}, which was removed"
        await fleet.retire(old)
        fleet.remove(old)

    async def _told(self, link: Link, name: str, old: str) -> None:
        """Repeat a request about a server until the request succeeds."""
        deadline = time.monotonic() + PATIENCE_S
        told: dict[str, Any] = {}
        while not told.get("success"):
            if time.monotonic() > deadline:
                raise Stuck(f"{name} of {old}: {told}")
            await asyncio.sleep(0.1)  # pause between two requests
            told = await link.api(name, {"peer": old})

    async def _until_left(self, old: str) -> None:
        """Wait until no stream has a replica on a server."""
        link = Link("127.0.0.1", self._fleet.servers[self._fleet.names[-1]].port)
        link.begin()
        deadline = time.monotonic() + PATIENCE_S
        try:
            while not self._has_left(old, await link.api("STREAM.LIST", wait_s=3)):
                if time.monotonic() > deadline:
                    raise Stuck(f"replicas of {old} do not move")
                await asyncio.sleep(0.1)  # pause between two requests
        finally:
            await link.end()

    @staticmethod
    def _has_left(old: str, told: dict[str, Any]) -> bool:
        infos = told.get("streams") or []
        members = [
            [info["cluster"].get("leader"), *(peer["name"] for peer in info["cluster"].get("replicas", []))]
            for info in infos
        ]
        return (
            bool(infos)
            and not told.get("missing")
            and all(
                len(each) == info["config"]["num_replicas"] and old not in each
                for info, each in zip(infos, members, strict=True)
            )
        )

    async def _check(self) -> None:
        """Compare the acknowledged messages with the stored and the delivered ones."""
        link = Link("127.0.0.1", self._fleet.servers[self._fleet.names[0]].port)
        link.begin()
        try:
            while not link.is_up:
                await asyncio.sleep(0.05)  # pause before the next attempt to connect
            for stream, acked in self.applications.acked.items():
                if acked:
                    self._compare(acked, await messages(link, stream))
        finally:
            await link.end()
        for kind, seqs in self.applications.delivered.items():
            passed = set(range(1, max(seqs, default=0) + 1)) - seqs
            self.violations[f"{kind}: passed over"] += len(passed)

    def _compare(self, acked: dict[str, int], stored: Stored) -> None:
        """Count acknowledged messages that are not stored under their sequences."""
        found = {payload.decode().strip(): seq for seq, _, payload in stored}
        for name, seq in acked.items():
            if found.get(name) != seq:
                self.violations["acked lost" if name not in found else "moved"] += 1

    def report(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        seen = self.applications
        return {
            "rounds": dict(self.rounds),
            "operations": dict(seen.done),
            "errors": dict(seen.errors),
            "slower than 1 s": {name: count for name, count in seen.slow.items() if count},
            "slowest ms": {name: round(each * 1000) for name, each in seen.slowest_s.items()},
            "notes": dict(seen.notes),
            "first errors": seen.seen,
            "acked": {stream: len(acked) for stream, acked in seen.acked.items() if acked},
            "violations": {name: count for name, count in self.violations.items() if count},
        }


async def roll(
    server: str, mode: str, directory: Path, rounds: int, ways: list[str], servers: int = len(FIRST)
) -> dict[str, Any]:
    """Run all rounds; return the figures."""
    fleet = Fleet(server, mode, directory)
    broken = ""
    try:
        fleet.add(*FIRST)
        await fleet.start(*FIRST)
        await fleet.healthy(*FIRST)
        # A stream with one replica is unavailable while its server restarts.
        applications = Applications(fleet.urls, with_alone=set(ways) == {"evacuate"})
        rolling = Rolling(fleet, applications, servers)
        try:
            await rolling.go(rounds, ways)
        except Stuck as error:
            broken = str(error)
        await rolling.applications.close()
        return rolling.report() | {"silences": fleet.silences()} | ({"broken": broken} if broken else {})
    finally:
        fleet.close()


def main() -> int:
    """Run what the command line requests; the exit code is 1 if an application saw an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover.rolling", description=__doc__)
    parser.add_argument("--server", choices=("ours", "peer"), default="ours")
    parser.add_argument("--mode", choices=("default", "always"), default="default")
    parser.add_argument("--rounds", type=int, default=10, help="each over all servers")
    parser.add_argument("--ways", default="term,ldm", help="term, ldm, replace, evacuate: taken in turns")
    parser.add_argument(
        "--dir", type=Path, help="scratch directory, which stays; a temporary one is the default"
    )
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        place = args.dir or Path(scratch)
        figures = asyncio.run(roll(args.server, args.mode, place, args.rounds, args.ways.split(",")))
    print(
        json.dumps(
            {"server": args.server, **figures, "seconds": round(time.monotonic() - started, 1)}, indent=1
        )
    )
    return 1 if figures["errors"] or figures["violations"] or "broken" in figures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Epochs of a run: streams are created, clients run, faults are caused in servers, and all answers are checked.

A fault is repaired some time after the first acknowledgement that follows it; then the run waits until all replicas
have everything. After some cycles the clients stop, and everything is read: through the leader, and through each
server.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.harness.cluster import NAMES
from tests.conformance.harness.process import ServerFailed
from tests.failover import clients
from tests.failover.clients import Shared, User
from tests.failover.faults import DISK_FAULTS, EVERYONE, FAULTS, SILENT_FAULTS, possible
from tests.failover.judge import Judge
from tests.failover.link import Link
from tests.failover.reading import messages, values_by_register
from tests.failover.trio import Trio

PATIENCE_S = 90.0
HOPE_S = 30.0  # after this time without recovery, an operator would restart servers
ON_LEADER = 0.8  # share of the faults that affect the leader
STEADY_S = 0.004  # seconds between two messages of the steady publisher
ACK_WAIT_NS = 2_000_000_000
INTERVALS_S = {"default": 1, "always": 0, "5s": 5, "2s": 2}
SYNC_S = 0.5  # seconds for a sync that begins at the end of the interval


class Broken(Exception):
    """The cluster does not recover; the text names the condition that was awaited."""


@dataclass
class Figures:
    """The results of a run."""

    cycles: Counter[str] = field(default_factory=Counter)
    # seconds to the next acknowledgement by fault, for faults of the leader
    next_ack_s: dict[str, list[float]] = field(default_factory=dict)
    whole_s: list[float] = field(
        default_factory=list
    )  # seconds from the end of a fault until all replicas have everything
    help: Counter[str] = field(default_factory=Counter)  # what recoveries needed, by fault
    acked: int = 0
    settled: int = 0
    operations: int = 0
    violations: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)

    def report(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        return {
            "cycles": dict(self.cycles),
            "next ack ms": {name: spread(each) for name, each in sorted(self.next_ack_s.items())},
            "whole again ms": spread(self.whole_s),
            "help that recovery needed": dict(self.help),
            "acked": self.acked,
            "consumer acks confirmed": self.settled,
            "register operations": self.operations,
            "violations": dict(self.violations),
            "examples": self.examples,
            "refusals": dict(self.refusals.most_common(8)),
        }


def spread(seconds: list[float]) -> dict[str, int]:
    """Return p50, p99 and the maximum, in milliseconds."""
    if not seconds:
        return {}
    ordered = sorted(round(each * 1000) for each in seconds)
    return {
        "count": len(ordered),
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "max": ordered[-1],
    }


class Run:
    """Cycles of faults on three servers."""

    def __init__(self, args: Namespace, trio: Trio, judge: Judge | None) -> None:
        self._args = args
        self._trio = trio
        self._judge = judge
        self._rng = random.Random(f"{args.seed} failover")
        self._links: list[Link] = []
        self._faults = possible(args.faults.split(","), trio)
        self._interval_s = INTERVALS_S[args.mode] if args.server == "ours" else 0
        self._epochs = 0
        self._deadline = time.monotonic() + 60 * args.minutes
        self.figures = Figures()

    async def go(self) -> None:
        """Run until there are enough cycles or operations, or the time is over."""
        await self._trio.start(*NAMES)
        for server in self._trio.servers.values():
            self._links.append(Link(server.host, server.port))
            self._links[-1].begin()
        while not self._is_enough():
            await self._epoch()
            figures = self.figures
            print(
                f"{dict(figures.cycles)} {figures.operations} {dict(figures.violations)}",
                file=sys.stderr,
                flush=True,
            )
        for link in self._links:
            await link.end()

    def _is_enough(self) -> bool:
        figures, args = self.figures, self._args
        done = figures.cycles.total() >= args.cycles or (
            args.operations and figures.operations >= args.operations
        )
        return bool(done) or time.monotonic() > self._deadline

    # -- one epoch ---------------------------------------------------------------------------------------------

    async def _epoch(self) -> None:
        self._epochs += 1
        names = {each: f"{each.upper()}{self._epochs}" for each in ("load", "kv", "log")}
        shared = Shared(self._links, names)
        for name in names.values():
            await self._create(name)
        await self._until(
            f"CONSUMER.CREATE.{names['load']}.worker",
            {"stream_name": names["load"], "config": {
                "durable_name": "worker", "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, "max_ack_pending": 5000,
            }},
        )  # fmt: skip
        if self._interval_s and {*self._faults} & {*EVERYONE}:
            await asyncio.sleep(self._interval_s + SYNC_S)  # until the created streams are durable
        tasks = [asyncio.create_task(each) for each in self._work(shared)]
        for _ in range(self._args.cycles_each):
            if self._is_enough() or self._has_enough(shared):
                break
            await self._cycle(shared)
        while self._args.operations and not self._has_enough(shared) and not self._faults:
            await asyncio.sleep(0.1)  # pause between two checks of a count
        shared.stop.set()
        await asyncio.gather(*tasks)
        await self._whole(*names.values())
        await clients.resend(shared, PATIENCE_S)
        if self._args.what == "kills":
            await asyncio.wait_for(clients.settle(shared, "worker", until_empty=True), PATIENCE_S)
        await self._check(shared)
        for name in names.values():
            await self._until(f"STREAM.DELETE.{name}")

    def _has_enough(self, shared: Shared) -> bool:
        enough: int = self._args.operations_each
        return len(shared.history.operations) >= enough

    def _work(self, shared: Shared) -> list[Any]:
        args = self._args
        keys = [f"k{number}" for number in range(args.keys)]
        users = [
            User(shared, number, random.Random(self._rng.random()), keys, args.operations_each).run()
            for number in range(args.users)
        ]
        if args.what == "linear":
            return [*users, clients.publish_steadily(shared, 10 * STEADY_S)]
        return [
            *users,
            clients.publish_steadily(shared, STEADY_S),
            clients.publish_in_order(shared, "o1"),
            clients.publish_in_order(shared, "o2"),
            clients.settle(shared, "worker"),
        ]

    async def _create(self, name: str) -> None:
        await self._until(
            f"STREAM.CREATE.{name}",
            {
                "name": name, "subjects": [f"{name}.>"], "num_replicas": 3, "storage": "file", "allow_direct": True,
                "duplicate_window": 600_000_000_000,
            },
        )  # fmt: skip
        await self._whole(name)

    async def _cycle(self, shared: Shared) -> None:
        """Inject a fault, wait for the next acknowledgement, repair the fault, and wait for the recovery."""
        rng = self._rng
        kind = rng.choice(self._faults)
        leader = await self._leader(shared.names["load"])
        victim = leader if rng.random() < ON_LEADER else rng.choice(NAMES)
        await asyncio.sleep(rng.uniform(0.05, 0.3))
        strike, heal = FAULTS[kind]
        next_ack = shared.strike()
        struck_at = time.monotonic()
        shared.is_losing = kind in EVERYONE and self._interval_s > 0
        await strike(self._trio, victim, rng)
        is_over = kind in EVERYONE
        if is_over:
            await heal(self._trio, victim, rng)
            if self._interval_s:
                shared.forgive(struck_at - self._interval_s - SYNC_S)
        try:
            seconds = await asyncio.wait_for(asyncio.shield(next_ack), HOPE_S)
        except TimeoutError:
            self.figures.help[f"{kind}: the end of the fault, before any acknowledgement"] += 1
            if not is_over:
                await heal(self._trio, victim, rng)
            is_over = True
            seconds = await self._answered(next_ack, kind, victim)
        self.figures.cycles[kind] += 1
        if victim == leader and kind not in SILENT_FAULTS:
            self.figures.next_ack_s.setdefault(kind, []).append(seconds)
        await asyncio.sleep(
            rng.choice((0.0, rng.uniform(0, 0.5), rng.uniform(0, 3) if kind != "kill" else 0.1))
        )
        healed_at = time.monotonic()
        if not is_over:
            await heal(self._trio, victim, rng)
        await self._recover(kind, victim, shared.names.values())
        self.figures.whole_s.append(time.monotonic() - healed_at)

    async def _answered(self, next_ack: asyncio.Future[float], kind: str, victim: str) -> float:
        """Wait for the next acknowledgement after the end of a fault; return its time in seconds."""
        try:
            return await asyncio.wait_for(next_ack, PATIENCE_S)
        except TimeoutError:
            raise Broken(f"no acknowledgement after {kind} of {victim}") from None

    async def _recover(self, kind: str, victim: str, streams: Iterable[str]) -> None:
        """Wait until all replicas are current; restart the victim, then all servers, if that takes too long."""
        for remedy, names in (("the server", (victim,)), ("all servers", NAMES)):
            try:
                return await asyncio.wait_for(self._whole(*streams), HOPE_S)
            except TimeoutError:
                self.figures.help[f"{kind}: {remedy}"] += 1
            for name in names:
                await asyncio.to_thread(self._trio.servers[name].stop)
            await self._trio.start(*names)
        await self._whole(*streams)

    async def _leader(self, stream: str) -> str:
        info = await self._until(
            f"STREAM.INFO.{stream}", None, lambda told: bool(told["cluster"].get("leader"))
        )
        leader: str = info["cluster"]["leader"]
        return leader

    async def _whole(self, *streams: str) -> None:
        """Wait until each stream has a leader, and all its replicas are current."""

        def is_whole(told: dict[str, Any]) -> bool:
            replicas = told["cluster"].get("replicas", [])
            return len(replicas) == 2 and all(
                each["current"] and not each.get("offline") for each in replicas
            )

        for stream in streams:
            await self._until(f"STREAM.INFO.{stream}", None, is_whole)
        deadline = time.monotonic() + PATIENCE_S
        while not all(link.is_up for link in self._links):
            if time.monotonic() > deadline:
                raise Broken("a server accepts no connections")
            await asyncio.sleep(0.01)

    async def _until(self, name: str, body: object = None, holds: Any = lambda told: True) -> dict[str, Any]:
        """Repeat a request at one server after another until `holds` accepts the answer."""
        deadline = time.monotonic() + PATIENCE_S
        told: dict[str, Any] = {}
        while time.monotonic() < deadline:
            for link in self._links:
                told = await link.api(name, body) or told
                if told and "error" not in told and holds(told):
                    return told
                if name.startswith("STREAM.DELETE") and told.get("error", {}).get("err_code") == 10059:
                    return told  # the answer to an earlier attempt was lost
            await asyncio.sleep(0.02)
        raise Broken(f"{name}: {json.dumps(told)}")

    # -- checks ------------------------------------------------------------------------------------------------

    async def _check(self, shared: Shared) -> None:
        """Compare all answers that clients got with the stored messages."""
        figures = self.figures
        link = self._links[self._rng.randrange(len(self._links))]
        load = await messages(link, shared.names["load"])
        state = (await self._until(f"STREAM.INFO.{shared.names['load']}"))["state"]
        stored = [(seq, payload) for seq, _, payload in load]
        lost = shared.ledger.check_messages(stored, state["first_seq"], state["last_seq"])
        if lost:
            shared.ledger.violation("acked lost", f"{len(lost)} such as {min(lost).decode()}", len(lost))
        if self._args.what == "kills":
            info = await self._until(f"CONSUMER.INFO.{shared.names['load']}.worker")
            shared.ledger.check_floor(info["ack_floor"]["stream_seq"])
            if passed := {seq for seq, _ in stored} - shared.delivered:
                shared.ledger.violation("never delivered", f"{sorted(passed)[:5]}", len(passed))
        await self._check_replicas(shared, load)
        if not shared.losses:
            await self._judge_history(shared)
        figures.acked += len(shared.ledger.acked)
        figures.settled += len(shared.ledger.settled)
        figures.refusals += shared.refusals
        for judged in (shared.ledger, shared.history):
            figures.violations += judged.found
            figures.examples += judged.examples[: max(0, 20 - len(figures.examples))]

    async def _check_replicas(self, shared: Shared, load: list[tuple[int, str, bytes]]) -> None:
        """Read the stream through each server, whose own replica answers direct gets."""
        if self._args.server == "peer":
            return  # on this server it cannot be chosen which replica answers
        for name, link in zip(NAMES, self._links, strict=True):
            found = await messages(link, shared.names["load"], is_direct=True)
            if found != load:
                different = sorted(set(found) ^ set(load))[:3]
                shared.ledger.violation("replicas differ", f"{name}: {len(found)}, {len(load)}, {different}")

    async def _judge_history(self, shared: Shared) -> None:
        history = shared.history
        self.figures.operations += len(history.operations)
        stored: dict[str, dict[str, int]] = {}
        for purpose in ("kv", "log"):
            name = shared.names[purpose]
            is_dense = purpose == "log"
            stored |= values_by_register(await messages(self._links[0], name), name if is_dense else "")
        history.complete(stored, time.monotonic_ns())
        if self._judge is None:
            return
        verdict = await asyncio.to_thread(self._judge.judge, history, f"epoch{self._epochs}")
        for name in ("illegal", "undecided"):
            if verdict[name]:
                history.found[name] += len(verdict[name])
                history.examples.append(f"{name}: {verdict[name][:5]}, see {verdict['history']}")


def run(args: Namespace, scratch: Path, judge: Judge | None) -> dict[str, Any]:
    """Run what the command line requests."""
    wanted = args.faults.split(",")
    trio = Trio(
        args.server,
        args.mode,
        scratch,
        needs_disks=bool({*DISK_FAULTS} & {*wanted}),
        needs_clocks="clock" in wanted,
    )
    work = Run(args, trio, judge)
    broken = ""
    try:
        asyncio.run(work.go())
    except (Broken, AssertionError, ServerFailed, TimeoutError) as error:
        broken = f"{type(error).__name__}: {error}"
    finally:
        if args.keep and (broken or work.figures.violations):
            for name in trio.servers:
                trio.servers[name].kill()
            shutil.rmtree(args.keep / "servers", ignore_errors=True)
            trio.keep(args.keep / "servers")
        trio.close()
    return {
        **work.figures.report(),
        **({"broken": broken} if broken else {}),
        **({"not here": trio.missing} if trio.missing else {}),
        "damages": len(trio.damages),
        "refused starts": trio.refused_starts[:10],
    }

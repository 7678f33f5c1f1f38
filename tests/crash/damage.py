"""The damage matrix: every byte of the tail records and of each index, metadata and state file of a prepared store.

It runs in one process, with a Node on a virtual clock for each case. With --server peer or --process it uses real
processes and only a sample of the cases. A case is a copy of the store with one or two damages, a start, and a check.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerFailed
from tests.crash.damages import Damage, Tree, all_damages, sampled
from tests.crash.judge import Baseline, Told, Verdict, check_baseline, judge, observe
from tests.crash.script import HOUR_NS, Known, make_store
from tests.crash.servers import Speaker, framed, make_server, rng_of, stream_seq_of
from tests.support.node import options_with_store

from pyjs.base.clock import VirtualClock
from pyjs.base.disk import OsDisk
from pyjs.testing import RawClient, VirtualNode

JETSTREAM = "store/jetstream"
EXAMPLES_MAX = 8  # the number of examples per violation in the report
SAID = ("[WRN]", "[ERR]", "[FTL]")
STORES = ("stopped", "killed")


class NodeSpeaker:
    """The interface of servers.Speaker, for a Node in this process."""

    def __init__(self, fixture: VirtualNode) -> None:
        self._fixture = fixture
        self._client: RawClient = fixture.client()
        self._client.send(b"SUB _INBOX.x.> 1\r\n")
        self._client.take()

    def _ask(self, subject: bytes, payload: bytes, headers: bytes = b"") -> bytes:
        self._client.send(framed(subject, b"_INBOX.x.1", payload, headers))
        frames = self._client.frames()
        return frames[0].payload if frames else b""

    def try_api(self, name: str, /, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self._ask(f"$JS.API.{name}".encode(), json.dumps(body).encode() if body else b"") or b"{}"
        )
        return answer

    def raw_message(self, stream: str, seq: int) -> bytes:
        """Read the message directly from its store: through the API that would be most of the cost of a case."""
        jetstream = self._fixture.node.jetstream
        streams = jetstream.accounts["$G"].streams if jetstream is not None else {}
        message = streams[stream].store.get(seq) if stream in streams else None
        return repr(message).encode() if message is not None else b""

    def publish(self, subject: bytes, payload: bytes, headers: bytes = b"") -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._ask(subject, payload, headers) or b"{}")
        return answer

    def pull(self, stream: str, consumer: str, batch: int) -> list[tuple[int, bytes]]:
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        self._client.send(
            framed(subject, b"_INBOX.x.2", json.dumps({"batch": batch, "no_wait": True}).encode())
        )
        replies = [frame.reply for frame in self._client.frames()]
        return [(stream_seq_of(reply), reply) for reply in replies if reply.startswith(b"$JS.ACK.")]


class HastyDisk(OsDisk):
    """A disk that syncs nothing, because no case here ends in a crash."""

    def sync_file(self, fd: int) -> None:
        """Do nothing."""

    def sync_dir(self, path: str) -> None:
        """Do nothing."""


class InProcess:
    """Runs cases with a Node in this process."""

    def __init__(self, scratch: Path, now_ns: int) -> None:
        self._root = scratch / "case"
        self._now_ns = now_ns

    def run(
        self, tree: Tree, damages: tuple[Damage, ...], known: Known, baseline: Baseline | None
    ) -> Verdict | Baseline:
        """Check one case, or observe the store without damage if there is no baseline yet."""
        shutil.rmtree(self._root, ignore_errors=True)
        tree.write(self._root, damages)
        fixture = VirtualNode(options_with_store(self._root))
        fixture.clock = fixture.node.clock = VirtualClock(self._now_ns)
        fixture.node.disk = HastyDisk()
        try:
            fixture.node.start_jetstream()
            fixture.turn()
            fixture.advance(seconds=1)
            speaker = NodeSpeaker(fixture)
            if baseline is None:
                return observe(speaker)
            verdict = judge(speaker, tree, damages, known, baseline, self._told(fixture))
            self._redeliver(fixture, speaker, known, verdict)
            return verdict
        finally:
            fixture.node.stop()

    def _told(self, fixture: VirtualNode) -> Told:
        return _Later(fixture)

    def _redeliver(self, fixture: VirtualNode, speaker: NodeSpeaker, known: Known, verdict: Verdict) -> None:
        """Pull all messages after the ack wait: every unacknowledged message must be redelivered."""
        fixture.advance(seconds=2 * HOUR_NS // 1_000_000_000)
        given = {seq for seq, _ in speaker.pull("ORDERS", "worker", 1000)}
        state = speaker.try_api("STREAM.INFO.ORDERS", deleted_details=True).get("state")
        if state is None:
            return
        there = set(range(state["first_seq"], state["last_seq"] + 1)) - set(state.get("deleted", ()))
        missing = {seq for seq in known.unsettled() & there - given if speaker.raw_message("ORDERS", seq)}
        gone = "consumer gone" in verdict.violations or any("set aside" in note for note in verdict.notes)
        if missing and not gone:
            verdict.add("never delivered", f"{sorted(missing)[:5]}")


class _Later(Told):
    """Log and losses of the Node at the time of the question: damage to a message is found when it is read."""

    def __init__(self, fixture: VirtualNode) -> None:
        self._fixture = fixture

    @property
    def lines(self) -> list[str]:  # type: ignore[override]
        return [text for level, text in self._fixture.log.lines if level not in ("INF", "DBG", "TRC")]

    @property
    def lost(self) -> dict[str, int]:  # type: ignore[override]
        jetstream = self._fixture.node.jetstream
        assert jetstream is not None
        streams = jetstream.accounts["$G"].streams
        return {name: (stream.store.lost or (0,))[0] for name, stream in streams.items()}


class InProcesses:
    """Runs each case with a server process."""

    def __init__(self, scratch: Path, server: str) -> None:
        self._scratch = scratch
        self._server = server

    def run(
        self, tree: Tree, damages: tuple[Damage, ...], known: Known, baseline: Baseline | None
    ) -> Verdict | Baseline:
        """Check one case, or observe the store without damage if there is no baseline yet."""
        directory = self._scratch / "case"
        shutil.rmtree(directory, ignore_errors=True)
        tree.write(directory / JETSTREAM, damages)
        process = make_server(self._server, "default", directory)
        try:
            process.start()
            speaker = Speaker(process.port, timeout_s=10)
            if baseline is None:
                return observe(speaker)
            return judge(speaker, tree, damages, known, baseline, _LogFile(directory / "log"))
        finally:
            process.kill()


class _LogFile(Told):
    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def lines(self) -> list[str]:  # type: ignore[override]
        return [
            line
            for line in self._path.read_text("utf-8", "replace").splitlines()
            if any(w in line for w in SAID)
        ]

    @property
    def lost(self) -> None:  # type: ignore[override]
        return None


class Matrix:
    """Runs cases and adds up their findings."""

    def __init__(self, runner: InProcess | InProcesses, tree: Tree, known: Known) -> None:
        self._runner = runner
        self._tree = tree
        self._known = known
        baseline = runner.run(tree, (), known, None)
        assert isinstance(baseline, Baseline)
        check_baseline(baseline, known)
        self._baseline = baseline
        self.cases: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def run(self, damages: tuple[Damage, ...]) -> Verdict:
        """Run one case and count it."""
        self.cases[" + ".join(sorted(damage.kind for damage in damages))] += 1
        try:
            verdict = self._runner.run(self._tree, damages, self._known, self._baseline)
            assert isinstance(verdict, Verdict)
        except (ServerFailed, OSError, TimeoutError) as error:
            verdict = Verdict(violations={"no start": str(error)[-400:]})
        except Exception:  # an exception in the Node is a violation; continue with the next case
            verdict = Verdict(violations={"crash": traceback.format_exc()[-600:]})
        self.notes.update(verdict.notes)
        for name, text in verdict.violations.items():
            self.violations[name] += 1
            examples = self.examples.setdefault(name, [])
            if len(examples) < EXAMPLES_MAX:
                examples.append(f"{' and '.join(map(str, damages))}: {text}")
                print(f"{name}: {examples[-1]}", file=sys.stderr, flush=True)
        return verdict

    def report(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "cases": dict(self.cases),
            "violations": dict(self.violations),
            "notes": dict(self.notes),
            "examples": self.examples,
        }


def matrix_of(server: str, directory: Path, *, clean: bool, process: bool, seed: int) -> tuple[Matrix, Tree]:
    """Make the prepared store, and the runner of its cases."""
    known = make_store(server, directory / "made", clean=clean, seed=seed)
    tree = Tree(directory / "made" / JETSTREAM)
    runner = InProcesses(directory, server) if process else InProcess(directory, time.time_ns())
    return Matrix(runner, tree, known), tree


def cases_of(tree: Tree, args: argparse.Namespace) -> Iterator[tuple[Damage, ...]]:
    """Yield the damages of each case: the whole matrix or a sample of it, and pairs of damages."""
    rng = rng_of(args.seed, "damage")
    sample = args.cycles or (300 if args.process or args.server == "peer" else 0)
    singles = sampled(tree, rng, sample) if sample else all_damages(tree)
    pairs = sample // 10 if sample else 3000
    two = zip(sampled(tree, rng, pairs), sampled(tree, rng, pairs), strict=True)
    part, parts = map(int, args.part.split("/"))
    first = part - 1 + args.begin * parts
    yield from islice(chain(((damage,) for damage in singles), two), first, None, parts)


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run the matrix over a store that was stopped and one that was killed."""
    out: dict[str, Any] = {}
    process = args.process or args.server == "peer"
    for name in (args.store,) if args.store else STORES:
        clean = name == "stopped"
        matrix, tree = matrix_of(args.server, scratch / name, clean=clean, process=process, seed=args.seed)
        started = time.monotonic()
        for number, damages in enumerate(cases_of(tree, args)):
            matrix.run(damages)
            if number % 5000 == 4999:
                print(f"{name}: {number + 1} cases, {dict(matrix.violations)}", file=sys.stderr, flush=True)
        out[name] = {**matrix.report(), "seconds": round(time.monotonic() - started, 1)}
    return out

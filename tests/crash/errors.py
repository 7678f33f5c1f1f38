"""An error in the k-th call of a kind, for every k of a fixed sequence of operations, and its consequences.

Each case uses one server process. It works with the fault armed (or starts with it), is killed, restarts without the
fault, and must then have everything that it confirmed. Every request must have had an answer, and reading must have
continued.
"""

from __future__ import annotations

import argparse
import errno
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.harness.process import ServerFailed
from tests.crash.preload import KINDS, Faults, NoCompiler, build
from tests.crash.servers import Speaker, framed, make_server, rng_of

ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EMFILE": errno.EMFILE}
OPEN_ONLY = ("EMFILE",)
SMALL, LARGE = 12, 8
LARGE_SIZE = 20_000  # a few fill a segment
FORGOTTEN = "confirmed consumer acks are forgotten"
FIRST_READ = 1  # sequence of a message that was stored before the fault


@dataclass
class Confirmed:
    """The changes that the server confirmed."""

    messages: dict[int, bytes] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    settle_sent: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    streams: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    descriptions: set[str] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)
    slowest_ms: float = 0.0


class Worker:
    """Does the operations and records which of them were confirmed."""

    def __init__(self, port: int, confirmed: Confirmed) -> None:
        self._client = Speaker(port, timeout_s=5)
        self.confirmed = confirmed

    def before(self) -> None:
        """Create the stream and publish its first messages, without a fault."""
        self._api("STREAM.CREATE.A", name="A", subjects=["a.>"], max_bytes=262_144)
        self._consumer("c")
        for number in range(6):
            self._publish(b"before %d" % number)

    def work(self) -> None:
        """Do some operations of each kind."""
        for number in range(SMALL):
            self._publish(b"small %d" % number)
        self._settle(8)
        self._remove(2, no_erase=True)
        self._remove(3, no_erase=False)
        for number in range(LARGE):
            self._publish(b"%d" % number + b"L" * LARGE_SIZE)
        self._api("STREAM.UPDATE.A", name="A", subjects=["a.>"], max_bytes=262_144, description="new")
        self._api("STREAM.CREATE.B", name="B", subjects=["b"])
        self._consumer("d")
        self._api("STREAM.DELETE.B")
        self.confirmed.streams.discard("B")  # the stream may be deleted although that was not confirmed
        self._settle(4)
        self._publish(b"last")
        if not self._client.raw_message("A", FIRST_READ):
            self.confirmed.unanswered.append("a message of before cannot be read")

    def _consumer(self, name: str) -> None:
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 3_600_000_000_000}
        self._api(f"CONSUMER.DURABLE.CREATE.A.{name}", stream_name="A", config=config)

    def _timed(self, what: str, subject: bytes, payload: bytes) -> bytes | None:
        started = time.monotonic()
        try:
            answer = self._client.request(subject, payload)
        except TimeoutError:
            self.confirmed.unanswered.append(what)
            return None
        if b'"error":' in answer:
            self.confirmed.slowest_ms = max(self.confirmed.slowest_ms, (time.monotonic() - started) * 1000)
        return answer

    def _json(self, what: str, subject: bytes, payload: bytes) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._timed(what, subject, payload) or b"{}")
        if "error" in answer:
            self.confirmed.errors[what] += 1
        return answer

    def _publish(self, payload: bytes) -> None:
        answer = self._json("publish", b"a.x", payload)
        if "seq" in answer and "error" not in answer:
            self.confirmed.messages[answer["seq"]] = payload

    def _api(self, name: str, /, **body: Any) -> None:
        answer = self._json(name, f"$JS.API.{name}".encode(), json.dumps(body).encode() if body else b"")
        if "error" in answer or not answer:
            return
        verb, _, stream = name.removeprefix("STREAM.").partition(".")
        if verb == "CREATE":
            self.confirmed.streams.add(stream)
        elif verb == "DELETE":
            self.confirmed.gone.add(stream)
        elif verb == "UPDATE":
            self.confirmed.descriptions.add(body["description"])

    def _remove(self, seq: int, no_erase: bool) -> None:
        body = {"seq": seq, "no_erase": no_erase}
        answer = self._json("remove", b"$JS.API.STREAM.MSG.DELETE.A", json.dumps(body).encode())
        if answer.get("success"):
            self.confirmed.removed.add(seq)
        self.confirmed.messages.pop(seq, None)  # the message may be deleted although that was not confirmed

    def _settle(self, count: int) -> None:
        """Send acks that ask for an answer; an ack whose change was not stored gets none, which is correct."""
        pulled = {b"%sk%d" % (self._client.inbox, seq): (seq, reply) for seq, reply in self._pull(count)}
        self._client.send(b"".join(framed(reply, inbox, b"+ACK") for inbox, (_, reply) in pulled.items()))
        self.confirmed.settle_sent |= {seq for seq, _ in pulled.values()}
        # the answer to the first fence may be sent in the turn that processes the acks, before their answers
        fences = 2
        self._client.send(framed(b"$JS.API.INFO", b"%sfence" % self._client.inbox, b""))
        for subject, _, _, _ in self._client.frames():
            if subject in pulled:
                self.confirmed.settled.add(pulled[subject][0])
            elif subject.endswith(b"fence"):
                fences -= 1
                if not fences:
                    return
                self._client.send(framed(b"$JS.API.INFO", b"%sfence" % self._client.inbox, b""))

    def _pull(self, count: int) -> list[tuple[int, bytes]]:
        try:
            return self._client.pull("A", "c", count)
        except TimeoutError:
            self.confirmed.unanswered.append("pull")
            return []


def check(port: int, confirmed: Confirmed) -> list[str]:
    """Return the differences between the store and the confirmed changes."""
    client = Speaker(port)
    wrong: list[str] = []
    names = set(client.api("STREAM.NAMES").get("streams") or [])
    wrong += [f"stream {name} is gone" for name in confirmed.streams - confirmed.gone - names]
    wrong += [f"stream {name} is there again" for name in confirmed.gone & names]
    if "A" not in names:
        return wrong
    lost = [seq for seq in confirmed.messages if not client.raw_message("A", seq)]
    wrong += [f"acked lost: {lost}"] if lost else []
    risen = [seq for seq in confirmed.removed if client.raw_message("A", seq)]
    wrong += [f"risen: {risen}"] if risen else []
    description = client.api("STREAM.INFO.A")["config"].get("description")
    if confirmed.descriptions and description not in confirmed.descriptions:
        wrong.append("the confirmed configuration is not there")
    info = client.try_api("CONSUMER.INFO.A.c")
    if "error" in info:
        return [*wrong, "consumer gone"]
    floor = info["ack_floor"]["stream_seq"]
    ahead = [seq for seq in confirmed.messages if seq <= floor and seq not in confirmed.settle_sent]
    wrong += [f"floor {floor} ahead of {ahead[:3]}"] if ahead else []
    first_owed = min(
        confirmed.settle_sent - confirmed.settled, default=max(confirmed.settle_sent, default=0) + 1
    )
    again = [seq for seq in confirmed.settled if floor < seq < first_owed and seq in confirmed.messages]
    wrong += [f"{FORGOTTEN}: {again}"] if again else []
    answer = client.publish(b"a.new", b"new")
    if answer.get("seq", 0) <= max(confirmed.messages, default=0):
        wrong.append(f"no new message, or under an old sequence: {answer}")
    return wrong


@dataclass
class Case:
    """One fault, armed before the work or, if `start`, before the server is restarted after it."""

    kind: str
    error: str
    at: int
    start: bool

    def __str__(self) -> str:
        return f"{self.error} in {self.kind} {self.at}{' of a start' if self.start else ''}"


class Runner:
    """Runs cases in directories below `scratch`."""

    def __init__(self, scratch: Path, mode: str) -> None:
        self._scratch = scratch
        self._mode = mode
        self._library = build(scratch)
        self._number = 0
        self.slowest_ms = 0.0
        self.errors: Counter[str] = Counter()

    def count_calls(self) -> dict[str, dict[str, int]]:
        """Return the number of calls of each kind that the work and a start make."""
        counts = self._run(None)
        return counts

    def run(self, case: Case) -> list[str]:
        """Return the violations."""
        wrong: list[str] = []
        self._run(case, wrong)
        return wrong

    def _run(self, case: Case | None, wrong: list[str] | None = None) -> dict[str, dict[str, int]]:
        self._number += 1
        wrong = [] if wrong is None else wrong
        directory = self._scratch / str(self._number)
        directory.mkdir()
        faults = Faults(self._library, directory, "/store/")
        server = make_server("ours", self._mode, directory, prefix=faults.prefix)
        confirmed = Confirmed()
        counts = {}
        try:
            server.start()
            worker = Worker(server.port, confirmed)
            worker.before()
            counts["work"] = self._work(worker, faults, case, wrong)
            self.slowest_ms = max(self.slowest_ms, confirmed.slowest_ms)
            self.errors.update(confirmed.errors)
            wrong += [f"no answer: {what}" for what in confirmed.unanswered]
            server.kill()
            before = faults.calls
            if case is not None and case.start:
                faults.arm((case.kind,), ERRORS[case.error], case.at)
                try:
                    server.start()
                except ServerFailed:
                    self.errors["a start was refused"] += 1
                server.kill()
            faults.disarm()
            server.start()
            counts["start"] = _difference(before, faults.calls)
            wrong += self._fair(check(server.port, confirmed), case)
            if wrong:
                wrong.append(_said(directory / "log"))
        finally:
            server.kill()
        return counts

    def _fair(self, wrong: list[str], case: Case | None) -> list[str]:
        """Return `wrong` without losses that one EIO may cause: it looks like a bad sector in a consumer's state."""
        if case is None or not case.start or case.error != "EIO":
            return wrong
        forgotten = [each for each in wrong if each.startswith(FORGOTTEN)]
        self.errors["a consumer went back, EIO at a start"] += len(forgotten)
        return [each for each in wrong if each not in forgotten]

    def _work(self, worker: Worker, faults: Faults, case: Case | None, wrong: list[str]) -> dict[str, int]:
        before = faults.calls
        if case is not None and not case.start:
            faults.arm((case.kind,), ERRORS[case.error], case.at)
        try:
            worker.work()
        except (OSError, ConnectionError) as error:
            wrong.append(f"the connection ended: {error!r}")
        faults.disarm()
        return _difference(before, faults.calls)


def _difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {kind: after[kind] - before[kind] for kind in KINDS}


def _said(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").splitlines()
    return " | ".join(line[-200:] for line in lines if "[ERR]" in line or "[WRN]" in line)[:800]


def cases_of(counts: dict[str, dict[str, int]]) -> list[Case]:
    """Return a case for each counted call and each error."""
    return [
        Case(kind, error, at, phase == "start")
        for phase, calls in counts.items()
        for kind, count in calls.items()
        for error in ERRORS
        for at in range(count)
        if kind == "open" or error not in OPEN_ONLY
    ]


def run(args: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Run every case, or --cycles of them."""
    if args.server == "peer":
        return {"skipped": "nats-server makes its system calls without libc; see outages for its figures"}
    try:
        runner = Runner(scratch, args.mode)
    except NoCompiler as reason:
        return {"skipped": str(reason)}
    counts = runner.count_calls()
    cases = cases_of(counts)
    if args.cycles:
        cases = rng_of(args.seed, "errors").sample(cases, min(args.cycles, len(cases)))
    failed: dict[str, list[str]] = {}
    for number, case in enumerate(cases):
        wrong = runner.run(case)
        if wrong:
            failed[str(case)] = wrong
            print(f"errors: {case}: {wrong}", file=sys.stderr, flush=True)
        if number % 100 == 99:
            print(f"errors: {number + 1} of {len(cases)}", file=sys.stderr, flush=True)
    return {
        "cases": len(cases),
        "calls": counts,
        "failed": failed,
        "slowest error answer ms": round(runner.slowest_ms, 1),
        "error answers": dict(runner.errors),
    }

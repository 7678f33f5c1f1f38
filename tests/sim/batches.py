"""Atomic and fast batches in a simulation: two separate streams, and their invariants.

ATOMIC: either all messages of a batch are stored, consecutive and in order, or none. None are stored if no commit was
sent or the batch was refused. An acknowledged batch is stored under the acknowledged sequence. In half of the worlds,
all but the smallest batches are committed in steps of a few messages.

FAST: all messages covered by an acknowledgement are stored. The messages of a batch are in order, without duplicates.

As in checkers.py, acknowledgements of the last interval before a power cut do not count.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.sim.checkers import demand
from tests.sim.features import served_messages

if TYPE_CHECKING:
    from tests.sim.world import World

    from pyjs.store.store import StoredMessage
    from pyjs.testing import Frame

ATOMIC, FAST = "ATOMIC", "FAST"
CONFIGS: dict[str, dict[str, Any]] = {
    ATOMIC: {"name": ATOMIC, "subjects": ["ATOMIC.*"], "allow_atomic": True, "allow_direct": True},
    FAST: {"name": FAST, "subjects": ["FAST.*"], "allow_batched": True, "allow_direct": True},
}
OPEN_MAX = 3  # maximum number of batches that are filled at the same time
# Refusals of which the reason is certain: a known id, a wrong expected sequence, an ended batch.
SURE_REFUSALS = (10071, 10201, 10176)
OP_START, OP_APPEND, OP_COMMIT, OP_END = range(4)


@dataclass(eq=False)
class Batch:
    """One batch, and the answers that it got."""

    number: int
    client: int
    total: int
    size: int  # size of a payload in bytes
    lines: dict[int, str] = field(default_factory=dict)  # additional headers, by message
    expected: int | None = None  # expected last sequence at the commit
    sent: int = 0
    committed: bool = False  # the commit was sent
    refused: bool = False
    seq: int = 0  # acknowledged sequence of the message `last`
    last: int = 0
    # acknowledged messages, and the time of the acknowledgement
    told: dict[int, int] = field(default_factory=dict)


class Batches:
    """The two streams of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(world.seed + 11)
        self.in_steps = self.rng.random() < 0.5
        self.sure: set[str] = set()  # streams whose creation was confirmed
        self.asked: set[str] = set()
        self.batches: dict[str, dict[int, Batch]] = {ATOMIC: {}, FAST: {}}
        self.open: dict[str, list[Batch]] = {ATOMIC: [], FAST: []}
        self.ids: list[str] = []
        self.last_told = 0

    # -- requests of clients ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Configure a process that has just been created."""
        jetstream = self.world.process.node.jetstream
        if self.in_steps and jetstream is not None:
            jetstream.shared.batches.at_once_max, jetstream.shared.batches.part_size = 500, 700

    def act(self, at: int) -> None:
        """Create a stream, begin a batch, or continue one."""
        name = self.rng.choice((ATOMIC, ATOMIC, FAST))
        if name not in self.sure:
            if name not in self.asked:
                self.asked.add(name)
                self.world.request_api(
                    at, f"STREAM.CREATE.{name}", CONFIGS[name], lambda body: self._created(name, body)
                )
            return
        if len(self.open[name]) < OPEN_MAX and self.rng.random() < 0.5:
            self.open[name].append(self._made(at, name))
        if not self.open[name]:
            return
        batch = self.rng.choice(self.open[name])
        for _ in range(self.rng.choice((1, 3, batch.total))):
            if batch.sent < batch.total:
                self._send(name, batch)
        # in the second case, the batch is abandoned
        if batch.sent == batch.total or self.rng.random() < 0.05:
            self.open[name].remove(batch)

    def _created(self, name: str, body: dict[str, Any]) -> None:
        self.world.say(f"created {name}: {body.get('error', 'ok')}")
        self.asked.discard(name)
        if "error" not in body:
            self.sure.add(name)
        else:
            demand(self.world.faults, f"{name} not created: {body}")

    def _made(self, at: int, name: str) -> Batch:
        rng = self.rng
        self.world.number += 1
        batch = Batch(self.world.number, at, rng.choice((1, 2, 5, 12, 30)), rng.choice((20, 20, 300, 2000)))
        self.batches[name][batch.number] = batch
        if name == ATOMIC and rng.random() < 0.3:
            msg_id = rng.choice(self.ids[-4:]) if self.ids and rng.random() < 0.4 else f"id{batch.number}"
            self.ids.append(msg_id)
            batch.lines[rng.randrange(1, batch.total + 1)] = f"Nats-Msg-Id: {msg_id}"
        elif name == ATOMIC and rng.random() < 0.2:
            batch.expected = max(0, self.last_told + rng.choice((0, 0, 0, 1, -1)))
            batch.lines[1] = f"Nats-Expected-Last-Sequence: {batch.expected}"
        return batch

    def _send(self, name: str, batch: Batch) -> None:
        batch.sent += 1
        number, is_last = batch.sent, batch.sent == batch.total
        payload = (b"%d.%d.%d." % (batch.number, number, batch.total)).ljust(batch.size, b"x")
        subject = f"{name}.{self.rng.choice('ab')}"
        if name == FAST:
            operation = OP_COMMIT if is_last else OP_START if number == 1 else OP_APPEND
            inbox = b"_I.%d.f%d.b%d.3.fail.%d.%d.$FI" % (
                batch.client, batch.number, batch.number, number, operation
            )  # fmt: skip
            self.world._send(batch.client, subject, payload, b"", inbox)
            batch.committed = batch.committed or is_last
            return
        lines = [f"Nats-Batch-Id: b{batch.number}", f"Nats-Batch-Sequence: {number}"]
        lines += [batch.lines[number]] if number in batch.lines else []
        lines += ["Nats-Batch-Commit: 1"] if is_last else []
        headers = "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()
        if not is_last:
            self.world._send(batch.client, subject, payload, headers)
            return
        batch.committed = True
        self.world._request(
            batch.client, subject, payload, lambda frame: self._answered(batch, frame), headers
        )

    # -- answers to clients ----------------------------------------------------------------------------------------

    def _answered(self, batch: Batch, frame: Frame) -> None:
        if frame.headers:
            return
        body = json.loads(frame.payload)
        self.world.say(f"batch #{batch.number} of {batch.total}: {frame.payload.decode()}")
        if "error" in body:
            code = body["error"]["err_code"]
            demand(self.world.faults or code in SURE_REFUSALS, f"batch #{batch.number}: {body}")
            batch.refused = code in SURE_REFUSALS
            return
        demand(body.get("count") == batch.total, f"batch #{batch.number} of {batch.total}: {body}")
        if batch.expected is not None:
            first = body["seq"] - batch.total + 1
            demand(
                first == batch.expected + 1, f"batch #{batch.number}: expected {batch.expected}, got {body}"
            )
        batch.seq, batch.last = body["seq"], batch.total
        self.last_told = batch.seq
        batch.told = dict.fromkeys(range(1, batch.total + 1), self.world.moment())

    def heard(self, frame: Frame) -> None:
        """Handle an answer to a message of a fast batch."""
        words = frame.subject.split(b".")
        batch = self.batches[FAST][int(words[2][1:])]
        if frame.headers:
            return
        body = json.loads(frame.payload)
        self.world.say(f"fast batch #{batch.number} of {batch.total}: {frame.payload.decode()}")
        if body.get("type") == "ack":
            demand(body["seq"] <= batch.sent, f"fast batch #{batch.number}: {body} of {batch.sent}")
            self._tell(batch, body["seq"])
        elif "count" in body and "error" not in body:
            demand(body["count"] <= batch.sent, f"fast batch #{batch.number}: {body} of {batch.sent}")
            self._tell(batch, body["count"])
            if body["count"]:
                batch.seq, batch.last = body["seq"], body["count"]
        elif "error" in body:
            code = body["error"]["err_code"]
            demand(self.world.faults or code == 10208, f"fast batch #{batch.number}: {body}")

    def _tell(self, batch: Batch, up_to: int) -> None:
        for number in range(1, up_to + 1):
            batch.told.setdefault(number, self.world.moment())

    # -- crashes ---------------------------------------------------------------------------------------------------

    def died(self, how: str, since_ns: int) -> None:
        """Forget open batches; after a power cut, withdraw acknowledgements later than `since_ns`."""
        self.asked.clear()
        for name in (ATOMIC, FAST):
            self.open[name] = []
            for batch in self.batches[name].values():
                late = {number for number, told_ns in batch.told.items() if told_ns > since_ns}
                if how != "power":  # acknowledged now: the next process must sync it first
                    batch.told |= dict.fromkeys(late, self.world.moment())
                    continue
                batch.told = {number: told_ns for number, told_ns in batch.told.items() if number not in late}
                batch.seq = batch.seq if batch.last in batch.told else 0

    # -- invariants ------------------------------------------------------------------------------------------------

    def audit(self, served: dict[str, Any]) -> None:
        """Check both streams."""
        for name, messages in served_messages(self.world, self.sure, (ATOMIC, FAST), served):
            self._audit(name, messages)

    def _audit(self, name: str, messages: list[StoredMessage]) -> None:
        seqs: dict[int, dict[int, int]] = {}  # batch -> number of the message in the batch -> sequence
        for message in messages:
            fields = message.payload.split(b".", 2)
            number, at = int(fields[0]), int(fields[1])
            batch = self.batches[name].get(number)
            demand(batch is not None and at <= batch.sent, f"{name}: {message.seq} was not sent")
            there = seqs.setdefault(number, {})
            demand(at not in there, f"{name}: {at} of #{number} is there twice")
            there[at] = message.seq
        for each in self.batches[name].values():
            there = seqs.get(each.number, {})
            self._check_told(name, each, there)
            if name == ATOMIC:
                self._check_whole(each, there)
            else:
                order = [there[at] for at in sorted(there)]
                demand(order == sorted(order), f"{name}: #{each.number} is out of order: {there}")

    def _check_told(self, name: str, batch: Batch, there: dict[int, int]) -> None:
        for at in batch.told:
            demand(at in there, f"{name}: {at} of #{batch.number} was acknowledged and is gone")
        if batch.seq:
            found = there[batch.last]
            demand(found == batch.seq, f"{name}: #{batch.number} was told {batch.seq}, and is at {found}")

    def _check_whole(self, batch: Batch, there: dict[int, int]) -> None:
        text = f"{ATOMIC}: #{batch.number} of {batch.total}"
        if not there:
            return
        demand(batch.committed, f"{text} is there without its commit")
        demand(not batch.refused, f"{text} was refused and is there")
        demand(len(there) == batch.total, f"{text} is there in part: {there}")
        first = there[1]
        demand(all(there[at] == first + at - 1 for at in there), f"{text} is not in one piece: {there}")

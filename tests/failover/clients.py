"""Clients that run until they are stopped: publishers with message ids, a consumer, and users of registers.

Publishers write to the ledger of tests/crash, users of registers to a history. Each client has connections to all
three servers, and uses another one if it gets no answer.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from base64 import b64decode
from collections import Counter
from dataclasses import dataclass, field

from tests.crash.ledger import Ledger
from tests.crash.servers import PAYLOAD_SIZE, id_header, stream_seq_of
from tests.failover.history import UNKNOWN, History, Operation
from tests.failover.link import Link, Message

WAIT_S = 2.0  # seconds to wait for an answer
RETRY_S = 0.3  # seconds before a publish is repeated through another server
PULL = 50
REST_S = 0.01  # pause after a request that could not be sent or got no answer
WRONG_LAST = (10071, 10164)  # error codes of a write whose expected sequence was wrong


class Shared:
    """The data shared by all clients of a run."""

    def __init__(self, links: list[Link], names: dict[str, str]) -> None:
        self.links = links
        self.names = names  # names of the streams by purpose: load, kv, log
        self.ledger = Ledger()
        self.history = History()
        self.stop = asyncio.Event()
        self.struck_at = 0.0  # time at which the current fault began; 0: no fault
        self.next_ack: asyncio.Future[float] | None = (
            None  # seconds from the fault to the first answer after it
        )
        self.refusals: Counter[str] = Counter()
        self.delivered: set[int] = set()
        self.losses = 0  # number of power cuts that may have removed acknowledged messages
        self.is_losing = False  # such a power cut is in progress

    def strike(self) -> asyncio.Future[float]:
        """Begin a fault; the result is the time until a message sent after this call is acknowledged."""
        self.struck_at = time.monotonic()
        self.next_ack = asyncio.get_running_loop().create_future()
        return self.next_ack

    def forgive(self, since: float) -> None:
        """Accept that messages acknowledged after `since` are lost, because the power failed before a sync."""
        self.losses, self.is_losing = self.losses + 1, False
        ledger = self.ledger
        for message_id in [each for each, at in ledger.acked_at.items() if at > since]:
            del ledger.acked_at[message_id], ledger.acked[message_id]
            ledger.unacked.add(message_id)
        for seq in [seq for seq, at in ledger.settled.items() if at > since]:
            del ledger.settled[seq]

    def acked(self, message_id: bytes, answer: Message, sent_at: float) -> int:
        """Handle the answer to a publish; return the sequence in the answer, or 0 if there is none."""
        if answer.is_status or not answer.payload:
            return 0
        told = json.loads(answer.payload)
        if "error" in told:
            self.refusals[told["error"]["description"]] += 1
            return 0
        self.ledger.ack(message_id, told["seq"])
        if self.next_ack is not None and not self.next_ack.done() and sent_at >= self.struck_at:
            self.next_ack.set_result(answer.at_ns / 1e9 - self.struck_at)
        seq: int = told["seq"]
        return seq


async def publish_steadily(shared: Shared, every_s: float) -> None:
    """Publish at a steady rate through all servers, without waiting for answers."""
    tasks: set[asyncio.Task[int]] = set()
    number = 0
    while not shared.stop.is_set():
        number += 1
        link = shared.links[number % len(shared.links)]
        if link.is_up:
            task = asyncio.create_task(_publish(shared, link, b"s%d" % number, WAIT_S))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(every_s)
    await asyncio.gather(*tasks)


async def publish_in_order(shared: Shared, name: str) -> None:
    """Publish one message after another, and repeat each until it is acknowledged; the sequences must increase."""
    number, last, at, losses = 0, 0, 0, 0
    while not shared.stop.is_set():
        number += 1
        message_id, seq = b"%b-%d" % (name.encode(), number), 0
        while not seq and not shared.stop.is_set():
            seq = await _publish(shared, shared.links[at % len(shared.links)], message_id, RETRY_S)
            if not seq:
                at += 1
                await asyncio.sleep(REST_S)
        if losses != shared.losses:  # sequences may be used again
            last, losses = 0, shared.losses
        if seq and seq <= last and not shared.is_losing:
            shared.ledger.violation("order", f"{message_id.decode()} is {seq}, the one before it {last}")
        last = max(last, seq)


async def _publish(shared: Shared, link: Link, message_id: bytes, wait_s: float) -> int:
    payload = (message_id + b" ").ljust(PAYLOAD_SIZE, b"x")
    if message_id not in shared.ledger.acked:
        shared.ledger.unacked.add(message_id)
    sent_at = time.monotonic()
    subject = f"{shared.names['load']}.x".encode()
    answer = await link.request(subject, payload, id_header(message_id), wait_s)
    return 0 if answer is None else shared.acked(message_id, answer, sent_at)


async def resend(shared: Shared, patience_s: float) -> None:
    """Publish all unacknowledged messages again, until each is acknowledged."""
    deadline = time.monotonic() + patience_s
    while shared.ledger.unacked:
        assert time.monotonic() < deadline, f"{len(shared.ledger.unacked)} messages are never acknowledged"
        for link in shared.links:
            some = sorted(shared.ledger.unacked)[:200]
            await asyncio.gather(*(_publish(shared, link, each, WAIT_S) for each in some))
        await asyncio.sleep(REST_S)


async def settle(shared: Shared, name: str, until_empty: bool = False) -> None:
    """Pull messages and acknowledge each with a double ack."""
    at = 0
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{shared.names['load']}.{name}".encode()
    body = json.dumps({"batch": PULL, "expires": 300_000_000}).encode()
    while until_empty or not shared.stop.is_set():
        link = shared.links[at % len(shared.links)]
        messages = await link.gather(subject, body, wait_s=0.6, expected=PULL)
        due = [each for each in messages if each.reply.startswith(b"$JS.ACK.")]
        _note_deliveries(shared, due)
        await asyncio.gather(*(_confirm(shared, link, each.reply) for each in due))
        if not due:
            at += 1
            if until_empty and await _is_empty(shared, link, name):
                return
            await asyncio.sleep(REST_S)


def _note_deliveries(shared: Shared, due: list[Message]) -> None:
    for message in due:
        seq = stream_seq_of(message.reply)
        shared.delivered.add(seq)
        shared.ledger.settle_sent.add(seq)
        settled_at = shared.ledger.settled.get(seq)
        if settled_at is not None and settled_at < message.at_ns / 1e9 - WAIT_S:
            shared.ledger.violation("redelivered", f"{seq} was acknowledged, and confirmed")


async def _confirm(shared: Shared, link: Link, reply: bytes) -> None:
    answer = await link.request(reply, b"+ACK", wait_s=RETRY_S)
    if answer is not None and not answer.is_status:
        shared.ledger.settled.setdefault(stream_seq_of(reply), answer.at_ns / 1e9)


async def _is_empty(shared: Shared, link: Link, name: str) -> bool:
    info = await link.api(f"CONSUMER.INFO.{shared.names['load']}.{name}")
    return info.get("num_pending") == 0 and info.get("num_ack_pending") == 0


@dataclass
class User:
    """A user of registers: executes one operation after another, and waits for each result."""

    shared: Shared
    number: int
    rng: random.Random
    keys: list[str]
    operations_max: int  # maximum number of operations of all users
    # register -> the newest sequence that this client has seen
    seen: dict[str, int] = field(default_factory=dict)
    count: int = 0

    async def run(self) -> None:
        """Execute operations until the run is stopped, or all users together have executed enough."""
        at = self.number
        while not self.shared.stop.is_set() and len(self.shared.history.operations) < self.operations_max:
            link = self.shared.links[at % len(self.shared.links)]
            if not link.is_up:
                at += 1
                await asyncio.sleep(REST_S)
                continue
            operation = await self._one(link)
            self.shared.history.operations.append(operation)
            if not operation.done and operation.seq == UNKNOWN:
                at += 1
                # the operation may still be in progress, so later operations count as another client's
                self.number += 1000
                await asyncio.sleep(REST_S)

    async def _one(self, link: Link) -> Operation:
        """Execute one operation."""
        self.count += 1
        chance = self.rng.random()
        kv, log = self.shared.names["kv"], self.shared.names["log"]
        if chance < 0.15:
            return await self._write(link, Operation(log, "write", self.number, 0, is_dense=True), f"{log}.x")
        if chance < 0.2:
            return await self._last(link, Operation(log, "read", self.number, 0, is_dense=True))
        key = self.rng.choice(self.keys)
        register = f"{kv}.{key}"
        if chance < 0.6:
            return await self._write(link, Operation(register, "write", self.number, 0), register)
        kind = "read" if chance < 0.85 else "loose"
        return await self._read(link, Operation(register, kind, self.number, 0), kv)

    async def _write(self, link: Link, operation: Operation, subject: str) -> Operation:
        """Publish; most writes expect the newest sequence that this client has seen."""
        operation.value = f"{self.number}-{self.count}"
        headers = b"NATS/1.0\r\n"
        if self.rng.random() < 0.7:
            operation.expect = self.seen.get(operation.register, 0)
            name = (
                b"Nats-Expected-Last-Sequence"
                if operation.is_dense
                else b"Nats-Expected-Last-Subject-Sequence"
            )
            headers += b"%b: %d\r\n" % (name, operation.expect)
        if self.rng.random() < 0.1 and not operation.is_dense:
            headers += b"KV-Operation: DEL\r\n"
        operation.call = time.monotonic_ns()
        answer = await link.request(subject.encode(), operation.value.encode(), headers + b"\r\n", WAIT_S)
        if answer is None or answer.is_status or not answer.payload:
            return operation
        told = json.loads(answer.payload)
        error = told.get("error")
        if error is None:
            operation.back, operation.seq, operation.done = answer.at_ns, told["seq"], True
        else:
            operation.back = answer.at_ns
            operation.seq = _named_seq(error)
            self.shared.refusals[error["description"].rstrip("0123456789")] += 1
        self._learn(operation)
        return operation

    async def _read(self, link: Link, operation: Operation, stream: str) -> Operation:
        """Get the newest message of a subject: from the leader, or from any replica if the read may be stale."""
        is_loose = operation.kind == "loose"
        name = f"DIRECT.GET.{stream}.{operation.register}" if is_loose else f"STREAM.MSG.GET.{stream}"
        body = b"" if is_loose else json.dumps({"last_by_subj": operation.register}).encode()
        operation.call = time.monotonic_ns()
        answer = await link.request(f"$JS.API.{name}".encode(), body, wait_s=WAIT_S)
        if answer is None:
            return operation
        found = _direct(answer) if is_loose else _got(answer)
        if found is not None:
            operation.seq, operation.value = found
            operation.back, operation.done = answer.at_ns, True
            self._learn(operation)
        return operation

    async def _last(self, link: Link, operation: Operation) -> Operation:
        """Request the last sequence of a stream."""
        operation.call = time.monotonic_ns()
        subject = f"$JS.API.STREAM.INFO.{operation.register}".encode()
        answer = await link.request(subject, wait_s=WAIT_S)
        if answer is None or answer.is_status or not answer.payload:
            return operation
        told = json.loads(answer.payload)
        if "state" in told:
            operation.seq, operation.back, operation.done = told["state"]["last_seq"], answer.at_ns, True
            self._learn(operation)
        return operation

    def _learn(self, operation: Operation) -> None:
        if operation.seq != UNKNOWN:
            self.seen[operation.register] = operation.seq


def _named_seq(error: dict[str, object]) -> int:
    """Return the sequence in the text of a refusal."""
    if error["err_code"] not in WRONG_LAST:
        return UNKNOWN
    last = str(error["description"]).rpartition(" ")[2]
    return int(last) if last.isdigit() else UNKNOWN


def _got(answer: Message) -> tuple[int, str] | None:
    """Return the sequence and the value in an answer to MSG.GET, or None if the answer has neither.

    The sequence is 0 if the answer says that there is no message.
    """
    if answer.is_status or not answer.payload:
        return None
    told = json.loads(answer.payload)
    if "error" in told:
        return (0, "") if told["error"]["err_code"] == 10037 else None
    message = told["message"]
    return message["seq"], b64decode(message.get("data", "")).decode()


def _direct(answer: Message) -> tuple[int, str] | None:
    """Return the sequence and the value in an answer to a direct get, or None if the answer has neither.

    The sequence is 0 if the answer says that there is no message.
    """
    if answer.headers.startswith(b"NATS/1.0 404"):
        return 0, ""
    if answer.is_status:
        return None
    for line in answer.headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"Nats-Sequence":
            return int(value), answer.payload.decode()
    return None

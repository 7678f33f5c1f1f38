"""Counters and schedules in a simulation: two separate streams, and their invariants.

COUNT: each message of a subject has the sum of the previous message and its own increment. No increment counts twice.
An acknowledged increment is stored, with the acknowledged value. Of an atomic batch, all increments count, or none.

SCHED: a message produced by a schedule belongs to a schedule that was sent. The message is not earlier than its
schedule demands, and not earlier than the previous produced message has announced. It does not follow a message that
replaced or ended the schedule. A schedule for one time produces one message; if the schedule was confirmed, the
message is produced soon after that time.

As in checkers.py, acknowledgements of the last interval before a power cut do not count.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.sim.checkers import demand

from pyjs.base.gotext import moment_text
from pyjs.jetstream.config.json_strict import parse_time_ns
from pyjs.jetstream.stream.features.headers import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.world import World

    from pyjs.store.store import StoredMessage
    from pyjs.testing import Frame

NS_PER_S = 1_000_000_000
LATE_NS = 2 * NS_PER_S  # maximum delay of a confirmed schedule while the process runs
COUNT, SCHED = "COUNT", "SCHED"
CONFIGS: dict[str, dict[str, Any]] = {
    COUNT: {"name": COUNT, "subjects": ["COUNT.*"], "allow_msg_counter": True, "allow_atomic": True},
    SCHED: {"name": SCHED, "subjects": ["SCHED.>"], "allow_msg_schedules": True, "allow_direct": True},
}
KEYS = ("a", "b", "c")


@dataclass(eq=False)
class Sent:
    """One publish: an increment, a schedule, or the end of a schedule."""

    number: int
    key: str
    amount: int = 0
    due_ns: int = 0  # time of a schedule for one time; 0: another kind of message
    interval_ns: int = 0
    seq: int = 0
    value: str = ""
    told_ns: int = 0  # time of the acknowledgement; 0: none
    sent_ns: int = 0
    products: list[StoredMessage] = field(default_factory=list)
    batch: list[Sent] = field(default_factory=list)  # all messages of a batch, in its last message


def served_messages(
    world: World, sure: set[str], names: tuple[str, ...], served: dict[str, Any]
) -> Iterator[tuple[str, list[StoredMessage]]]:
    """Yield the messages of each stream in `names` that is served; a stream in `sure` must be served."""
    for name in names:
        demand(name not in sure or name in served, f"stream {name} is gone")
        if name not in served:
            continue
        sure.add(name)
        store = served[name].store
        found = [store.get(seq) for seq in range(store.first_seq, store.last_seq + 1)]
        messages = [message for message in found if message is not None]
        world.say(f"audit {name}: {len(messages)} of {store.first_seq}..{store.last_seq}")
        yield name, messages


class Features:
    """The two streams of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = random.Random(world.seed + 7)
        self.sure: set[str] = set()  # streams whose creation was confirmed
        self.asked: set[str] = set()
        self.sent: dict[str, dict[int, Sent]] = {COUNT: {}, SCHED: {}}
        self.cut_ns = -1  # time of the last power cut

    # -- requests of clients ---------------------------------------------------------------------------------------

    def act(self, at: int) -> None:
        """Create a stream, or publish to one."""
        name = self.rng.choice((COUNT, SCHED))
        if name not in self.sure:
            if name not in self.asked:
                self.asked.add(name)
                self.world.request_api(
                    at, f"STREAM.CREATE.{name}", CONFIGS[name], lambda body: self._created(name, body)
                )
        elif name == COUNT:
            self._count(at)
        else:
            self._schedule(at)

    def _created(self, name: str, body: dict[str, Any]) -> None:
        self.world.say(f"created {name}: {body.get('error', 'ok')}")
        self.asked.discard(name)
        if "error" not in body:
            self.sure.add(name)
        else:
            demand(self.world.faults, f"{name} not created: {body}")

    def _count(self, at: int) -> None:
        batch = [self._next(COUNT) for _ in range(self.rng.choice((1, 1, 1, 2, 9)))]
        for number, sent in enumerate(batch, 1):
            sent.amount = self.rng.choice((1, -1, 7, 10**20))
            lines = [f"Nats-Incr: {sent.amount}"]
            if len(batch) > 1:
                lines += [f"Nats-Batch-Id: b{batch[0].number}", f"Nats-Batch-Sequence: {number}"]
                if number == len(batch):
                    sent.batch = batch
                    lines.append("Nats-Batch-Commit: 1")
            self._publish(at, COUNT, sent, f"COUNT.{sent.key}", b"", *lines)

    def _schedule(self, at: int) -> None:
        sent, chance = self._next(SCHED), self.rng.random()
        if chance < 0.25:
            lines = ["Nats-Schedule-Next: purge", f"Nats-Scheduler: SCHED.at.{sent.key}"]
            self._publish(at, SCHED, sent, "SCHED.end", b"%d." % sent.number, *lines)
            return
        if chance < 0.55:
            sent.due_ns = self.world.now() + self.rng.randrange(-1000, 8000) * 1_000_000
            pattern = f"@at {moment_text(sent.due_ns)}"
        else:
            sent.interval_ns = self.rng.choice((1, 2, 5)) * NS_PER_S
            pattern = f"@every {sent.interval_ns // NS_PER_S}s"
        lines = [f"Nats-Schedule: {pattern}", f"Nats-Schedule-Target: SCHED.to.{sent.key}"]
        self._publish(at, SCHED, sent, f"SCHED.at.{sent.key}", b"%d." % sent.number, *lines)

    def _next(self, name: str) -> Sent:
        self.world.number += 1
        sent = Sent(self.world.number, self.rng.choice(KEYS), sent_ns=self.world.now())
        self.sent[name][sent.number] = sent
        return sent

    def _publish(self, at: int, name: str, sent: Sent, subject: str, payload: bytes, *lines: str) -> None:
        block = "\r\n".join(["NATS/1.0", *lines, f"Own: {sent.number}", "", ""]).encode()

        def answered(frame: Frame) -> None:
            if frame.headers or not frame.payload:
                return
            body = json.loads(frame.payload)
            self.world.say(f"#{sent.number} of {name}: {frame.payload.decode()}")
            if "error" in body:
                wrong_end = (
                    body["error"]["err_code"] == 10212
                )  # the schedule has ended, and its message was produced
                demand(self.world.faults or wrong_end, f"#{sent.number} of {name}: {body}")
                return
            for back, each in enumerate(reversed(sent.batch or [sent])):
                each.seq, each.value, each.told_ns = (
                    body["seq"] - back,
                    body.get("val", ""),
                    self.world.moment(),
                )

        self.world._request(at, subject, payload, answered, block)

    # -- crashes ---------------------------------------------------------------------------------------------------

    def died(self, how: str, since_ns: int) -> None:
        """After a power cut, withdraw acknowledgements later than `since_ns`; after a kill, renew them."""
        self.asked.clear()
        if how != "power":
            for each in (*self.sent[COUNT].values(), *self.sent[SCHED].values()):
                if each.told_ns > max(since_ns, 0):
                    each.told_ns = self.world.moment()
            return
        self.cut_ns = self.world.moment()
        for each in (*self.sent[COUNT].values(), *self.sent[SCHED].values()):
            if each.told_ns > since_ns:
                each.told_ns = each.seq = 0

    # -- invariants ------------------------------------------------------------------------------------------------

    def audit(self, served: dict[str, Any]) -> None:
        """Check both streams."""
        for name, messages in served_messages(self.world, self.sure, (COUNT, SCHED), served):
            if name == COUNT:
                self._audit_counters(messages)
            else:
                self._audit_schedules(messages, served[name].store.failed)

    def _audit_counters(self, messages: list[StoredMessage]) -> None:
        sums: dict[bytes, int] = {}
        seen: set[int] = set()
        gaps = last_seq = 0
        gaps_before: dict[bytes, int] = {}
        for message in messages:
            gaps, last_seq = gaps + (message.seq > last_seq + 1), message.seq
            sent = self.sent[COUNT][int(value_of(message.headers, b"Own"))]
            demand(sent.number not in seen, f"COUNT: #{sent.number} is there twice")
            seen.add(sent.number)
            total = sums.get(message.subject, 0) + sent.amount
            value = json.loads(message.payload)["val"]
            # A power cut can remove an increment that was not acknowledged but on which the value of a later one is
            # based.
            if self.cut_ns >= 0 and gaps_before.get(message.subject, 0) < gaps:
                total = int(value)
            sums[message.subject], gaps_before[message.subject] = total, gaps
            demand(value == str(total), f"COUNT: {message.seq} has {value}, not {total}")
            if sent.told_ns:
                told = f"#{sent.number} was told {sent.seq}, {sent.value}"
                demand(
                    (sent.seq, sent.value or value) == (message.seq, value),
                    f"COUNT: {told}, not {message.seq}, {value}",
                )
        for sent in self.sent[COUNT].values():
            there = [each.number in seen for each in sent.batch]
            demand(all(there) or not any(there), f"COUNT: the batch of #{sent.number} is there in part")
            demand(
                not sent.told_ns or sent.number in seen, f"COUNT: #{sent.number} was acknowledged and is gone"
            )

    def _audit_schedules(self, messages: list[StoredMessage], failed: bool) -> None:
        sent = self.sent[SCHED]
        for each in sent.values():
            each.products = []
        for message in messages:
            number = int(message.payload.partition(b".")[0])
            demand(number in sent, f"SCHED: {message.seq} is no message of this stream")
            if message.subject.startswith(b"SCHED.to."):
                sent[number].products.append(message)
        for each in sent.values():
            self._check_products(each)
            if each.due_ns and each.told_ns and not failed and not self.world.faults:
                self._check_fired(each, messages)
        self._check_ended()

    def _check_products(self, sent: Sent) -> None:
        demand(not sent.due_ns or len(sent.products) < 2, f"SCHED: #{sent.number} fired twice")
        earliest_ns = sent.due_ns or sent.sent_ns
        for product in sent.products:
            demand(
                product.subject == b"SCHED.to.%b" % sent.key.encode(), f"SCHED: #{sent.number} went elsewhere"
            )
            demand(product.ts >= earliest_ns, f"SCHED: {product.seq} of #{sent.number} is early")
            following = value_of(product.headers, b"Nats-Schedule-Next")
            demand((following == b"purge") == bool(sent.due_ns), f"SCHED: {product.seq} says {following!r}")
            if not sent.due_ns:
                earliest_ns = parse_time_ns(following.decode())

    def _check_fired(self, sent: Sent, messages: list[StoredMessage]) -> None:
        """Check that a confirmed schedule for one time has fired, was replaced or ended, or is not due yet."""
        world = self.world
        running_ns = world.now() - world.life_began_ns
        if sent.products or world.now() < sent.due_ns + LATE_NS or running_ns < LATE_NS:
            return
        if self.cut_ns >= 0 and not world.always:
            return  # a power cut may have removed the produced message, but not the end of the schedule
        later = [
            each for each in self.sent[SCHED].values() if each.key == sent.key and each.number > sent.number
        ]
        demand(later, f"SCHED: #{sent.number} was due {(world.now() - sent.due_ns) / NS_PER_S} s ago")

    def _check_ended(self) -> None:
        """Check that no message was produced after the confirmed message that replaced or ended its schedule."""
        for end in self.sent[SCHED].values():
            for each in self.sent[SCHED].values() if end.told_ns else ():
                if each.key == end.key and each.told_ns and each.seq < end.seq:
                    late = [product.seq for product in each.products if product.seq > end.seq]
                    demand(not late, f"SCHED: #{each.number} fired as {late}, ended by {end.seq}")

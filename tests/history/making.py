"""Makes histories: a stream with random options, and operations that it accepts, refuses or partly accepts.

An operation is a dataclass of plain values, so the repr of a history is Python code. Texts may contain `{last}`,
`{last+1}` or `{of:x}`: the last sequence that the server returned for the stream, or for subject `x`. The player
fills them in, since they are only known from the answers. Subjects are relative to the stream's own prefix.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Any

HOUR_NS = 3_600_000_000_000
KEYS = ("a", "b", "c")
Headers = tuple[tuple[str, str], ...]


class Kind(Enum):
    """The use of a stream, which decides its options and operations."""

    PLAIN = "plain"
    COUNTER = "counter"
    BUCKET = "bucket"
    QUEUE = "queue"


@dataclass(frozen=True)
class Publish:
    """A publish; the player waits for its answer."""

    subject: str
    payload: str = ""
    headers: Headers = ()


@dataclass(frozen=True)
class FastBatch:
    """Publishes of a fast batch, sent together: (sequence, operation, publish)."""

    number: int
    flow: int
    gap: str
    parts: tuple[tuple[int, int, Publish], ...]


@dataclass(frozen=True)
class Request:
    """A request to the API; `{S}` in the endpoint is the stream's name."""

    endpoint: str
    body: str = ""


@dataclass(frozen=True)
class Fetch:
    """A pull of the messages that are available."""

    consumer: str
    batch: int


@dataclass(frozen=True)
class Ack:
    """A reply to a delivery; `which` counts back from the last one."""

    which: int
    verb: str


@dataclass(frozen=True)
class Gone:
    """Wait until the message of the last PubAck has expired."""


@dataclass(frozen=True)
class Fired:
    """Wait until the schedule of the last PubAck has published to this subject."""

    subject: str


Operation = Publish | FastBatch | Request | Fetch | Ack | Gone | Fired


@dataclass(frozen=True)
class History:
    """The history of one seed."""

    seed: int
    kind: Kind
    config: dict[str, Any]
    operations: tuple[Operation, ...]

    @property
    def name(self) -> str:
        """The name of the stream."""
        return f"H{self.seed}"


def make(seed: int) -> History:
    """Return the history of a seed."""
    rng = random.Random(seed)
    kind = rng.choices(list(Kind), (60, 15, 15, 10))[0]
    return _Maker(rng, kind).history(seed)


def without_last_id(publish: Publish) -> Publish:
    """Remove Nats-Expected-Last-Msg-Id: if it is wrong, a fast batch of nats-server may not end."""
    lines = tuple(line for line in publish.headers if line[0] != "Nats-Expected-Last-Msg-Id")
    return Publish(publish.subject, publish.payload, lines)


class _Maker:
    def __init__(self, rng: random.Random, kind: Kind) -> None:
        self.rng = rng
        self.kind = kind
        self.config: dict[str, Any] = {}
        self.batches = 0
        self.ids = 0
        self.consumers: list[str] = []
        self.removed = False

    def history(self, seed: int) -> History:
        self.config = {
            Kind.PLAIN: self._plain,
            Kind.COUNTER: self._counter,
            Kind.BUCKET: self._bucket,
            Kind.QUEUE: self._queue,
        }[self.kind]()
        made: list[Operation] = []
        for _ in range(self.rng.randrange(10, 45)):
            made += self._step()
        if self.config.get("allow_msg_ttl") and self.rng.random() < 0.03:
            made += [Publish("ttl", "x", (("Nats-TTL", "1"),)), Gone()]
        # After a deletion, nats-server may count the deleted message in num_pending until the next pull.
        made += [Fetch(consumer, 1) for consumer in self.consumers]
        return History(seed, self.kind, self.config, tuple(made))

    # -- streams -----------------------------------------------------------------------------------------------

    def _plain(self) -> dict[str, Any]:
        rng = self.rng
        config: dict[str, Any] = {
            "storage": rng.choice(("file", "file", "memory")),
            "max_msgs": rng.choice((-1, -1, -1, 3, 10)),
            "max_bytes": rng.choice((-1, -1, -1, 400)),
            "max_msgs_per_subject": rng.choice((-1, -1, 1, 2)),
            "max_msg_size": rng.choice((-1, -1, -1, 120)),
            "discard": rng.choice(("old", "old", "new")),
            "allow_direct": True,
        }
        for option, chance in (
            ("allow_rollup_hdrs", 0.5),
            ("allow_msg_ttl", 0.5),
            ("allow_atomic", 0.6),
            ("allow_batched", 0.6),
            ("allow_msg_schedules", 0.4),
            ("deny_delete", 0.1),
        ):
            config[option] = rng.random() < chance
        config["deny_purge"] = not config["allow_rollup_hdrs"] and rng.random() < 0.1
        if config["discard"] == "new" and config["max_msgs_per_subject"] > 0:
            config["discard_new_per_subject"] = rng.random() < 0.5
        if config["allow_rollup_hdrs"] and config["allow_msg_ttl"] and rng.random() < 0.3:
            config["subject_delete_marker_ttl"] = HOUR_NS
        if rng.random() < 0.15:
            config["first_seq"] = rng.choice((1, 2, 100))
        return config

    def _counter(self) -> dict[str, Any]:
        rng = self.rng
        return {
            "allow_msg_counter": True,
            "allow_direct": True,
            "allow_atomic": rng.random() < 0.6,
            "allow_batched": rng.random() < 0.6,
            "max_msgs_per_subject": rng.choice((-1, 1, 2)),
            "max_msgs": rng.choice((-1, -1, 5)),
            "max_msg_size": rng.choice((-1, -1, -1, 150)),
        }

    def _bucket(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "max_msgs_per_subject": self.rng.choice((1, 1, 3)),
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "max_bytes": self.rng.choice((-1, -1, 500)),
        }
        if self.rng.random() < 0.7:
            config |= {"allow_msg_ttl": True, "subject_delete_marker_ttl": HOUR_NS}
        return config

    def _queue(self) -> dict[str, Any]:
        return {"retention": "workqueue", "allow_direct": True, "allow_atomic": self.rng.random() < 0.5}

    # -- steps -------------------------------------------------------------------------------------------------

    def _step(self) -> list[Operation]:
        chance = self.rng.random()
        if chance < 0.12:
            return self._atomic_batch()
        if chance < 0.2:
            return [self._fast_batch()]
        if chance < 0.3:
            return [self._removal()]
        if chance < 0.45:
            return self._consuming()
        # If the schedule and the size are both refused, the errors may differ: nats-server checks some schedules
        # first.
        if chance < 0.55 and self.kind is Kind.PLAIN and self.config["max_msg_size"] < 0:
            return self._schedule()
        if chance < 0.58:
            return [Request("STREAM.MSG.GET.{S}", f'{{"last_by_subj":"{{P}}.{self.rng.choice(KEYS)}"}}')]
        return [self._publish()]

    def _publish(self) -> Publish:
        return Publish(self._subject(), self._payload(), self._headers())

    def _subject(self) -> str:
        return self.rng.choice(KEYS)

    def _payload(self) -> str:
        if self.kind is Kind.COUNTER:
            return "" if self.rng.random() < 0.95 else "x"
        return "x" * self.rng.choice((0, 1, 5, 30, 60, 130))

    def _headers(self) -> Headers:
        lines: list[tuple[str, str]] = []
        if self.kind is Kind.COUNTER:
            lines += self._increment()
        elif self.kind is Kind.BUCKET:
            lines += self._key_operation()
        if self.rng.random() < 0.2:
            lines.append(("Nats-Msg-Id", self._msg_id()))
        if self.kind is not Kind.QUEUE and self.rng.random() < 0.2:
            lines.append(self._expectation())
        if self.rng.random() < 0.1:
            lines.append(
                ("Nats-TTL", self.rng.choice(("1h", "never", "7200", "0", "500ms", "zz", "-1", "1s5m")))
            )
        if self.rng.random() < 0.06:
            lines.append(("Nats-Rollup", self._rollup()))
        if self.rng.random() < 0.1:
            lines.append(("Own", "1"))
        self.rng.shuffle(lines)
        return tuple(lines)

    def _rollup(self) -> str:
        value = self.rng.choice(("sub", "sub", "all", "zz"))
        # At max_msgs, nats-server removes the stream's oldest message before a roll-up of a subject could make room.
        return "all" if value == "sub" and self.config.get("max_msgs", -1) > 0 else value

    def _msg_id(self) -> str:
        if self.ids and self.rng.random() < 0.4:
            return f"id{self.rng.randrange(self.ids)}"
        self.ids += 1
        return f"id{self.ids - 1}"

    def _expectation(self) -> tuple[str, str]:
        rng, chance = self.rng, self.rng.random()
        if chance < 0.3:
            return "Nats-Expected-Last-Sequence", rng.choice(("{last}", "{last}", "{last+1}", "0", "x"))
        if chance < 0.7:
            key = rng.choice(KEYS)
            return "Nats-Expected-Last-Subject-Sequence", rng.choice((f"{{of:{key}}}", "0", "{last}", "x"))
        if chance < 0.85:
            return "Nats-Expected-Last-Msg-Id", self._msg_id()
        return "Nats-Expected-Stream", rng.choice(("{S}", "{S}", "other"))

    def _increment(self) -> list[tuple[str, str]]:
        if self.rng.random() < 0.06:
            return []
        big = str(self.rng.randrange(10 ** self.rng.choice((1, 5, 20, 40))))
        return [("Nats-Incr", self.rng.choice(("1", "-1", "+7", "0", big, f"-{big}", "007", "1.5", "")))]

    def _key_operation(self) -> list[tuple[str, str]]:
        chance = self.rng.random()
        if chance < 0.15:
            return [("KV-Operation", "DEL")]
        if chance < 0.3:
            lines = [("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")]
            return [*lines, ("Nats-TTL", "1h")] if self.rng.random() < 0.5 else lines
        if chance < 0.45:
            return [("Nats-Expected-Last-Subject-Sequence", "0"), ("Nats-TTL", "1h")]
        return []

    def _atomic_batch(self) -> list[Operation]:
        rng = self.rng
        self.batches += 1
        count, name = rng.randrange(1, 6), f"b{self.batches}"
        ends = rng.choice(("1", "1", "1", "eob", "", "2"))  # "": abandoned
        made: list[Operation] = []
        for number in range(1, count + 1):
            each = self._publish()
            lines = [("Nats-Batch-Id", name), ("Nats-Batch-Sequence", str(number + (rng.random() < 0.04)))]
            if number == count and ends:
                lines.append(("Nats-Batch-Commit", ends))
            made.append(Publish(each.subject, each.payload, (*lines, *each.headers)))
            if rng.random() < 0.1:
                made.append(self._publish())
        return made

    def _fast_batch(self) -> FastBatch:
        rng = self.rng
        self.batches += 1
        count, parts, sequence = rng.randrange(1, 8), [], 0
        for number in range(1, count + 1):
            sequence += (
                1 if rng.random() < 0.92 else rng.choice((2, 2, 3))
            )  # a repeated last publish gets a different answer
            operation = 0 if number == 1 else rng.choice((1, 1, 1, 1, 4))
            if number == count:
                operation = rng.choice((2, 2, 3, operation))
            parts.append((sequence, operation, without_last_id(self._publish())))
        if self.config.get("max_bytes", -1) > 0 and self.config["discard"] == "old":
            # This server applies max_bytes to all messages of a packet at once, nats-server after each message.
            parts = [(1, 2, parts[0][2])]
        return FastBatch(self.batches, rng.choice((1, 2, 5, 0)), rng.choice(("fail", "ok")), tuple(parts))

    def _removal(self) -> Operation:
        rng, key = self.rng, self.rng.choice(KEYS)
        body = rng.choice(
            (
                "",
                f'{{"filter":"{{P}}.{key}"}}',
                '{"keep":1}',
                '{"seq":{last}}',
                f'{{"filter":"{{P}}.{key}","keep":1}}',
                f'{{"filter":"{{P}}.{key}","seq":{{last}}}}',
            )
        )
        removed, self.removed = self.removed, True
        if rng.random() < 0.4:
            # If the last message was removed individually, a purge up to it leaves a wrong first_seq in nats-server's
            # file store.
            if body == '{"seq":{last}}' and (removed or self.kind is Kind.QUEUE) and not self._in_memory():
                body = ""
            return Request("STREAM.PURGE.{S}", body)
        seq = rng.choice(("{last}", f"{{of:{key}}}", "1", "3"))
        more = rng.choice(("", ',"no_erase":true'))
        return Request("STREAM.MSG.DELETE.{S}", f'{{"seq":{seq}{more}}}')

    def _in_memory(self) -> bool:
        return self.config.get("storage") == "memory"

    def _consuming(self) -> list[Operation]:
        rng = self.rng
        if not self.consumers or (
            len(self.consumers) < 2 and self.kind is not Kind.QUEUE and rng.random() < 0.2
        ):
            self.consumers.append(f"c{len(self.consumers)}")
            policy = (
                "explicit" if self.kind is Kind.QUEUE else rng.choice(("explicit", "explicit", "all", "none"))
            )
            start = "all" if self.kind is Kind.QUEUE else rng.choice(("all", "all", "last", "new"))
            given = (
                f'"durable_name":"{self.consumers[-1]}","ack_policy":"{policy}","deliver_policy":"{start}"'
            )
            if self.kind is not Kind.QUEUE and rng.random() < 0.3:
                given += f',"filter_subject":"{{P}}.{rng.choice(KEYS)}"'
            body = f'{{"stream_name":"{{S}}","config":{{{given}}}}}'
            return [Request(f"CONSUMER.CREATE.{{S}}.{self.consumers[-1]}", body)]
        consumer = rng.choice(self.consumers)
        chance = rng.random()
        if chance < 0.15:
            body = rng.choice(("", '{"seq":1}', '{"seq":{last}}', '{"seq":0}', '{"seq":3}'))
            return [Request(f"CONSUMER.RESET.{{S}}.{consumer}", body)]
        if chance < 0.5:
            return [Fetch(consumer, rng.choice((1, 3, 10)))]
        verbs = ("+ACK", "+ACK", "+ACK", "-NAK", "+TERM", "+WPI")
        acks = [Ack(rng.randrange(4), rng.choice(verbs)) for _ in range(rng.randrange(3))]
        # nats-server forgets a redelivery requested by a NAK at the next purge or roll-up of any subject.
        again = [Fetch(each, 5) for each in self.consumers] if any(ack.verb == "-NAK" for ack in acks) else []
        return [Fetch(consumer, 5), *acks, *again]

    def _schedule(self) -> list[Operation]:
        rng = self.rng
        chance = rng.random()
        if chance < 0.2:
            ended = ("Nats-Scheduler", f"{{P}}.at.{rng.choice(KEYS)}")
            return [Publish("over", "", (("Nats-Schedule-Next", "purge"), ended))]
        key = rng.choice(KEYS)
        if chance < 0.3:
            return [Publish(f"at.{key}", "plain")]
        wakes = self.config["discard"] == "old" and self.config["max_bytes"] < 0 and rng.random() < 0.15
        when = rng.choice(
            ("@at 2100-01-01T00:00:00Z", "@every 1h", "0 0 0 1 1 *", "@hourly", "zz", "@every 1ms")
        )
        lines = [
            ("Nats-Schedule", "@at 2020-01-01T00:00:00Z" if wakes else when),
            ("Nats-Schedule-Target", f"{{P}}.to.{key}" if wakes or rng.random() < 0.9 else "else.where"),
        ]
        for line, often in (
            (("Nats-Schedule-TTL", rng.choice(("5m", "zz"))), 0.15),
            (("Nats-Schedule-Rollup", rng.choice(("sub", "all"))), 0.15),
            (("Nats-Schedule-Source", f"{{P}}.{rng.choice((*KEYS, '*'))}"), 0.2),
            (("Nats-Schedule-Time-Zone", rng.choice(("UTC", "Mars/Olympus"))), 0.1),
        ):
            if rng.random() < often:
                lines.append(line)
        made: list[Operation] = [Publish(f"at.{key}", self._payload(), tuple(lines))]
        return [*made, Fired(f"to.{key}")] if wakes else made

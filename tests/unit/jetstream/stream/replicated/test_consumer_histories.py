"""Random work of clients and random changes of the leader: no ack is lost, and no message is skipped.

`python -m tests.unit.jetstream.stream.replicated.test_consumer_histories FIRST LAST` plays more of them.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
from tests.unit.jetstream.consumerfixture import Delivery
from tests.unit.jetstream.stream.replicated.consuming import Consuming

SAMPLE = range(40)
NAMES = ("a", "b")


class Clients:
    """Randomly pulls, acks and changes consumers, while the group randomly commits and loses entries."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.retention = rng.choice(("limits", "interest", "workqueue"))
        self.policy = "explicit" if self.retention == "workqueue" else rng.choice(("explicit", "all"))
        self.js = Consuming(retention=self.retention)
        self.names = NAMES[:1] if self.retention == "workqueue" else NAMES
        for name in self.names:
            self.js.consumer(name, ack_policy=self.policy, max_ack_pending=rng.choice((5, 1000)))
        self.got: dict[str, list[Delivery]] = {name: [] for name in self.names}
        self.acked: dict[str, set[int]] = {name: set() for name in self.names}  # sent
        # messages whose acks were confirmed
        self.told: dict[str, set[int]] = {name: set() for name in self.names}
        self.stored = 0

    def step(self) -> None:
        """Do a random operation."""
        rng, js, group = self.rng, self.js, self.js.group
        name = rng.choice(self.names)
        chance = rng.random()
        if chance < 0.25:
            js.leader.js.user.send(b"PUB s.%d 1\r\nx\r\n" % rng.randrange(3))
        elif chance < 0.5:
            js.request(name, batch=rng.randrange(1, 6), no_wait=True)
        elif chance < 0.75 and self.got[name]:
            self.ack(name, rng.choice(self.got[name]))
        elif chance < 0.8 and self.got[name]:
            # With ack policy all, an ack would also cover a message that another leader's clock still delays.
            kinds = (b"-NAK", b"+WPI", b'-NAK {"delay":5000000000}')[: 3 if self.policy == "explicit" else 2]
            js.ack(rng.choice(self.got[name]), rng.choice(kinds))
        elif chance < 0.83:
            js.leader.js.advance(seconds=rng.randrange(1, 40))
            js.inbox.send(b"PONG\r\n")  # otherwise the client becomes stale
        self.read()
        if rng.random() < 0.4:
            group.commit(rng.randrange(1, 3))
        for member in group.members:
            if rng.random() < 0.4:
                group.apply(member, rng.randrange(1, 4))
            if rng.random() < 0.4:
                member.turn()
        self.read()
        if rng.random() < 0.03:
            group.lose()
        if rng.random() < 0.03:
            group.lead(rng.choice(group.members))
            js.leader.turn()

    def ack(self, name: str, message: Delivery) -> None:
        """Ack a message with a reply subject."""
        self.acked[name] |= self.covered(message.seq)
        self.js.ack(message, reply=f"in.ack.{name}.{message.seq}".encode())

    def covered(self, seq: int) -> set[int]:
        """Return the sequences that an ack of `seq` acknowledges."""
        return {seq} if self.policy == "explicit" else set(range(1, seq + 1))

    def read(self) -> None:
        """Process the messages that the leader's client received."""
        for frame in self.js.inbox.frames():
            words = frame.subject.split(b".")
            if words[1] == b"ack":
                self.told[words[2].decode()] |= self.covered(int(words[3]))
            elif frame.reply.startswith(b"$JS.ACK."):
                name = frame.reply.split(b".")[3].decode()
                count, seq, consumer_seq = (int(word) for word in frame.reply.split(b".")[4:7])
                assert seq not in self.told[name], f"{name} got {seq} again after its ack was answered"
                self.got[name].append(Delivery("", b"", frame.reply, count, seq, consumer_seq, 0))

    def finish(self) -> dict[str, Any]:
        """Check the deliveries of a new leader; return the state of the stream."""
        js = self.js
        js.settle()
        js.advance(seconds=2)  # after lost changes, a whole state is proposed
        self.read()
        states = {name: self.comparable(name) for name in self.names}
        before = js.same()
        live = {each[0] for each in before["messages"]}
        js.fail_over(self.rng.randrange(3))
        if self.rng.random() < 0.5:
            js.fail_over((js.group.members.index(js.leader) + 1) % 3)
        for name in self.names:
            assert self.comparable(name) == states[name]
        for name in self.names:
            seen = set[int]()
            for _ in range(60):
                js.inbox.send(b"PONG\r\n")
                js.advance(seconds=40)
                early = js.deliveries()  # deliveries for a request that waited because of max_ack_pending
                got = early + js.pull(name)
                seen |= {message.seq for message in got}
                for message in got:
                    assert message.seq not in self.told[name]
                    js.ack(message)
                if not got and js.opened(name).acks.pending.count == 0:
                    break
            assert live - self.acked[name] <= seen, (
                f"{name} was not delivered {live - self.acked[name] - seen}"
            )
        after = js.same()
        if self.retention != "limits":
            assert after["messages"] == []
        return before

    def comparable(self, name: str) -> dict[str, Any]:
        """Return a consumer's state that a new leader must have; times of deliveries may differ by the clocks."""
        state = self.js.opened(name).dump_state()
        pending: Any = state["pending"]
        keys = ("delivered", "floor", "spent")
        return {key: state[key] for key in keys} | {"pending": [(each[0], each[3]) for each in pending]}


def play(seed: int) -> int:
    """Play a history; return the number of acknowledged messages."""
    clients = Clients(seed)
    for _ in range(150):
        clients.step()
    clients.finish()
    return sum(len(told) for told in clients.told.values())


def test_no_ack_is_forgotten_and_no_message_passed_over() -> None:
    told = 0
    for seed in SAMPLE:
        try:
            told += play(seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")
    assert told > 100


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        print(number, play(number))

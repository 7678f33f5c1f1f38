"""Everything that a replica with lost messages accepts has the same result on a replica that has them.

PYJS_HISTORIES=2000 plays more of the random histories.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from tests.unit.jetstream.stream.replicated.replicas import (
    Member,
    answers,
    config,
    operate,
    replicas,
    send,
)

from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import operation

SEEDS = range(int(os.environ.get("PYJS_HISTORIES", "40")))
WINDOW_S = 60
S = 1_000_000_000
LOST = 20004
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"max_msgs": 15},
    {"max_bytes": 600},
    {"max_msgs_per_subject": 1, "discard": "new"},
    {"max_msgs_per_subject": 2},
    {"max_msgs": 25, "discard": "new"},
    {"max_msgs_per_subject": 3, "discard": "new", "discard_new_per_subject": True},
    {"max_age_ns": 20 * S},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl_ns": 5 * S, "allow_rollup_hdrs": True},
    {"allow_msg_counter": True},
    {"allow_atomic": True},
)


def lose(member: Member, *seqs: int) -> None:
    """Remove messages from a member, and the ids of all messages up to the last of them."""
    ids = member.stream.dedupe
    for seq in seqs:
        member.store.drop_seq(seq)
    for seq in range(1, max(seqs) + 1):
        ids.forget_one(seq)
    member.replica.note_gaps([*seqs], 0)


class History:
    """The history of one seed: of two replicas, the leader or the follower has lost messages."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        options = self.rng.choice(CONFIGS)
        self.counts = bool(options.get("allow_msg_counter"))
        self.batches = 0
        self.is_over = False
        self.group = replicas(config(storage="memory", duplicate_window_ns=WINDOW_S * S, **options), count=2)
        for _ in range(30):
            self.act()
        self.settle()
        self.whole, self.lossy = self.rng.sample(self.group.members, 2)
        stored = [seq for seq in range(1, self.whole.store.last_seq + 1) if self.whole.store.get(seq)]
        lost = self.rng.sample(stored, min(len(stored), self.rng.choice((1, 4))))
        if lost:
            lose(self.lossy, *lost)
        self.lost = set(lost)
        answers(self.group.leader)

    def act(self) -> None:
        """Do a random operation on the leader."""
        rng, chance = self.rng, self.rng.random()
        if chance < 0.75:
            self.publish()
        elif chance < 0.8:
            seq = rng.randrange(1, self.group.leader.store.last_seq + 2)
            self.operate(operations.delete(seq, False))
        elif chance < 0.83:
            self.operate(operations.purge(b"s.%d" % rng.randrange(6), 0, rng.choice((0, 1))))
        else:
            for member in self.group.members:
                member.js.advance(seconds=rng.choice((1, 1, 5, 40)))
        if rng.random() < 0.5:
            self.settle()

    def operate(self, payload: bytes) -> None:
        """Propose an operation without waiting for it."""
        steps = self.group.leader.replica.operate(payload)
        self.group.leader.stream.turn.go_on(steps)

    def publish(self) -> None:
        """Publish a message with random headers, or a batch."""
        subject, last = f"s.{self.rng.randrange(6)}", self.group.leader.store.last_seq
        headers = {"Nats_Incr": "+1"} if self.counts else {}
        chance = self.rng.random()
        if chance < 0.4:
            known = self.group.leader.store.get_last(subject.encode())
            seq = self.rng.choice((0, last, *([known.seq] * 3 if known else ())))
            headers["Nats_Expected_Last_Subject_Sequence"] = str(seq)
        elif chance < 0.6 and not self.counts:
            headers["Nats_Msg_Id"] = str(self.rng.randrange(20))
        elif chance < 0.7:
            headers["Nats_Expected_Last_Sequence"] = str(last)
        elif chance < 0.8 and self.group.leader.stream.config.allow_msg_ttl:
            headers["Nats_TTL"] = f"{self.rng.choice((1, 4))}s"
        if self.group.leader.stream.config.allow_atomic and chance > 0.5:
            self.batches += 1
            batch = {"Nats_Batch_Id": f"b{self.batches}"}
            send(self.group.leader, subject, b"x", Nats_Batch_Sequence="1", **batch, **headers)
            last = {"Nats_Batch_Sequence": "2", "Nats_Batch_Commit": "1"}
            send(self.group.leader, f"{subject}.b", b"x", **last, **batch)
            return
        send(self.group.leader, subject, b"" if self.counts else b"x", **headers)

    def settle(self) -> None:
        """Apply everything on both replicas, up to an entry that a lossy follower cannot decide."""
        group = self.group
        while not self.is_over:
            for member in group.members:
                member.turn()
            if not group.proposed and all(each.applied == len(group.log) for each in group.members):
                return
            group.commit()
            for member in group.members:
                for index, _, time_ns, payload in group.log[member.applied :]:
                    if not (member.replica.leads or member.replica.can_decide(index, time_ns, payload)):
                        self.is_over = True
                        return
                    group.apply(member, 1)

    def play(self) -> None:
        """Do random operations until the follower cannot decide an entry."""
        if self.group.leader is not self.lossy and self.rng.random() < 0.7:
            self.group.lead(self.lossy)
        for _ in range(60):
            self.act()
            self.settle()
            if self.is_over:
                return
            self.check()

    def check(self) -> None:
        """Compare the two replicas."""
        whole, lossy = self.whole.store, self.lossy.store
        assert whole.last_seq == lossy.last_seq
        for seq in range(1, whole.last_seq + 1):
            here, there = whole.get(seq), lossy.get(seq)
            if here and there:
                assert (here.subject, here.payload, here.ts) == (there.subject, there.payload, there.ts), seq
            elif seq > max(self.lost, default=0):
                assert here == there, seq


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_lossy_leader_accepts_is_the_same_elsewhere(seed: int) -> None:
    History(seed).play()


def test_a_follower_does_not_decide_what_depends_on_lost_messages() -> None:
    group = replicas(config(storage="memory"), count=2)
    for number in range(5):
        send(group.leader, f"s.{number}", Nats_Msg_Id=f"{number}")
    group.settle()
    lossy = group.members[1].replica
    lose(group.members[1], 2)
    now_ns = group.leader.stream.entry_ns

    def decides(subject: str = "s.new", **headers: str) -> bool:
        send(group.leader, subject, **headers)
        group.leader.turn()
        group.commit()
        return lossy.can_decide(100, group.log[-1][2], group.log[-1][3])

    assert decides()
    assert not decides("s.1", Nats_Expected_Last_Subject_Sequence="2")
    assert not decides("s.0", Nats_Expected_Last_Subject_Sequence="1")
    assert decides("s.4", Nats_Expected_Last_Subject_Sequence="5")
    assert not decides(Nats_Msg_Id="x")
    assert decides(Nats_Msg_Id="4")
    assert lossy.can_decide(100, now_ns, operation("expiry"))
    assert lossy.can_decide(100, now_ns, b"")


def test_a_condition_waits_for_removals_that_are_in_flight() -> None:
    group = replicas(config(storage="memory"), count=1)
    for number in range(3):
        send(group.leader, f"s.{number}")
    group.settle()
    lose(group.leader, 1)
    answers(group.leader)
    group.leader.stream.turn.go_on(group.leader.replica.operate(operations.delete(3, False)))
    group.leader.turn()

    send(group.leader, "s.2", Nats_Expected_Last_Subject_Sequence="3")
    group.settle()
    send(group.leader, "s.1", Nats_Expected_Last_Subject_Sequence="2")
    group.settle()

    first, second = answers(group.leader)
    assert first["error"]["err_code"] == LOST
    assert second["seq"] == 4
    assert operate(group, operations.delete(4, False))

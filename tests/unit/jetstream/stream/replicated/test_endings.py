"""Operations on a replicated stream that wait, are refused or are not accepted, and a replica that stops."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import FaultyDisk
from tests.support.stored_streams import finish
from tests.unit.jetstream.stream.replicated.replicas import Loopback, Member, config, replicas, same, send

from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import operation
from pyjs.jetstream.stream.replicated.proposal import Proposal

S = 1_000_000_000


def batch_entry(group: Loopback) -> None:
    """Commit an entry with an atomic batch of one message."""
    send(group.leader, "s.a", b"1", Nats_Batch_Id="b", Nats_Batch_Sequence="1", Nats_Batch_Commit="1")
    group.leader.turn()
    group.commit()


@pytest.mark.parametrize("ending", ["close", "abandon"])
def test_an_entry_for_a_stream_that_has_ended_is_not_applied(ending: str) -> None:
    group = replicas(config(storage="memory", allow_atomic=True))
    batch_entry(group)
    proposal = group.mine[1]
    for member in group.members[:2]:
        member.stream.close() if ending == "close" else member.stream.abandon(OSError("lost"))
        member.replica.apply(*group.log[0], proposal if member is group.members[0] else None)
        assert (member.replica.index, member.store.msgs, member.replica.leads) == (0, 0, False)
        assert str(member.replica.stopped) == "stream '$G > S' is closed"
    assert group.members[0].replica.in_flight == 0
    group.apply(group.members[2])
    assert group.members[2].store.msgs == 1


def long_purge(group: Loopback) -> None:
    """Store 5000 messages, and run the first step of a purge of half of them on every member."""
    group.leader.js.user.send(b"".join(b"PUB s.%d 1\r\nx\r\n" % (i % 2) for i in range(10_000)))
    group.settle()
    group.leader.replica.propose(operations.purge(b"s.0", 0, 0), Proposal())


def test_thousands_of_operations_may_wait_behind_a_long_one() -> None:
    group = replicas(config(storage="memory"), count=2)
    long_purge(group)
    for seq in range(1, 6_001):
        group.leader.replica.propose(operations.delete(seq, False), Proposal())
    group.commit()
    follower = group.members[1]
    group.apply(follower)
    assert follower.replica.index == 2
    group.settle()
    assert same(group)["range"][2] == 2_000
    assert [each.replica.index for each in group.members] == [6_002, 6_002]


def test_what_waited_is_applied_in_several_steps_in_order() -> None:
    group = replicas(config(storage="memory"), count=1)
    long_purge(group)
    for _ in range(1_000):
        group.leader.replica.propose(operation("message", b"first", b"s.n"), Proposal())
    group.commit()
    member = group.leader
    group.apply(member)
    (chore,) = member.stream.turn.take("chores")
    before, going = 2, chore.go_on()
    while going and member.replica.index < 600:
        assert member.replica.index - before <= 200
        before, going = member.replica.index, chore.go_on()
    member.replica.apply(1_003, 1, S * 3 * 10**9, operation("message", b"last", b"s.n"))
    while chore.go_on():
        pass
    assert member.store.get(member.store.last_seq).payload == b"last"  # type: ignore[union-attr]


def parked(group: Loopback, payload: bytes) -> Any:
    """Begin an operation on the leader; return its steps, which wait for the result."""
    steps = group.leader.replica.operate(payload)
    next(steps)
    return steps


def test_a_replica_that_stops_settles_what_runs_and_what_waits() -> None:
    group = replicas(config(storage="memory"), count=1)
    long_purge(group)
    group.lose()
    running = parked(group, operations.purge(b"s.0", 0, 0))
    waiting = parked(group, operations.delete(2, False))
    group.commit()
    replica = group.leader.replica
    group.apply(group.leader)
    assert replica.index == 2
    replica.stop(OSError("the disk is gone"))
    for steps in (running, waiting):
        with pytest.raises(ApiError):
            finish(steps)
    group.members[0].turn()
    assert (replica.in_flight, group.members[0].store.changing) == (0, False)


def test_an_operation_that_the_disk_refuses_is_settled(tmp_path: Path) -> None:
    disk, group = FaultyDisk(error=errno.ENOSPC, forever=True), Loopback()
    group.members = [Member(group, config(), str(tmp_path), disk)]
    group.lead(group.members[0])
    send(group.leader, "s.a")
    group.settle()
    steps = parked(group, operations.delete(1, False))
    group.commit()
    disk.at = disk.calls
    group.apply(group.leader)
    assert group.members[0].replica.stopped is not None
    with pytest.raises(ApiError):
        finish(steps)


def test_a_subject_too_long_for_an_entry_is_refused_by_the_api() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a")
    group.settle()
    group.leader.js.engine.streams["S"] = group.leader.stream
    code, err_code, text = group.leader.js.error("STREAM.PURGE.S", {"filter": "s." + "x" * 70_000})
    assert (code, err_code, text) == (400, 10003, "bad request: a subject of 70002 bytes, at most 65535")
    assert len(group.log) == 1


def test_an_operation_that_followers_would_refuse_is_not_proposed() -> None:
    group = replicas(config(storage="memory"))
    with pytest.raises(ApiError, match="wrong size"):
        finish(group.leader.replica.operate(operations.skip((1 << 64) - 1)))
    proposal = Proposal()
    assert not group.leader.replica.propose(operation("removal"), proposal)
    assert (group.proposed, group.leader.replica.in_flight) == ([], 0)


class Refusing(Loopback):
    """A group that accepts no proposals while `refuses` is set, and counts them."""

    refuses, asked = False, 0

    def propose(self, payload: bytes, proposal: Proposal) -> bool:
        """Accept a proposal, or refuse it."""
        self.asked += 1
        return not self.refuses and super().propose(payload, proposal)


def test_an_expiry_that_is_not_taken_is_proposed_again_after_a_delay() -> None:
    group = Refusing()
    group.members = [Member(group, config(storage="memory", max_age_ns=10 * S))]
    group.lead(group.members[0])
    send(group.leader, "s.a")
    group.settle()
    group.refuses, group.asked = True, 0
    group.leader.js.advance(seconds=11)
    for _ in range(50):
        group.leader.stream.note_change()
        group.leader.js.advance(milliseconds=50)
    assert 2 <= group.asked <= 4
    group.refuses = False
    group.leader.js.advance(seconds=2)
    group.settle()
    assert group.leader.store.msgs == 0


def test_a_firing_that_is_not_taken_is_proposed_again_after_a_delay() -> None:
    group = Refusing()
    group.members = [
        Member(group, config(storage="memory", allow_msg_schedules=True, allow_rollup_hdrs=True))
    ]
    group.lead(group.members[0])
    send(group.leader, "s.plan", Nats_Schedule="@at 2020-01-01T00:00:00Z", Nats_Schedule_Target="s.out")
    group.refuses, group.asked = False, 0
    group.leader.turn()
    group.commit()
    group.refuses = True
    group.apply(group.leader)
    group.leader.js.advance(seconds=3)
    assert 2 <= group.asked <= 6
    group.refuses = False
    group.leader.js.advance(seconds=2)
    group.settle()
    assert [each[2] for each in same(group)["messages"]] == [b"s.out"]

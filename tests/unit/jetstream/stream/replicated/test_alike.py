"""Equal results on replicas with different pasts: random numbers, removed messages, limits of their servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.jetstream.stream.replicated.payloads import message, payload_of
from tests.unit.jetstream.stream.replicated.replicas import Loopback, Member, config, replicas, same, send

from pyjs.base.rng import SeededRng
from pyjs.jetstream.config.choices import FILE
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import operation
from pyjs.subjects.transform import SubjectTransform

S = 1_000_000_000


def test_a_schedule_fires_under_the_same_subject_everywhere_although_chance_chooses_it() -> None:
    group = replicas(config(storage="memory", allow_msg_schedules=True, allow_rollup_hdrs=True))
    for number, member in enumerate(group.members):
        member.stream.transform = SubjectTransform(
            "s.out", "s.{{random(1000)}}.{{random(1000)}}", SeededRng(number)
        )
    send(group.leader, "s.plan", b"tick", Nats_Schedule="@every 1s", Nats_Schedule_Target="s.out")
    group.settle()
    for _ in range(5):
        group.leader.js.advance(seconds=1)
        group.settle()
    subjects = {each[2] for each in same(group)["messages"]}
    assert len(subjects) >= 4
    assert all(len(set(subject.split(b"."))) == 3 for subject in subjects - {b"s.plan"})


def applied(member: Member, payload: bytes, at_ns: int = 0) -> None:
    """Apply a payload as the next entry, and write its effects."""
    index = member.replica.index + 1
    member.replica.apply(index, 1, at_ns or index * S, payload)
    member.stream.commit()


def restarted(member: Member) -> Member:
    """Stop a member and start it again."""
    member.store.close()
    return Member(Loopback(), member.stream.config, member.directory)


def test_an_expiry_removes_as_many_messages_after_a_restart(tmp_path: Path) -> None:
    of = config(storage=FILE, allow_msg_ttl=True)
    members = [Member(Loopback(), of, f"{tmp_path}/{number}") for number in range(2)]
    for subject in (b"s.gone", b"s.kept"):
        many = payload_of([message(subject, ["Nats-TTL: 5s"], b"x") for _ in range(1_500)])
        for member in members:
            applied(member, many)
    for member in members:
        applied(member, operations.purge(b"s.gone", 0, 0))
    members[1] = restarted(members[1])
    for member in members:
        applied(member, operation("expiry"), 100 * S)
    assert [member.store.msgs for member in members] == [0, 0]


def test_the_messages_of_a_batch_expire_by_their_own_times(tmp_path: Path) -> None:
    of = config(storage=FILE, allow_msg_ttl=True, allow_atomic=True)
    members = [Member(Loopback(), of, f"{tmp_path}/{number}") for number in range(2)]
    batch = b"".join(message(b"s.a", ["Nats-TTL: 5s"], b"x") for _ in range(10))
    for member in members:
        applied(member, operation("batch", batch, b"b"))
    members[1] = restarted(members[1])
    for member in members:
        applied(member, operation("expiry"), 6 * S + 4)
    assert [member.store.msgs for member in members] == [5, 5]


@pytest.mark.parametrize("digits", [5, 60])
def test_a_sum_is_stored_whatever_payloads_its_server_takes(digits: int) -> None:
    group = replicas(config(storage="memory", allow_msg_counter=True), count=2)
    group.members[1].js.engine.shared.max_payload = 20
    send(group.leader, "s.a", b"", Nats_Incr="9" * digits)
    group.settle()
    assert len(same(group)["messages"]) == 1

"""A replicated stream: proposals and answers of its leader, and entries that its followers apply."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.disk import FaultyDisk
from tests.support.stored_streams import finish
from tests.unit.jetstream.stream.replicated.payloads import message, payload_of
from tests.unit.jetstream.stream.replicated.replicas import (
    Loopback,
    Member,
    answers,
    config,
    operate,
    replicas,
    same,
    send,
)

from pyjs.base.rng import Rng
from pyjs.jetstream.config.consumer import ConsumerConfig
from pyjs.jetstream.config.stream import RepublishConfig
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.stream.replicated import operations
from pyjs.jetstream.stream.replicated.payload import BrokenEntry, items_of, operation
from pyjs.jetstream.stream.republish import Republisher
from pyjs.jetstream.stream.stream_consumer import StreamConsumer
from pyjs.store.file.store import FileStore

S = 1_000_000_000


def test_a_publish_is_answered_after_it_is_applied() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a", b"hello")
    assert answers(group.leader) == []
    assert group.leader.store.msgs == 0

    group.settle()

    assert answers(group.leader) == [{"stream": "S", "seq": 1}]
    assert [each[2:] for each in same(group)["messages"]] == [(b"s.a", b"", b"hello")]


def test_the_messages_of_a_turn_are_one_proposal() -> None:
    group = replicas(config(storage="memory"))
    group.leader.js.user.send(b"PUB s.a 1\r\na\r\nPUB s.b _INBOX.b 1\r\nb\r\n")
    ((payload, _),) = group.proposed
    assert items_of(payload) == [("message", b"s.a", b"", b"a"), ("message", b"s.b", b"", b"b")]


def test_followers_take_and_answer_nothing() -> None:
    group = replicas(config(storage="memory"))
    send(group.members[1], "s.a")
    send(group.leader, "s.a")
    group.settle()
    assert answers(group.members[1]) == [None]  # there is no responder on that node
    assert same(group)["range"][:3] == (1, 1, 1)


def test_duplicates_and_refusals_are_answered_after_they_are_applied() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a", Nats_Msg_Id="1")
    send(group.leader, "s.a", Nats_Msg_Id="1")
    send(group.leader, "s.a", Nats_Expected_Last_Sequence="7")
    assert answers(group.leader) == []
    group.settle()
    first, second, third = answers(group.leader)
    assert (first["seq"], second) == (1, {"stream": "S", "seq": 1, "duplicate": True})
    assert third["error"]["err_code"] == 10071
    same(group)


def test_a_lost_proposal_is_not_answered() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a")
    group.lead(group.members[1])
    group.settle()
    assert answers(group.members[0]) == []
    assert (group.members[0].replica.in_flight, same(group)["messages"]) == (0, [])
    send(group.leader, "s.b")
    group.settle()
    assert answers(group.members[1]) == [{"stream": "S", "seq": 1}]
    same(group)


def test_an_entry_of_the_former_leader_is_applied_without_an_answer() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a")
    group.commit()
    group.lead(group.members[1])
    group.settle()
    assert answers(group.members[0]) == answers(group.members[1]) == []
    assert same(group)["range"][:3] == (1, 1, 1)


def test_an_entry_is_applied_once() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a")
    group.settle()
    group.members[1].replica.apply(*group.log[0])
    same(group)


def test_bytes_in_flight_are_bounded() -> None:
    group = replicas(config(storage="memory"))
    group.leader.replica.in_flight_max = 100
    send(group.leader, "s.a", bytes(60))
    send(group.leader, "s.a", bytes(60))
    assert [each["error"]["err_code"] for each in answers(group.leader)] == [10023]
    group.settle()
    send(group.leader, "s.a", bytes(60))
    group.settle()
    assert [each["seq"] for each in answers(group.leader)] == [1, 2]
    same(group)


def test_the_room_of_the_account_is_checked_by_the_leader_alone() -> None:
    group = replicas(config(storage="memory"))
    group.members[1].usage.max = 10
    send(group.leader, "s.a", bytes(60))
    group.settle()
    group.members[0].usage.max = 10
    send(group.leader, "s.a", bytes(60))
    assert [each.get("seq") for each in answers(group.leader)] == [1, 0]
    group.settle()
    assert same(group)["range"][:3] == (1, 1, 1)


def test_a_stopping_leader_takes_nothing() -> None:
    group = replicas(config(storage="memory"))
    group.leader.replica.stopping = True
    send(group.leader, "s.a")
    assert group.proposed == []


def test_an_atomic_batch_is_one_item() -> None:
    group = replicas(config(storage="memory", allow_atomic=True))
    batch = {"Nats_Batch_Id": "b"}
    send(group.leader, "s.a", b"1", **batch, Nats_Batch_Sequence="1")
    send(group.leader, "s.b", b"2", **batch, Nats_Batch_Sequence="2", Nats_Batch_Commit="1")
    ((payload, _),) = group.proposed
    assert [kind for kind, *_ in items_of(payload)] == ["batch"]
    group.settle()
    assert answers(group.leader) == [None, {"stream": "S", "seq": 2, "batch": "b", "count": 2}]
    assert [each[4] for each in same(group)["messages"]] == [b"1", b"2"]


def test_a_batch_whose_check_fails_is_refused_everywhere() -> None:
    group = replicas(config(storage="memory", allow_atomic=True))
    send(
        group.leader,
        "s.a",
        b"1",
        Nats_Batch_Id="b",
        Nats_Batch_Sequence="1",
        Nats_Expected_Last_Sequence="9",
        Nats_Batch_Commit="1",
    )
    group.settle()
    (answer,) = answers(group.leader)
    assert answer["error"]["err_code"] == 10071
    assert same(group)["messages"] == []


def test_limits_are_kept_after_each_entry() -> None:
    group = replicas(config(storage="memory", max_msgs=3, max_msgs_per_subject=1))
    for number in range(12):
        send(group.leader, f"s.{number % 5}")
        if number % 3 == 0:
            group.settle()
    group.settle()
    assert same(group)["range"][2] == 3


def test_a_purge_a_deletion_and_a_skip_are_entries() -> None:
    group = replicas(config(storage="memory"))
    for number in range(6):
        send(group.leader, f"s.{number % 2}")
    group.settle()
    assert operate(group, operations.delete(2, False)) is True
    assert operate(group, operations.delete(2, True)) is False
    assert operate(group, operations.purge(b"s.0", 0, 1)) == 2
    assert operate(group, operations.skip(9)) is None
    assert operate(group, operations.purge(b"", 0, 0)) == 3
    assert same(group)["range"][:3] == (10, 9, 0)


def test_a_purge_in_steps_is_not_overtaken() -> None:
    group = replicas(config(storage="memory"))
    group.leader.js.user.send(b"".join(b"PUB s.%d 1\r\nx\r\n" % (i % 2) for i in range(9_000)))
    group.settle()
    steps = group.leader.replica.operate(operations.purge(b"s.0", 0, 0))
    next(steps)
    send(group.leader, "s.0", b"later")
    group.settle()
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value == 4_500
    assert same(group)["messages"][-1][4] == b"later"
    assert same(group)["range"][2] == 4_501


def test_a_changed_configuration_is_an_entry() -> None:
    group = replicas(config(storage="memory"))
    for number in range(6):
        send(group.leader, f"s.{number}")
    group.settle()
    operate(group, operations.configure(config(storage="memory", max_msgs=2)))
    assert same(group)["range"][:3] == (5, 6, 2)
    assert all(each.stream.config.max_msgs == 2 for each in group.members)


def test_the_leader_proposes_what_has_expired() -> None:
    group = replicas(config(storage="memory", max_age_ns=10 * S))
    send(group.leader, "s.a")
    group.settle()
    group.members[1].js.advance(seconds=30)
    group.settle()
    assert same(group)["range"][2] == 1
    group.leader.js.advance(seconds=11)
    group.settle()
    assert same(group)["range"][2] == 0


def test_an_expired_subject_leaves_the_same_marker_everywhere() -> None:
    group = replicas(
        config(
            storage="memory",
            max_age_ns=10 * S,
            allow_msg_ttl=True,
            allow_rollup_hdrs=True,
            subject_delete_marker_ttl_ns=60 * S,
        )
    )
    for number in range(120):
        send(group.leader, f"s.{number}")
    send(group.leader, "s.ttl", Nats_TTL="90")
    group.settle()
    group.leader.js.advance(seconds=11)
    group.settle()
    group.leader.js.advance(seconds=1)
    group.settle()
    assert len(same(group)["messages"]) == 121


def test_a_schedule_fires_once_also_after_a_new_leader() -> None:
    group = replicas(config(storage="memory", allow_msg_schedules=True, allow_rollup_hdrs=True))
    send(group.leader, "s.plan", b"tick", Nats_Schedule="@every 10s", Nats_Schedule_Target="s.out")
    group.settle()
    assert answers(group.leader)[0].get("seq") == 1, answers
    group.leader.js.advance(seconds=11)
    group.settle()
    assert [each[2] for each in same(group)["messages"]] == [b"s.plan", b"s.out"]
    group.lead(group.members[1])
    group.settle()
    group.leader.js.advance(seconds=21)
    group.settle()
    outs = [each[2] for each in same(group)["messages"]].count(b"s.out")
    assert 2 <= outs <= 3


def test_an_operation_that_is_lost_has_an_unknown_outcome() -> None:
    group = replicas(config(storage="memory"))
    steps = group.leader.replica.operate(operations.purge(b"", 0, 0))
    next(steps)
    group.lose()
    with pytest.raises(ApiError):
        finish(steps)


def test_a_broken_entry_stops_the_replica_and_names_the_place() -> None:
    group = replicas(config(storage="memory"))
    replica = group.members[1].replica
    with pytest.raises(BrokenEntry, match=r"stream '\$G > S': entry 1 cannot be applied: byte 8 .*cut off"):
        replica.apply(1, 1, S, b"\1\0\0\0\1\0\0\0" + b"x")
    assert replica.stopped is not None
    replica.apply(2, 1, S, b"")
    assert replica.index == 0


def test_a_broken_entry_from_before_the_store_has_no_effect() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a")
    group.settle()
    replica = group.members[1].replica

    replica.apply(1, 1, S, b"\1\0\0\0\1\0\0\0" + b"x")

    assert (replica.index, replica.stopped) == (1, None)
    same(group)


def test_random_bytes_are_refused_or_applied_alike() -> None:
    rng = random.Random(3)
    valid = [
        payload_of([message(b"s.a", ["Nats-Msg-Id: 1", "Nats-TTL: 5"], b"x"), message(b"s.b", [], b"y")]),
        payload_of([message(b"s.a", ["Nats-Rollup: sub", "Nats-Expected-Last-Sequence: 3"], b"x")]),
        operations.purge(b"s.a", 0, 1),
        operations.delete(3, False),
        operations.skip(20),
        operation("removal", bytes(8)),
        operation("schedules", bytes(16)),
    ]
    applied = 0
    for _ in range(60):
        group = replicas(config(storage="memory", allow_rollup_hdrs=True, allow_msg_ttl=True), count=2)
        for index in range(1, 12):
            data = bytearray(rng.choice(valid))
            if rng.random() < 0.6:
                data[rng.randrange(len(data))] = rng.randrange(256)
            if data[12] in (5, 8) and rng.random() < 0.9:
                continue
            for member in group.members:
                try:
                    member.replica.apply(index, 1, S * index, bytes(data))
                except BrokenEntry:
                    assert member.replica.stopped is not None
                member.turn()
            assert group.members[0].replica.index == group.members[1].replica.index
            applied = max(applied, group.members[0].replica.index)
        same(group)
    assert applied == 11


def asked(group: Loopback, endpoint: str, body: dict[str, Any]) -> Any:
    """Send a request to the API of the leader's node; return the answer without its type."""
    leader = group.leader.js
    leader.engine.streams["S"] = group.leader.stream
    leader.user.send(b"SUB _INBOX.> 1\r\n")
    payload = json.dumps(body).encode()
    subject = f"$JS.API.STREAM.{endpoint}.S".encode()
    leader.user.send(b"PUB %b _INBOX.api %d\r\n%b\r\n" % (subject, len(payload), payload))
    assert leader.user.payloads() == []
    group.settle()
    (answer,) = leader.user.payloads()
    return {name: value for name, value in json.loads(answer).items() if name != "type"}


def test_the_api_answers_a_purge_and_a_deletion_when_they_are_applied() -> None:
    group = replicas(config(storage="memory"))
    group.leader.js.user.send(b"PUB s.a 1\r\n1\r\nPUB s.b 1\r\n2\r\nPUB s.b 1\r\n3\r\n")
    group.settle()
    assert asked(group, "MSG.DELETE", {"seq": 1}) == {"success": True}
    assert asked(group, "PURGE", {"filter": "s.b", "keep": 1}) == {"success": True, "purged": 1}
    assert [each[0] for each in same(group)["messages"]] == [3]


def test_a_store_knows_which_entry_is_durable(tmp_path: Path) -> None:
    group = replicas(config(), tmp_path, count=1)
    send(group.leader, "s.a")
    group.settle()
    store = group.leader.store
    assert isinstance(store, FileStore)
    assert (store.applied_index, store.synced_index) == (1, 0)
    store.sync_now()
    assert store.synced_index == 1


def test_a_disk_that_refuses_stops_the_replica_without_an_answer(tmp_path: Path) -> None:
    disk, group = FaultyDisk(error=errno.ENOSPC, forever=True), Loopback()
    group.members = [Member(group, config(), str(tmp_path), disk), Member(group, config(), f"{tmp_path}/2")]
    group.lead(group.members[0])
    send(group.leader, "s.a")
    group.settle()
    disk.at = disk.calls
    send(group.leader, "s.b")
    group.settle()
    assert group.members[0].replica.stopped is not None
    assert answers(group.members[0]) == [{"stream": "S", "seq": 1}]
    assert group.members[1].store.last_seq == 2
    send(group.members[0], "s.c")
    assert group.proposed == []


class Needless(StreamConsumer):
    """A consumer that no longer needs message 1."""

    config = ConsumerConfig()
    told = False

    def take_acknowledged(self, most: int) -> list[int]:
        told, self.told = self.told, True
        return [] if told else [1]


def test_what_consumers_of_the_leader_acknowledged_is_removed_everywhere() -> None:
    group = replicas(config(storage="memory", retention="workqueue"))
    send(group.leader, "s.a")
    send(group.leader, "s.b")
    group.settle()
    consumer = Needless("c")
    group.leader.stream.add_consumer(consumer)
    group.leader.stream.inbox.has_acknowledged(consumer)
    group.settle()
    assert [each[0] for each in same(group)["messages"]] == [2]


def test_a_removal_that_the_group_did_not_take_is_proposed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    group = replicas(config(storage="memory", retention="workqueue"))
    send(group.leader, "s.a")
    group.settle()
    consumer = Needless("c")
    group.leader.stream.add_consumer(consumer)
    with monkeypatch.context() as full:
        full.setattr(Loopback, "propose", lambda *_: False)
        group.leader.stream.inbox.has_acknowledged(consumer)
        group.leader.turn()
    send(group.leader, "s.b")
    group.settle()
    assert [each[0] for each in same(group)["messages"]] == [2]


def test_a_new_leader_removes_what_the_former_one_lost() -> None:
    group = replicas(config(storage="memory", retention="workqueue"))
    send(group.leader, "s.a")
    group.settle()
    consumers = [Needless("c"), Needless("c")]
    for member, consumer in zip(group.members, consumers, strict=False):
        member.stream.add_consumer(consumer)
    group.leader.stream.inbox.has_acknowledged(consumers[0])
    group.leader.turn()
    assert len(group.proposed) == 1
    group.lead(group.members[1])
    group.settle()
    assert same(group)["messages"] == []


def copies(group: Loopback) -> list[list[bytes]]:
    """Return the copies that each member's client received since the last call."""
    return [member.js.user.payloads() for member in group.members]


def test_only_the_replica_that_answers_republishes() -> None:
    group = replicas(config(storage="memory"))
    for member in group.members:
        member.stream.republisher = Republisher("S", RepublishConfig(src=">", dest="copy.>"), Rng())
        member.js.user.send(b"SUB copy.> 1\r\n")
    group.leader.js.user.send(b"PUB s.a 1\r\n1\r\n")
    group.settle()
    assert copies(group) == [[b"1"], [], []]
    group.lead(group.members[1])
    replayed = operation("message", b"2", b"s.b")  # committed before this member became the leader
    group.log.append((len(group.log) + 1, 1, group.log[-1][2] + 1, replayed))
    group.settle()
    assert copies(group) == [[], [], []]
    group.leader.js.user.send(b"PUB s.c 1\r\n3\r\n")
    group.settle()
    assert copies(group) == [[], [b"3"], []]
    same(group)

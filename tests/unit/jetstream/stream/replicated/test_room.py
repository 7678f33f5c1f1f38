"""A leader with a message or a batch that exceeds a limit, and a replica on which a message fails."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.jetstream.stream.replicated.payloads import message, payload_of
from tests.unit.jetstream.stream.replicated.replicas import Loopback, answers, config, replicas, same, send

from pyjs.jetstream.stream.features import batch_commits, special
from pyjs.jetstream.stream.replicated.payload import (
    BrokenEntry,
    PayloadBuffer,
    items_of,
    operation,
    payload_fault,
)

S = 1_000_000_000


def test_a_payload_is_never_larger_than_the_group_takes() -> None:
    pytest.importorskip("pyjs_raft")
    from pyjs.consensus.batch import PAYLOAD_MAX  # imported after the check for the engine, which it needs

    assert PayloadBuffer().size_max == PAYLOAD_MAX
    assert payload_fault(bytes(PAYLOAD_MAX + 1)) == f"a payload of {PAYLOAD_MAX + 1} bytes"


def test_the_largest_message_is_taken_if_nothing_else_is_in_flight() -> None:
    group = replicas(config(storage="memory"), count=1)
    group.leader.replica.in_flight_max = 100
    send(group.leader, "s.a", bytes(150))
    send(group.leader, "s.a", bytes(10))
    group.settle()
    refused, stored = answers(group.leader)
    assert (refused["error"]["err_code"], stored["seq"]) == (10023, 1)


def codes(found: list[Any]) -> list[Any]:
    """Return the sequences or error codes of PubAcks."""
    return [each.get("error", {}).get("err_code") or each["seq"] for each in found if each is not None]


def test_an_answer_goes_to_its_own_message_after_one_that_did_not_fit() -> None:
    group = replicas(config(storage="memory"))
    send(group.leader, "s.a", b"1")
    group.leader.replica.buffer.size_max = 60
    group.leader.js.user.send(b"PUB s.a _INBOX.large 80\r\n%b\r\n" % bytes(80))
    group.leader.replica.buffer.size_max = 1000
    group.leader.js.user.send(b"PUB s.a _INBOX.later 1\r\n3\r\n")
    frames = group.leader.js.user.frames()
    group.settle()
    frames += group.leader.js.user.frames()
    told = {frame.subject: frame.payload for frame in frames if frame.subject.startswith(b"_INBOX")}
    assert b'"err_code":10023' in told[b"_INBOX.large"]
    assert b'"seq":2' in told[b"_INBOX.later"]
    assert [each[4] for each in same(group)["messages"]] == [b"1", b"3"]


def send_batch(group: Loopback, name: str, count: int) -> None:
    """Send an atomic batch of messages of 100 bytes."""
    for number in range(1, count + 1):
        end = {"Nats_Batch_Commit": "1"} if number == count else {}
        send(group.leader, "s.b", bytes(100), Nats_Batch_Id=name, Nats_Batch_Sequence=f"{number}", **end)


def test_a_batch_that_does_not_fit_is_refused_as_a_whole() -> None:
    group = replicas(config(storage="memory", allow_atomic=True))
    send(group.leader, "s.a", b"1")
    group.leader.replica.buffer.size_max = 600
    send_batch(group, "b", 5)
    send(group.leader, "s.a", b"2")
    assert [kind for payload, _ in group.proposed for kind, *_ in items_of(payload)] == ["message", "message"]
    group.settle()
    assert codes(answers(group.leader)) == [10023, 1, 2]
    assert [each[4] for each in same(group)["messages"]] == [b"1", b"2"]


def test_the_bytes_of_a_batch_count_as_in_flight() -> None:
    group = replicas(config(storage="memory", allow_atomic=True))
    group.leader.replica.in_flight_max = 600
    send(group.leader, "s.a", b"1")
    send_batch(group, "b", 5)
    group.settle()
    send_batch(group, "c", 5)
    group.settle()
    assert codes(answers(group.leader)) == [10023, 1, 6]
    assert group.leader.replica.in_flight == 0
    assert len(same(group)["messages"]) == 6


def test_a_fault_in_a_message_stops_the_replica_before_the_entry_counts_as_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = replicas(config(storage="memory", allow_msg_counter=True), count=2)
    entry = payload_of([message(b"s.a", ["Nats-Incr: 1"], b""), message(b"s.a", ["Nats-Incr: 1"], b"")])
    follower = group.members[1]
    follower.replica.apply(1, 1, S, entry)
    follower.turn()

    def broken(*_: object) -> None:
        raise RuntimeError("no sum")

    monkeypatch.setattr(special, "counted", broken)
    many = payload_of([message(b"s.a", ["Nats-Incr: 99999999999999999999"], b"")])
    with pytest.raises(BrokenEntry, match="no sum"):
        follower.replica.apply(2, 1, 2 * S, many)
    assert (follower.replica.index, follower.store.applied_index) == (1, 1)


def test_a_fault_in_a_batch_stops_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    group = replicas(config(storage="memory", allow_atomic=True), count=1)

    def broken(*_: object) -> None:
        raise RuntimeError("no check")

    monkeypatch.setattr(batch_commits, "BatchChecks", broken)
    member = group.members[0]
    with pytest.raises(BrokenEntry, match="no check"):
        member.replica.apply(1, 1, S, operation("batch", message(b"s.b", ["Nats-Msg-Id: 1"], b"1"), b"b"))
    assert (member.replica.index, member.store.applied_index) == (0, 0)

"""Consumers of a replicated stream: committed changes, answers, and redelivery by the next leader."""

from __future__ import annotations

import pytest
from tests.unit.jetstream.stream.replicated.consuming import Consuming

from pyjs.base.errors import PyjsError
from pyjs.jetstream.consumer import record
from pyjs.jetstream.stream.replicated.consumers import CommittedConsumer
from pyjs.jetstream.stream.replicated.payload import items_of

S = 1_000_000_000


def kinds(of: Consuming, since: int = 0) -> list[str]:
    """Return the kinds of the items committed after entry `since`."""
    return [kind for _, _, _, payload in of.group.log[since:] for kind, *_ in items_of(payload)]


def test_a_created_consumer_is_on_every_replica_and_answered_then() -> None:
    js = Consuming()
    body = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}

    assert js.ask("CONSUMER.CREATE.S.c", body) == []
    assert "c" not in js.leader.stream.consumers

    js.settle()
    (answer,) = js.answers()
    assert answer["name"] == "c"
    assert [list(member.stream.listing) for member in js.group.members] == [["c"]] * 3
    js.same()


def test_a_consumer_that_is_there_already_is_refused_by_every_replica() -> None:
    js = Consuming()
    js.consumer()
    (created,) = [payload for _, _, _, payload in js.group.log if payload[12] == 10]
    js.leader.stream.turn.go_on(js.leader.replica.operate(created))
    js.settle()
    js.same()
    assert all(member.replica.stopped is None for member in js.group.members)


def test_a_creation_that_is_lost_is_answered_with_an_error() -> None:
    js = Consuming()
    body = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    js.ask("CONSUMER.CREATE.S.c", body)
    js.group.lose()
    js.leader.turn()
    (answer,) = js.answers()
    assert answer["error"]["err_code"] == 10008
    js.settle()
    assert js.consumer()["name"] == "c"
    js.same()


def test_a_double_ack_is_answered_when_it_is_committed() -> None:
    js = Consuming()
    js.publish(1)
    js.consumer()
    (message,) = js.pull()
    js.ack(message, reply=b"in.ack")
    assert js.inbox.frames() == []
    js.settle()
    assert [frame.subject for frame in js.inbox.frames()] == [b"in.ack"]
    js.ack(message, reply=b"in.again")
    assert js.inbox.frames() == []
    js.settle()
    assert [frame.subject for frame in js.inbox.frames()] == [b"in.again"]
    js.same()


def test_a_double_ack_that_is_lost_is_not_answered() -> None:
    js = Consuming()
    js.publish(1)
    js.consumer()
    (message,) = js.pull()
    js.ack(message, reply=b"in.ack")
    old = js.inbox
    js.fail_over(1)
    assert old.frames() == []
    js.advance(seconds=31)
    assert [(m.seq, m.count) for m in js.pull()] == [(1, 2)]


def test_a_new_leader_goes_on_where_the_old_one_was() -> None:
    js = Consuming()
    js.publish(5)
    js.consumer()
    got = js.pull(batch=3)
    js.ack(got[0])
    js.ack(got[2], b"-NAK")
    js.settle()
    before = js.opened().dump_state()

    js.fail_over(1)

    assert js.opened().dump_state() == before
    assert [(m.seq, m.count) for m in js.pull()] == [(3, 2), (4, 1), (5, 1)]
    js.advance(seconds=31)
    assert [(m.seq, m.count) for m in js.pull()] == [(2, 2), (3, 3), (4, 2), (5, 2)]
    js.same()


def test_a_delivery_that_is_not_committed_is_delivered_as_if_for_the_first_time() -> None:
    js = Consuming()
    js.publish(2)
    js.consumer()
    js.pull(batch=1)
    js.request(batch=1)
    assert [m.seq for m in js.deliveries()] == [2]
    js.fail_over(1)
    assert [(m.seq, m.count, m.consumer_seq) for m in js.pull()] == [(2, 1, 2)]
    js.same()


def test_waiting_requests_are_told_of_the_change_of_the_leader() -> None:
    js = Consuming()
    js.consumer()
    js.request(batch=7, expires=60 * S, max_bytes=900)
    old = js.inbox
    js.fail_over(1)
    (frame,) = old.frames()
    assert frame.headers == b"NATS/1.0 409 Leadership Change\r\n\r\n"  # three nats-servers send the same


def test_a_former_leader_takes_no_requests_and_acks() -> None:
    js = Consuming()
    js.publish(1)
    js.consumer()
    (message,) = js.pull()
    old = js.inbox
    js.fail_over(1)
    old.send(b"PUB %b in.ack 0\r\n\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c in.1 0\r\n\r\n" % message.reply)
    js.settle()
    assert [frame.headers[:12] for frame in old.frames()] == [b"NATS/1.0 503"] * 2
    assert js.opened().acks.pending.count == 1


def test_an_interest_stream_stores_and_removes_the_same_on_every_replica() -> None:
    js = Consuming(retention="interest")
    js.publish(1)
    js.consumer("c", filter_subject="s.a")
    js.consumer("d", filter_subject="s.>")
    js.publish(1, "s.a")
    js.publish(1, "s.b")
    assert [each[0] for each in js.same()["messages"]] == [2, 3]
    first, second = js.pull("c"), js.pull("d")
    js.ack(first[0])
    js.settle()
    assert [each[0] for each in js.same()["messages"]] == [2, 3]
    for message in second:
        js.ack(message)
    js.settle()
    assert js.same()["messages"] == []
    js.publish(1)
    js.api("CONSUMER.DELETE.S.c")
    js.api("CONSUMER.DELETE.S.d")
    assert js.same()["messages"] == []


def test_a_new_leader_removes_what_was_acknowledged_before() -> None:
    js = Consuming(retention="workqueue")
    js.publish(3)
    js.consumer()
    first, second, _ = js.pull()
    js.ack(first)
    js.settle()
    assert [each[0] for each in js.same()["messages"]] == [2, 3]
    js.ack(second)
    js.group.commit(1)  # this commits the changes but not the removal
    js.fail_over(1)
    assert [each[0] for each in js.same()["messages"]] == [3]


def test_a_new_leader_removes_nothing_before_its_consumers_are_open() -> None:
    js = Consuming(retention="workqueue")
    js.publish(3)
    js.consumer()
    js.group.lead(js.group.members[1])
    js.group.members[1].stream.sweep()
    js.settle()
    assert len(js.same()["messages"]) == 3


def test_a_changed_configuration_and_a_pause_are_on_every_replica() -> None:
    js = Consuming(retention="interest")
    js.consumer(filter_subject="s.a")
    js.consumer(filter_subject="s.b", max_ack_pending=7)
    answer = js.api("CONSUMER.PAUSE.S.c", {"pause_until": "2099-01-01T00:00:00Z"})
    assert answer["paused"] is True
    js.publish(1, "s.a")
    js.publish(1, "s.b")
    assert [each[2] for each in js.same()["messages"]] == [b"s.b"]
    js.fail_over(2)
    assert js.api("CONSUMER.INFO.S.c")["paused"] is True
    assert js.opened().config.max_ack_pending == 7
    assert js.pull() == []


def test_a_reset_is_answered_when_it_is_committed() -> None:
    js = Consuming()
    js.publish(3)
    js.consumer()
    js.pull()
    assert js.ask("CONSUMER.RESET.S.c", {"seq": 2}) == []
    js.settle()
    (answer,) = js.answers()
    assert answer["reset_seq"] == 2
    js.fail_over(1)
    assert [(m.seq, m.count) for m in js.pull()] == [(2, 1), (3, 1)]
    js.same()


def test_a_lost_reset_is_answered_with_an_error() -> None:
    js = Consuming()
    js.publish(3)
    js.consumer()
    js.pull()
    js.ask("CONSUMER.RESET.S.c", {"seq": 2})
    js.group.lose()
    js.leader.turn()
    (answer,) = js.answers()
    assert answer["error"]["err_code"] == 10008
    js.settle()
    js.same()


def test_a_deleted_consumer_is_gone_everywhere_and_its_late_changes_have_no_effect() -> None:
    js = Consuming()
    js.publish(1)
    js.consumer()
    (message,) = js.pull()
    js.ask("CONSUMER.DELETE.S.c")
    js.ack(message)
    js.settle()
    assert js.answers()[0]["success"] is True
    js.consumer()
    assert [m.count for m in js.pull()] == [1]
    js.same()


def test_an_unused_consumer_is_deleted_everywhere() -> None:
    js = Consuming()
    js.consumer(durable_name="", name="c", inactive_threshold=5 * S)
    js.advance(seconds=4)
    js.fail_over(1)
    js.advance(seconds=4)
    assert list(js.leader.stream.consumers) == ["c"]
    js.advance(seconds=4)
    assert [list(member.stream.consumers) for member in js.group.members] == [[], [], []]
    js.same()


def test_an_unused_consumer_is_deleted_later_if_that_was_not_committed() -> None:
    js = Consuming()
    js.consumer(durable_name="", name="c", inactive_threshold=5 * S)
    js.leader.js.advance(seconds=7)
    js.leader.turn()
    js.group.lose()
    js.settle()
    assert list(js.leader.stream.consumers) == ["c"]
    js.advance(seconds=2)
    assert list(js.leader.stream.consumers) == []
    js.same()


@pytest.mark.parametrize("fields", [{"mem_storage": True}, {"num_replicas": 1}, {"ack_policy": "none"}])
def test_every_consumer_lives_in_the_group(fields: dict[str, object]) -> None:
    js = Consuming()
    js.publish(3)
    js.consumer(durable_name="", name="c", **fields)
    js.pull(batch=2)
    js.fail_over(1)
    assert [m.seq for m in js.pull()] == [3]
    js.same()


def test_a_push_consumer_goes_on_at_the_new_leader() -> None:
    js = Consuming()
    js.consumer(deliver_subject="push.c")
    js.inbox.send(b"SUB push.c 2\r\n")
    js.publish(2)
    first = js.deliveries()
    js.ack(first[0])
    js.settle()
    js.group.lead(js.group.members[1])
    js.inbox.send(b"SUB push.c 2\r\n")
    js.publish(1)
    assert [(m.seq, m.count) for m in js.deliveries()] == [(3, 1)]
    js.advance(seconds=31)
    assert [(m.seq, m.count) for m in js.deliveries()] == [(2, 2), (3, 2)]
    js.same()


def test_long_changes_are_replaced_by_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "DELTAS_SIZE_MIN", 60)
    js = Consuming()
    js.consumer()
    for _ in range(30):
        js.publish(1)
        js.ack(js.pull()[0])
        js.settle()
    assert "consumer state" in kinds(js)
    committed = js.leader.replica.consumers.committed["c"]
    assert len(committed.changes) < 400
    js.fail_over(1)
    assert js.opened().acks.floor_seq == 30
    js.same()


def test_a_purge_is_followed_by_a_state() -> None:
    js = Consuming()
    js.publish(4)
    js.consumer()
    js.pull(batch=2)
    js.api("STREAM.PURGE.S")
    js.publish(1)
    before = js.opened().dump_state()
    assert "consumer state" in kinds(js)
    js.fail_over(1)
    assert js.opened().dump_state() == before
    assert [m.seq for m in js.pull()] == [5]
    js.same()


def test_after_lost_changes_the_leader_proposes_its_state() -> None:
    js = Consuming()
    js.publish(3)
    js.consumer()
    got = js.pull()
    js.ack(got[0])
    js.group.lose()
    js.ack(got[1])
    js.settle()
    assert kinds(js)[-1] == "consumer state"
    js.fail_over(1)
    assert js.opened().acks.floor_seq == 2
    js.same()


def test_a_consumer_with_a_fault_is_opened_again_from_what_is_committed() -> None:
    js = Consuming()
    js.publish(2)
    js.consumer()
    got = js.pull()
    js.ack(got[0])
    js.settle()
    js.leader.js.node.turn_state.faulted.append((js.opened(), PyjsError("a fault")))
    js.settle()
    assert js.opened().acks.pending.count == 1
    js.ack(got[1])
    js.settle()
    js.fail_over(1)
    assert js.opened().acks.floor_seq == 2
    js.same()


def test_a_state_that_cannot_be_read_begins_again() -> None:
    js = Consuming()
    js.publish(2)
    js.consumer()
    js.pull()
    for member in js.group.members:
        member.replica.consumers.committed["c"].state = b'{"version":1}'
    js.fail_over(1)
    assert [m.seq for m in js.pull()] == [1, 2]
    js.same()


def test_requests_about_a_consumer_that_is_not_open_are_refused() -> None:
    js = Consuming()
    js.consumer()
    js.leader.replica.consumers.follow()
    assert js.api("CONSUMER.INFO.S.c")["error"]["err_code"] == 10008


def test_a_dump_is_restored_elsewhere() -> None:
    js = Consuming(retention="interest")
    js.consumer(filter_subject="s.a")
    js.publish(3)
    js.ack(js.pull(batch=2)[0])
    js.settle()
    found = js.leader.replica.consumers.dump()
    other = Consuming(retention="interest", count=1)
    (member,) = other.group.members
    member.replica.follow()
    member.replica.consumers.load(found)
    assert member.replica.consumers.dump() == found
    assert member.stream.listing == ["c"]
    with pytest.raises(ValueError, match="version 9"):
        member.replica.consumers.load(b"\x93\x09\x00\x90")


def test_changes_of_a_newer_server_make_a_consumer_offline_until_such_a_server_leads() -> None:
    # given: the first member has committed a change that the others do not know
    js = Consuming(retention="interest")
    js.consumer()
    js.publish(2)
    (message,) = js.pull(batch=1)
    js.ack(message)
    js.settle()
    committed = [member.replica.consumers.committed["c"] for member in js.group.members]
    known = bytes(committed[0].changes)
    for each in committed:
        each.changes += b"\x0c\x01"
    # when
    js.fail_over(1)
    # then
    assert isinstance(js.leader.stream.consumers["c"], CommittedConsumer)
    refusal = (
        "consumer is offline: its state was written by a newer version of pyjs-server:"
        " it has a change of kind 12, and this one reads 1 to 11"
    )
    create = {"stream_name": "S", "config": {"durable_name": "c", "ack_policy": "explicit"}}
    for endpoint, body in (
        ("CONSUMER.INFO.S.c", b""),
        ("CONSUMER.CREATE.S.c", create),
        ("CONSUMER.RESET.S.c", b""),
        ("CONSUMER.DELETE.S.c", b""),
        ("PYJS.WHY.S.c", b""),
    ):
        error = js.api(endpoint, body)["error"]
        assert (error["err_code"], error["description"]) == (10195, refusal)
    js.publish(1)
    assert js.leader.stream.store.msgs == 2
    js.same()
    # and when a server leads that knows the change
    for each in committed:
        each.changes[:] = known
    js.fail_over(2)
    assert [each.seq for each in js.pull(batch=9)] == [2, 3]

"""Reports about consumers are current: a leader that has been replaced does not report an old state."""

from __future__ import annotations

import json

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.member import answering
from pyjs.jetstream.member.notes import Order


@pytest.mark.parametrize("subject", ["CONSUMER.INFO.R.C", "CONSUMER.NAMES.R", "CONSUMER.LIST.R"])
def test_a_leader_that_is_cut_off_does_not_report_consumers(net: JetNet, subject: str) -> None:
    servers = net.trio()
    client = servers[0].client()
    body: dict[str, object] = {"name": "R", "subjects": ["r"], "num_replicas": 3}
    net.answers(client, "STREAM.CREATE.R", body, wait_ms=2000)
    net.ask(client, "CONSUMER.CREATE.R.C", {"stream_name": "R", "config": {"durable_name": "C", "name": "C"}})
    assert "error" not in net.ask(client, subject)
    old = net.jet(net.ask(client, "STREAM.INFO.R")["cluster"]["leader"])
    asker = old.client()
    for other in servers:
        if other is not old:
            net.cut(old.name, other.name)
            net.cut(other.name, old.name)
    answers = net.answers(asker, subject, wait_ms=6000)
    assert [answer["error"]["err_code"] for answer in answers] == [10008]


CONSUMER: dict[str, object] = {"stream_name": "R", "config": {"durable_name": "D", "ack_policy": "explicit"}}


def led(net: JetNet) -> tuple[JetServer, list[JetServer]]:
    """Create a stream; return its leader's server, and the other servers."""
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    leader = net.ask(servers[0].client(), "STREAM.INFO.R")["cluster"]["leader"]
    return net.jet(leader), [each for each in servers if each.name != leader]


@pytest.mark.parametrize("is_here", [False, True])
def test_a_consumer_whose_leader_changes_meanwhile_is_created_with_one_answer(
    net: JetNet, is_here: bool
) -> None:
    leader, others = led(net)
    for other in others:
        net.cut(leader.name, other.name)
    asker = leader.client() if is_here else others[0].client()
    number = b"7001"
    body = json.dumps(CONSUMER).encode()
    asker.send(
        b"SUB in.d %b\r\nPUB $JS.API.CONSUMER.CREATE.R.D in.d %d\r\n%b\r\n" % (number, len(body), body)
    )
    net.run(1000 * NS_PER_MS)
    net.heal()
    net.run(4000 * NS_PER_MS)
    answers = [json.loads(frame.payload) for frame in asker.frames() if frame.subject == b"in.d"]
    assert [answer.get("name") for answer in answers] == ["D"], answers
    assert net.ask(others[1].client(), "CONSUMER.INFO.R.D")["name"] == "D"


@pytest.mark.parametrize("subject", ["CONSUMER.CREATE.R.D", "STREAM.INFO.R", "CONSUMER.NAMES.R"])
def test_a_request_during_a_step_down_has_one_answer(net: JetNet, subject: str) -> None:
    leader, _ = led(net)
    body = CONSUMER if "CREATE" in subject else {}
    for _ in range(4):
        client = leader.client()
        client.send(b"PUB $JS.API.STREAM.LEADER.STEPDOWN.R 0\r\n\r\n")
        answers = net.answers(client, subject, body, wait_ms=2000)
        assert len(answers) == 1
        assert "error" not in answers[0], answers


def cut_off(net: JetNet, server: JetServer) -> None:
    """Cut all connections between a server and the others."""
    for other in net.living():
        if other is not server:
            net.cut(server.name, other.name)
            net.cut(other.name, server.name)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("STREAM.INFO.R", None),
        ("CONSUMER.NAMES.R", None),
        ("CONSUMER.CREATE.R.D", CONSUMER),
    ],
)
def test_a_request_that_comes_before_the_loss_of_the_streams_leader_is_noticed_has_one_answer(
    net: JetNet, subject: str, body: dict[str, object] | None, at: int
) -> None:
    leader, others = led(net)
    cut_off(net, leader)
    net.run(100 * NS_PER_MS)

    answers = net.answers(others[at].client(), subject, body, wait_ms=3000)

    assert len(answers) == 1
    assert "error" not in answers[0], answers


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("STREAM.NAMES", None),
        ("INFO", None),
        ("STREAM.CREATE.N", {"name": "N", "subjects": ["n"]}),
        ("STREAM.CREATE.N", {"name": "N", "subjects": ["n"], "num_replicas": 2}),
    ],
)
def test_a_request_that_comes_before_the_loss_of_the_metadatas_leader_is_noticed_has_one_answer(
    net: JetNet, subject: str, body: dict[str, object] | None
) -> None:
    net.trio()
    leader = net.leader()
    asker = next(each for each in net.living() if each is not leader)
    cut_off(net, leader)
    net.run(100 * NS_PER_MS)

    answers = net.answers(asker.client(), subject, body, wait_ms=5000)

    assert len(answers) == 1
    assert "error" not in answers[0], answers


def test_a_change_that_must_not_be_made_twice_is_refused_when_its_leader_is_lost(net: JetNet) -> None:
    leader, others = led(net)
    net.publish(leader, "r", 3)
    cut_off(net, leader)
    net.run(100 * NS_PER_MS)

    answers = net.answers(others[0].client(), "STREAM.PURGE.R", None, wait_ms=3000)

    assert [answer["error"]["err_code"] for answer in answers] == [10008]


def test_requests_that_a_lost_leader_has_answered_are_not_answered_again(net: JetNet) -> None:
    leader, others = led(net)
    client = others[0].client()
    client.send(b"SUB in.x 77\r\nPUB $JS.API.STREAM.INFO.R in.x 0\r\n\r\n")
    net.run(100 * NS_PER_MS)
    cut_off(net, leader)
    net.run(3000 * NS_PER_MS)

    assert [frame.subject for frame in client.frames()] == [b"in.x"]


def test_a_deletion_that_a_lost_leader_has_made_is_not_made_again(
    net: JetNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # everything after the last heartbeat may be lost
    monkeypatch.setattr(answering, "BEAT_NS", 600 * NS_PER_MS)
    net.trio()
    leader = net.leader()
    asker = next(each for each in net.living() if each is not leader)
    client, body = asker.client(), {"name": "N", "subjects": ["n"], "num_replicas": 3}
    net.answers(client, "STREAM.CREATE.N", body, wait_ms=2000)
    assert net.answers(client, "STREAM.DELETE.N", wait_ms=100)[0]["success"]
    created = net.answers(client, "STREAM.CREATE.N", body, wait_ms=100)[0]["created"]
    cut_off(net, leader)
    net.run(5000 * NS_PER_MS)

    assert net.ask(client, "STREAM.INFO.N")["created"] == created


def test_a_reply_subject_is_used_again_after_a_request_was_passed_on(net: JetNet) -> None:
    leader, _ = led(net)
    stream = leader.member.machine.state.stream("$G", "R")
    assert stream is not None
    subject, client = "$JS.API.STREAM.INFO.R", leader.client()
    client.send(b"SUB in.x 77\r\n")
    leader.member._take_order(Order("$G", "STREAM.INFO", "R", stream.group, 1, 3, subject, b"in.x", b"", 7))
    net.run(200 * NS_PER_MS)
    assert len(client.frames()) == 1

    client.send(b"PUB $JS.API.STREAM.INFO.R in.x 0\r\n\r\n")
    net.run(200 * NS_PER_MS)

    assert [frame.subject for frame in client.frames()] == [b"in.x"]

"""Answers to requests from servers that have a stream's replicas."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet

from pyjs.base.clock import NS_PER_MS
from pyjs.base.errors import StoreFailed
from pyjs.jetstream.cluster.assignments import Assignment
from pyjs.jetstream.manage.engine import JetStream
from pyjs.jetstream.member.notes import Answered, Order


def fail_to_open(js: JetStream, assignment: Assignment) -> Generator[None, None, None]:
    yield None
    raise StoreFailed("x", "disk full")


def test_a_stream_that_failed_is_tried_again(net: JetNet, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = net.trio()
    net.create(servers[0].client(), "S")
    for server in servers:
        monkeypatch.setattr(server.member.replicated, "open_steps", fail_to_open)
    body = {"name": "S", "subjects": ["s"], "num_replicas": 3}
    client = servers[0].client()
    (refused,) = net.answers(client, "STREAM.UPDATE.S", body, wait_ms=1000)
    assert "disk full" in refused["error"]["description"]
    there = next(server for server in servers if server.streams)
    js = there.node.jetstream.accounts["$G"]  # type: ignore[union-attr]
    assert there.member.reports.stream(js, js.streams["S"])["leader"] == there.name
    monkeypatch.undo()
    net.run_until(lambda: all(server.streams == ["S"] for server in servers))


def test_a_stream_that_no_server_can_open_is_refused(net: JetNet, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = net.trio()
    for server in servers:
        monkeypatch.setattr(server.member.replicated, "open_steps", fail_to_open)
    body = {"name": "R", "subjects": ["r"], "num_replicas": 3}
    (refused,) = net.answers(servers[1].client(), "STREAM.CREATE.R", body, wait_ms=4000)
    assert "disk full" in refused["error"]["description"]


def test_a_replica_that_cannot_be_opened_answers_nothing(
    net: JetNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = net.trio()
    monkeypatch.setattr(net.leader().member.replicated, "open_steps", fail_to_open)
    body = {"name": "R", "subjects": ["r"], "num_replicas": 3}
    answers = net.answers(servers[1].client(), "STREAM.CREATE.R", body, wait_ms=9000)
    assert [answer.get("did_create") for answer in answers] == [True]


def test_a_follower_answers_when_the_leader_was_lost_before(net: JetNet) -> None:
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    leader = net.ask(servers[0].client(), "STREAM.INFO.R")["cluster"]["leader"]
    heirs = [server for server in servers if server.name != leader]
    client = heirs[0].client()
    client.send(b"SUB _INBOX.x 1\r\nSUB _INBOX.y 2\r\n")
    net.run(100 * NS_PER_MS)
    for server in heirs:
        for number, reply in ((7, b"_INBOX.x"), (8, b"_INBOX.y")):
            order = Order("$G", "STREAM.UPDATE", "R", 1, 1, 3, "$JS.API.STREAM.UPDATE.R", reply, b"", number)
            server.member.orders.take(order)
        server.member.orders.answered(Answered("$G", "R", 8, 1))
        server.wake()
    net.crash(leader)
    net.run(7000 * NS_PER_MS)
    assert [frame.subject for frame in client.frames()] == [b"_INBOX.x"]


def test_an_answer_that_is_known_before_the_order_is_not_repeated(net: JetNet) -> None:
    servers = net.trio()
    net.create(servers[0].client(), "S")
    there = next(server for server in servers if server.streams)
    client = there.client()
    client.send(b"SUB _INBOX.x 1\r\n")
    order = Order("$G", "STREAM.UPDATE", "S", 1, 1, 1, "$JS.API.STREAM.UPDATE.S", b"_INBOX.x", b"", 7)
    there.member.orders.answered(Answered("$G", "S", 7, 1))
    for expected in (0, 1):
        there.member.orders.take(order)
        there.wake()
        net.run(1000 * NS_PER_MS)
        assert len(client.frames()) == expected


def test_a_replica_that_comes_late_does_not_answer(net: JetNet) -> None:
    servers = net.trio()
    late = next(server for server in servers if not server.member.machine.leads)
    order = Order("$G", "STREAM.CREATE", "R", 1, 1, 3, "$JS.API.STREAM.CREATE.R", b"_INBOX.x", b"", 7)
    client = late.client()
    client.send(b"SUB _INBOX.x 1\r\n")
    late.member.orders.take(order)
    late.wake()
    net.run(1000 * NS_PER_MS)
    assert client.frames() == []

"""A server that leaves transfers its leaderships: no sent message is lost, and no client gets a status 503."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import LOG_FILE_SIZE, JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.member.member_node import MemberNode
from pyjs.testing.node import RawClient

STREAM: dict[str, object] = {"name": "R", "subjects": ["r"], "num_replicas": 3, "allow_direct": True}


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JetNet]:
    monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
    net = JetNet(tmp_path)
    servers = net.trio()
    client = servers[0].client()
    assert net.answers(client, "STREAM.CREATE.R", STREAM, wait_ms=2000)
    config = {"durable_name": "C", "name": "C", "ack_policy": "explicit"}
    net.ask(client, "CONSUMER.CREATE.R.C", {"stream_name": "R", "config": config})
    yield net
    net.stop()


def leader(net: JetNet) -> JetServer:
    return net.jet(net.ask(net.living()[0].client(), "STREAM.INFO.R")["cluster"]["leader"])


def leave(server: JetServer) -> list[str]:
    """Let a server transfer its leaderships; return its actions so far."""
    done: list[str] = []

    def steps() -> Iterator[object]:
        yield from server.member.leave_steps(lambda: done.append("paused"))
        done.append("over")

    server.node.turn_state.go_on(steps())
    server.wake()
    return done


def publish(client: RawClient, numbers: range) -> None:
    for number in numbers:
        client.send(b"PUB r in.%d 1\r\nx\r\n" % number)


def answers(client: RawClient) -> dict[bytes, bytes]:
    """Return the answers that arrived, by inbox: the payload, or the status."""
    return {
        frame.subject: frame.payload or frame.headers[:12]
        for frame in client.frames()
        if frame.subject[:3] == b"in."
    }


def test_publishers_at_all_servers_get_every_answer_while_the_leader_leaves(net: JetNet) -> None:
    old = leader(net)
    others = [server for server in net.living() if server is not old]
    clients = [server.client() for server in others]
    for client in clients:
        client.send(b"SUB in.> 1\r\n")
    net.run(50 * NS_PER_MS)
    number = 0
    done: list[str] = []
    for at in range(200):  # publish each millisecond: before, during and after the transfer of leadership
        if at == 50:
            done = leave(old)
        for client in clients:
            publish(client, range(number, number + 1))
            number += 1
        net.run(NS_PER_MS)
    net.run(1000 * NS_PER_MS)
    assert done == ["paused", "over"]
    found: dict[bytes, bytes] = {}
    for client in clients:
        found |= answers(client)
    assert len(found) == number
    assert sorted(json.loads(each)["seq"] for each in found.values()) == list(range(1, number + 1))
    assert leader(net) is not old
    assert not old.member.machine.leads


def test_a_request_for_messages_of_a_consumer_waits_for_its_next_leader(net: JetNet) -> None:
    old = leader(net)
    (asker, *_) = [server for server in net.living() if server is not old]
    client = asker.client()
    client.send(b"SUB in.> 1\r\n")
    publish(client, range(1))
    net.run(50 * NS_PER_MS)
    leave(old)
    for number in range(2, 40):
        client.send(b'PUB $JS.API.CONSUMER.MSG.NEXT.R.C in.%d 16\r\n{"no_wait":true}\r\n' % number)
        net.run(NS_PER_MS)
    net.run(500 * NS_PER_MS)
    headers = [frame.headers for frame in client.frames() if frame.headers]
    assert headers
    assert not [each for each in headers if each.startswith(b"NATS/1.0 503")]


def test_a_message_for_a_stream_without_a_majority_gets_the_status_after_two_seconds(net: JetNet) -> None:
    old = leader(net)
    keeper, lost = [server for server in net.living() if server is not old]
    client = keeper.client()
    client.send(b"SUB in.> 1\r\n")
    net.run(50 * NS_PER_MS)
    for server in (old, lost):
        net.crash(server.name)
    net.run(1000 * NS_PER_MS)
    publish(client, range(1))
    net.run(1000 * NS_PER_MS)
    assert answers(client) == {}
    net.run(1500 * NS_PER_MS)
    assert answers(client) == {b"in.0": b"NATS/1.0 503"}
    publish(client, range(1, 2))  # no other server is up
    net.run(10 * NS_PER_MS)
    assert answers(client) == {b"in.1": b"NATS/1.0 503"}


def test_other_requests_without_a_receiver_get_the_status_at_once(net: JetNet) -> None:
    client = net.living()[0].client()
    client.send(b"SUB in.> 1\r\nPUB nobody in.1 1\r\nx\r\n")
    net.run(NS_PER_MS)
    assert answers(client) == {b"in.1": b"NATS/1.0 503"}

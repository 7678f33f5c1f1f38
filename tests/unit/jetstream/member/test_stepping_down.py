"""A leader steps down while clients work: it or the next leader answers requests that were in transit to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import TRIO, JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.member.notes import Forwarded
from pyjs.testing import RawClient

BETWEEN_NS = NS_PER_MS // 5  # between two messages of one client; the network has the same delay
COUNT = 60
CONSUMER: dict[str, object] = {"stream_name": "R", "config": {"durable_name": "C", "ack_policy": "explicit"}}


def prepared(net: JetNet, replicas: int) -> None:
    """Create a stream and a consumer."""
    client = net.trio()[0].client()
    config = {"name": "R", "subjects": ["r.>"], "num_replicas": replicas, "allow_direct": True}
    net.answers(client, "STREAM.CREATE.R", config, wait_ms=2000)
    net.answers(client, "CONSUMER.CREATE.R.C", CONSUMER, wait_ms=200)


def leader(net: JetNet) -> str:
    (info,) = net.answers(net.jet("a").client(), "STREAM.INFO.R", wait_ms=2000)
    return str(info["cluster"]["leader"])


def begin(net: JetNet, replicas: int, old: str) -> None:
    """Make another server the leader: all three have a replica, or the leader's replica moves to the third one."""
    words, body = (
        ("LEADER.STEPDOWN", b"") if replicas == 3 else ("PEER.REMOVE", b'{"peer":"%b"}' % old.encode())
    )
    net.jet("a").client().send(b"PUB $JS.API.STREAM.%b.R %d\r\n%b\r\n" % (words.encode(), len(body), body))
    if replicas == 2:
        net.run(50 * NS_PER_MS)
        info = net.ask(net.jet("b").client(), "STREAM.INFO.R")  # the old leader answers
        assert info["cluster"]["leader"] == old
        net.run(1830 * NS_PER_MS)  # copying begins after two seconds


def wait(net: JetNet, replicas: int, old: str) -> None:
    """Wait until another server leads and, if the replica of the old leader moves, that replica is removed."""
    net.run_until(lambda: replicas == 3 or net.jet(old).streams == [])
    assert leader(net) != old


def leads(server: JetServer) -> bool:
    """Return whether a server leads the stream."""
    assert server.node.jetstream is not None
    replicated = server.node.jetstream.shared.replicated
    assert replicated is not None
    return any(machine.leads for machine in replicated.machines())


def answers(client: RawClient, subject: bytes) -> list[Any]:
    return [frame.payload for frame in client.frames() if frame.subject == subject]


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", TRIO)
def test_messages_on_the_way_to_a_leader_are_answered(net: JetNet, name: str, replicas: int) -> None:
    prepared(net, replicas)
    old, client, sent = leader(net), net.jet(name).client(), 0
    client.send(b"SUB in.p 1\r\n")
    net.run(50 * NS_PER_MS)
    begin(net, replicas, old)
    while leads(net.jet(old)) or sent < COUNT:
        client.send(b"PUB r.x in.p 2\r\nhi\r\n")
        sent += 1
        net.run(BETWEEN_NS)
    net.run(3000 * NS_PER_MS)
    assert [json.loads(answer)["seq"] for answer in answers(client, b"in.p")] == list(range(1, sent + 1))
    wait(net, replicas, old)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("name", TRIO)
def test_acknowledgements_on_the_way_to_a_leader_are_confirmed(net: JetNet, name: str, replicas: int) -> None:
    prepared(net, replicas)
    old, client = leader(net), net.jet(name).client()
    client.send(b"PUB r.x 2\r\nhi\r\n" * COUNT)
    net.run(500 * NS_PER_MS)
    client.send(b"SUB in.m 1\r\nSUB in.a 2\r\nPUB $JS.API.CONSUMER.MSG.NEXT.R.C in.m 2\r\n%d\r\n" % COUNT)
    net.run(500 * NS_PER_MS)
    acks = [frame.reply for frame in client.frames() if frame.reply.startswith(b"$JS.ACK.")]
    assert len(acks) == COUNT
    begin(net, replicas, old)
    for ack in acks:
        client.send(b"PUB %b in.a 4\r\n+ACK\r\n" % ack)
        net.run(BETWEEN_NS)
    net.run(3000 * NS_PER_MS)
    assert len(answers(client, b"in.a")) == COUNT
    wait(net, replicas, old)
    info = net.ask(client, "CONSUMER.INFO.R.C")
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, COUNT)


@pytest.mark.parametrize("name", TRIO)
def test_direct_gets_from_a_replica_that_goes_are_answered(net: JetNet, name: str) -> None:
    prepared(net, 2)
    net.publish(net.jet(name), "r.x", 1)
    old, client, asked = leader(net), net.jet(name).client(), 0
    client.send(b"SUB in.g 1\r\n")
    begin(net, 2, old)
    while net.jet(old).streams:
        client.send(b"PUB $JS.API.DIRECT.GET.R.r.x in.g 0\r\n\r\n")
        asked += 1
        net.run(BETWEEN_NS)
    net.run(1000 * NS_PER_MS)
    assert answers(client, b"in.g") == [b"hi"] * asked


def test_a_change_that_is_forwarded_to_the_next_leader_is_not_made_again(net: JetNet) -> None:
    prepared(net, 3)
    old = leader(net)
    new, sender = (net.jet(name) for name in TRIO if name != old)
    net.publish(sender, "r.x", 5)
    client, purge = sender.client(), "$JS.API.STREAM.PURGE.R"
    client.send(b"SUB in.p 1\r\nPUB %b in.p 0\r\n\r\n" % purge.encode())
    number = sender.node.turn_state.last_number  # of that request
    net.run(200 * NS_PER_MS)
    assert len(answers(client, b"in.p")) == 1
    net.publish(sender, "r.x", 3)
    net.ask(sender.client(), "STREAM.LEADER.STEPDOWN.R", {"placement": {"preferred": new.name}})
    net.run_until(lambda: leads(new))
    # as if the client's server did not know that the next leader got the request
    sender.member.tell(new.member.node, Forwarded("$G", purge, b"in.p", b"", b"", number))
    net.run(1000 * NS_PER_MS)
    assert answers(client, b"in.p") == []
    assert net.ask(sender.client(), "STREAM.INFO.R")["state"]["messages"] == 3

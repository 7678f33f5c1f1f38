"""Equal requests around a change of leader: a client sends the same request again, with the same reply subject."""

from __future__ import annotations

import json

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import TRIO, JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.testing import RawClient

GET = b"PUB $JS.API.STREAM.MSG.GET.R in.g 9\r\n" + b'{"seq":1}\r\n'
BODY = b'{"stream_name":"R","config":{"durable_name":"C","ack_policy":"explicit"}}'
CREATE = b"PUB $JS.API.CONSUMER.CREATE.R.C in.g %d\r\n%b\r\n" % (len(BODY), BODY)
COUNT = 40
BETWEEN_NS = NS_PER_MS // 5  # as the delay of the network


def leads(server: JetServer) -> bool:
    """Return whether a server leads the stream."""
    assert server.node.jetstream is not None
    replicated = server.node.jetstream.shared.replicated
    assert replicated is not None
    return any(machine.leads for machine in replicated.machines())


def leader(net: JetNet) -> str:
    return next(server.name for server in net.living() if leads(server))


def prepared(net: JetNet) -> str:
    """Create a stream with three replicas and one message; return the name of its leader."""
    servers = net.trio()
    net.answers(
        servers[0].client(), "STREAM.CREATE.R", {"name": "R", "subjects": ["r"], "num_replicas": 3}, 2000
    )
    net.publish(servers[0], "r", 1)
    return leader(net)


def step_down(net: JetNet, heir: str = "") -> None:
    body = json.dumps({"placement": {"preferred": heir}} if heir else {}).encode()
    net.jet("a").client().send(b"PUB $JS.API.STREAM.LEADER.STEPDOWN.R %d\r\n%b\r\n" % (len(body), body))


def got(client: RawClient) -> int:
    """Return the number of answers since the last call."""
    return sum(frame.subject == b"in.g" for frame in client.frames())


@pytest.mark.parametrize("request_", [GET, CREATE], ids=["get", "create"])
@pytest.mark.parametrize("name", TRIO)
def test_each_of_many_equal_requests_during_a_change_of_leader_is_answered_once(
    net: JetNet, name: str, request_: bytes
) -> None:
    old, client, sent = prepared(net), net.jet(name).client(), 0
    client.send(b"SUB in.g 1\r\n")
    net.run(50 * NS_PER_MS)
    step_down(net)
    while leads(net.jet(old)) or sent < COUNT:
        client.send(request_)
        sent += 1
        net.run(BETWEEN_NS)
    net.run(3000 * NS_PER_MS)
    assert got(client) == sent


def test_a_request_that_waited_for_a_leader_is_answered_although_an_equal_one_was_before(net: JetNet) -> None:
    old = prepared(net)
    heir, other = (net.jet(name) for name in TRIO if name != old)
    client = other.client()
    client.send(b"SUB in.g 1\r\n" + GET)
    net.run(50 * NS_PER_MS)
    assert got(client) == 1
    step_down(net, heir.name)
    net.run_until(lambda: not leads(net.jet(old)))
    client.send(GET)
    net.run(3000 * NS_PER_MS)
    assert got(client) == 1

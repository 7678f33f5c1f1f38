"""Requests to streams whose servers are all offline, or that a newer server has created."""

from __future__ import annotations

from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet
from tests.support.simnet import LONG_NS

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.cluster.assignments import StoredConfig
from pyjs.jetstream.cluster.entries import StreamCreated
from pyjs.jetstream.config.stream import StreamConfig
from pyjs.testing.node import RawClient

REASON = 'unsupported - config error: unknown field "later"'


def numbers(answers: list[dict[str, Any]]) -> list[int]:
    """Return the error numbers of answers; 0 stands for no error."""
    return [answer.get("error", {}).get("err_code", 0) for answer in answers]


def ask(net: JetNet, client: RawClient, subject: str, body: object = None) -> list[dict[str, Any]]:
    return net.answers(client, subject, body, wait_ms=1000)


def away(net: JetNet) -> RawClient:
    """Create a stream on server c and kill that server; return a client of another one."""
    net.tags = {"c": ("far",)}
    net.trio()
    client = net.jet("a").client()
    assert "error" not in net.create(client, "S", placement={"tags": ["far"]})
    net.crash("c")
    net.run(LONG_NS)
    net.leader()
    return client


def test_a_stream_whose_servers_are_away_is_offline(net: JetNet) -> None:
    client = away(net)
    assert numbers(ask(net, client, "STREAM.INFO.S")) == [10118]
    assert numbers(ask(net, client, "STREAM.MSG.GET.S", {"seq": 1})) == [10118]
    assert numbers(ask(net, client, "CONSUMER.INFO.S.C")) == [10119]
    assert numbers(ask(net, client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["x"]})) == [10118]
    (listed,) = ask(net, client, "STREAM.LIST")
    assert listed["missing"] == ["S"]
    assert listed["streams"][0]["config"]["name"] == "S"
    (row,) = listed["streams"][0]["cluster"]["replicas"]
    assert (row["name"], row["current"], row["offline"]) == ("c", False, True)


def test_a_stream_whose_servers_are_away_can_be_deleted(net: JetNet) -> None:
    client = away(net)
    assert [answer.get("success") for answer in ask(net, client, "STREAM.DELETE.S")] == [True]
    assert numbers(ask(net, client, "STREAM.INFO.S")) == [10059]
    net.begin("c")
    net.ready()
    assert net.jet("c").streams == []


def test_a_server_that_comes_back_in_time_gets_the_request(net: JetNet) -> None:
    client = away(net)
    client.send(b"SUB in.x 7000\r\nPUB $JS.API.STREAM.INFO.S in.x 0\r\n\r\n")
    net.run(100 * NS_PER_MS)
    net.begin("c")
    net.run(2000 * NS_PER_MS)
    (frame,) = client.frames()
    assert b'"name":"S"' in frame.payload


def newer(net: JetNet, *servers: str) -> RawClient:
    """Assign a stream with an unknown option to some servers; return a client."""
    net.trio()
    leader = net.leader().member
    nodes = {each.name: node for node, each in leader.machine.state.servers.items()}
    config = StreamConfig(name="N", subjects=("n",), num_replicas=len(servers))
    values = {"name": "N", "subjects": ["n"], "num_replicas": len(servers), "later": True}
    entry = StreamCreated("$G", StoredConfig(values, config), tuple(nodes[each] for each in servers))
    leader.turn.go_on(leader.propose(entry))
    net.run(200 * NS_PER_MS)
    return net.jet("a").client()


@pytest.mark.parametrize("servers", ["a", "b", "abc"])
def test_a_stream_of_a_newer_server_is_offline_with_its_reason(net: JetNet, servers: str) -> None:
    client = newer(net, *servers)
    (answer,) = ask(net, client, "STREAM.INFO.N")
    assert answer["error"]["err_code"] == 10194
    assert answer["error"]["description"] == f"stream is offline: {REASON}"
    (listed,) = ask(net, client, "STREAM.LIST")
    assert (listed["streams"], listed["missing"], listed["offline"]) == ([], ["N"], {"N": REASON})
    assert net.ask(client, "STREAM.NAMES")["streams"] == ["N"]


@pytest.mark.parametrize("servers", ["b", "abc"])
def test_a_stream_of_a_newer_server_can_be_deleted(net: JetNet, servers: str) -> None:
    client = newer(net, *servers)
    assert [answer.get("success") for answer in ask(net, client, "STREAM.DELETE.N")] == [True]
    assert numbers(ask(net, client, "STREAM.INFO.N")) == [10059]

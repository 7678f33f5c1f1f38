"""The server that leads the metadata group is removed."""

from __future__ import annotations

import json

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet, JetServer

from pyjs.jetstream.errcodes import ApiError


def remove(net: JetNet, server: JetServer) -> None:
    """Let the leader of the metadata remove a server."""
    leader = net.leader()
    request = json.dumps({"peer": server.name}).encode()
    leader.node.turn_state.go_on(leader.member.operators.remove_server(request))
    leader.wake()


def members(leader: JetServer) -> set[int]:
    """Return the members of the metadata group, as its leader knows them."""
    status = leader.member.meta_status()
    assert status is not None
    return {each.node for each in status.replicas}


def leader_without(net: JetNet, old: JetServer) -> JetServer:
    """Return the leader of the metadata when it is another server than `old`."""
    others = [server for server in net.living() if server is not old]
    net.run_until(lambda: any(server.member.machine.leads for server in others))
    return next(server for server in others if server.member.machine.leads)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_removed_leader_hands_over_and_the_next_one_removes_it(net: JetNet, replicas: int) -> None:
    net.hosts["d"] = "10.0.0.4"
    servers = net.trio()
    for number in range(6):
        net.create(servers[0].client(), f"S{number}", num_replicas=replicas)
    net.begin("d")
    net.ready()
    old = net.leader()
    assert old.streams

    remove(net, old)

    new = leader_without(net, old)
    net.run_until(lambda: old.member.node not in members(new))
    net.run_until(lambda: not old.streams)
    assert [len(net.publish(new, f"s{number}", 1)) for number in range(6)] == [1] * 6


def test_of_two_servers_the_leader_is_removed(net: JetNet) -> None:
    servers = net.trio()
    first = next(server for server in servers if server is not net.leader())
    remove(net, first)
    net.run_until(lambda: first.member.node not in members(net.leader()))
    net.kill(first.name).node.stop()
    old = net.leader()

    remove(net, old)

    new = leader_without(net, old)
    net.run_until(lambda: members(new) == {new.member.node})
    net.kill(old.name).node.stop()
    assert net.create(new.client(), "S")["did_create"]
    with pytest.raises(ApiError, match="the last server of a cluster cannot be removed"):
        next(new.member.operators.remove_server(json.dumps({"peer": new.name}).encode()))

"""A leader closes a sleeping group after a fault: the metadata group, or the group of a stream."""

from __future__ import annotations

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet, JetServer

from pyjs.base.clock import NS_PER_MS, NS_PER_S
from pyjs.consensus.engine import RaftError, peer_id


def leads(server: JetServer, group: int) -> bool:
    """Return whether a server leads a group, as it knows it itself."""
    try:
        return server.member.consensus.status(group).leader == server.member.node
    except (RaftError, KeyError):  # the group is closed there
        return False


def voters(server: JetServer, group: int) -> list[int]:
    """Return the voters of a group."""
    return [each.peer for each in server.member.consensus.status(group).replicas if each.is_voter]


@pytest.mark.parametrize("is_meta", [True, False])
def test_another_leader_is_elected_at_once_and_the_replica_returns(net: JetNet, *, is_meta: bool) -> None:
    net.trio()
    net.create(net.leader().client(), "R", num_replicas=3)
    net.run(3 * NS_PER_S)
    stream = net.leader().member.machine.state.stream("$G", "R")
    assert stream is not None
    group = net.leader().member.meta_group if is_meta else stream.group
    assert all(server.member.consensus._engine.status(group).asleep for server in net.living())
    bad = next(server for server in net.living() if leads(server, group))

    consensus = bad.member.consensus
    bad.node.turn_state.now = net.clock.now_ns()  # as in a turn
    consensus.lose_damaged(consensus._members[group], ValueError("a test"))
    bad.wake()
    net.run(200 * NS_PER_MS)

    (leader,) = (server for server in net.living() if server is not bad and leads(server, group))
    net.run_until(lambda: peer_id(bad.member.node, 2) in voters(leader, group))
    assert len(net.publish(bad, "r", 1)) == 1

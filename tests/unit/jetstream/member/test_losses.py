"""Replicas whose state the node log has lost."""

from __future__ import annotations

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet

from pyjs.base.clock import NS_PER_MS
from pyjs.consensus.engine import Conf, peer_id


def incarnations(net: JetNet, name: str) -> list[int]:
    """Return the incarnations of the replicas of a stream, sorted."""
    stream = net.leader().member.machine.state.stream("$G", name)
    assert stream is not None
    return sorted(replica.incarnation for replica in stream.replicas)


@pytest.mark.parametrize(("leads", "newest"), [(True, 0), (False, 0), (False, 2), (False, 3)])
def test_a_replica_that_the_log_has_lost_comes_back_as_another_peer(
    net: JetNet, leads: bool, newest: int
) -> None:
    """The log has lost the replica's group, or has it as incarnation `newest`, which the metadata does not have."""
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    net.publish(servers[0], "r.x")
    lost = next(server for server in servers if server.member.machine.leads is leads)
    log = lost.member._log
    assert log is not None
    net.kill(lost.name)
    name = log.groups[1].name
    log.remove(1)
    if newest:
        log.create(1, name, peer_id(lost.member.node, newest), Conf(), 0, 0)
    log._end.is_in_doubt = True
    log.flush()
    lost.node.stop()
    again = net.begin(lost.name)
    net.run_until(lambda: incarnations(net, "R") == [1, 1, max(newest, 2)])
    net.run_until(lambda: "R" in again.streams)
    assert net.publish(again, "r.x", 1) == [6]
    log = again.member._log
    assert log is not None
    net.run_until(lambda: not log.lost_unknown)


def test_a_replica_whose_log_is_found_damaged_when_it_is_mended_comes_back_as_another_peer(
    net: JetNet,
) -> None:
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    net.publish(servers[0], "r.x")
    leader = net.ask(servers[0].client(), "STREAM.INFO.R")["cluster"]["leader"]
    broken = next(server for server in servers if server.name != leader)
    log, replicated, jetstream = broken.member._log, broken.member.replicated, broken.node.jetstream
    assert log is not None
    assert replicated is not None
    assert jetstream is not None
    log.groups[1].damage = "a test has damaged it"
    replicated.fail(jetstream.accounts["$G"].streams["R"])
    net.run_until(lambda: incarnations(net, "R") == [1, 1, 2])
    net.run_until(lambda: "R" in broken.streams)
    net.run(3000 * NS_PER_MS)
    assert net.publish(broken, "r.x", 1) == [6]
    store = jetstream.accounts["$G"].streams["R"].store
    net.run_until(lambda: store.last_seq == 6)

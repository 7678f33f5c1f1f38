"""Replicated streams that do nothing: they have no leader, or their replicas are offline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet, JetServer
from tests.support.simnet import LONG_NS

from pyjs.jetstream.manage.engine import JetStream
from pyjs.jetstream.why.streams import why_away, why_stream


@pytest.fixture
def net(tmp_path: Path) -> Iterator[JetNet]:
    made = JetNet(tmp_path)
    made.trio()
    made.create(made.jet("a").client(), "S", num_replicas=3)
    made.run_until(lambda: all(each.streams == ["S"] for each in made.living()))
    yield made
    for name in list(made.servers):
        made.kill(name)


def account(server: JetServer) -> JetStream:
    assert server.node.jetstream is not None
    return server.node.jetstream.accounts["$G"]


def kinds(server: JetServer) -> list[str]:
    js = account(server)
    return [reason.kind.value for reason in why_stream(js, js.streams["S"])]


def leader(net: JetNet) -> JetServer:
    """Return the server that is the leader of stream S."""

    def leads(server: JetServer) -> bool:
        replicated = account(server).shared.replicated
        assert replicated is not None
        return replicated.leads(account(server).streams["S"])

    net.run_until(lambda: any(map(leads, net.living())))
    return next(filter(leads, net.living()))


def test_the_leader_answers_for_every_server(net: JetNet) -> None:
    for server in net.living():
        report = net.ask(server.client(), "PYJS.WHY.S")
        assert report["accepts"] is True, report


def test_a_replica_that_is_away_is_named(net: JetNet) -> None:
    first = leader(net)
    lost = next(server for server in net.living() if server is not first)
    net.kill(lost.name)
    net.run(LONG_NS)

    (reason,) = why_stream(account(leader(net)), account(leader(net)).streams["S"])
    assert (reason.kind.value, reason.stops) == ("replica_lagging", False)
    assert f"{lost.name} (offline)" in reason.text


def test_without_a_majority_no_replica_leads(net: JetNet) -> None:
    for name in ("b", "c"):
        net.kill(name)
    net.run(10 * LONG_NS)

    assert kinds(net.jet("a")) == ["no_leader"]


def test_a_stream_on_another_server_is_named_with_its_server(net: JetNet) -> None:
    net.create(net.jet("a").client(), "ONE")
    (holder,) = (server for server in net.living() if "ONE" in server.streams)
    other = next(server for server in net.living() if server is not holder)

    (reason,) = why_away(account(other), "ONE")
    assert reason.text == f"It is not on this server, but on {holder.name}."


def test_a_stream_on_a_server_that_is_being_removed_is_named_with_it(net: JetNet) -> None:
    net.create(net.jet("a").client(), "ONE")
    (holder,) = (server for server in net.living() if "ONE" in server.streams)
    leader = net.leader()
    leader.node.turn_state.go_on(
        leader.member.operators.remove_server(json.dumps({"peer": holder.name}).encode())
    )
    leader.wake()
    other = next(server for server in net.living() if server is not holder)

    net.run_until(lambda: holder.member.node in other.member.machine.state.removed)

    (reason,) = why_away(account(other), "ONE")
    assert reason.text == f"It is not on this server, but on {holder.name}."

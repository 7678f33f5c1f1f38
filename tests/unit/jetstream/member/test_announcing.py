"""The advisories of a cluster: elected leaders, lost quorums, removed servers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.models import parse_advisory
from pyjs.testing.node import RawClient

R: dict[str, object] = {"name": "R", "subjects": ["r"], "num_replicas": 3}
PREFIX = "$JS.EVENT.ADVISORY."


def consumer(name: str, **options: object) -> dict[str, object]:
    return {"stream_name": "R", "config": {"durable_name": name, "name": name, **options}}


def watcher(net: JetNet, server: JetServer) -> RawClient:
    """Return a client that receives all advisories of its account."""
    client = server.client()
    client.send(b"SUB $JS.EVENT.ADVISORY.> 1\r\n")
    net.run(100 * NS_PER_MS)
    return client


def heard(client: RawClient, *words: str) -> dict[str, Any]:
    """Return the advisories about leaders and lost quorums that the client has received, by subject."""
    found = {
        frame.subject.decode().removeprefix(PREFIX): json.loads(frame.payload) for frame in client.frames()
    }
    found = {subject: event for subject, event in found.items() if any(word in subject for word in words)}
    for event in found.values():
        parse_advisory(json.dumps(event))  # the model accepts it
    return found


def test_new_leaders_of_a_stream_and_of_its_consumers_are_announced(net: JetNet) -> None:
    servers = net.trio()
    client, watching = servers[0].client(), watcher(net, servers[1])
    net.answers(client, "STREAM.CREATE.R", R, wait_ms=2000)
    first = net.ask(client, "STREAM.INFO.R")["cluster"]["leader"]
    assert heard(watching, "LEADER")["STREAM.LEADER_ELECTED.R"]["leader"] == first

    net.ask(client, "CONSUMER.CREATE.R.C", consumer("C"))
    net.ask(client, "CONSUMER.CREATE.R.ONE", consumer("ONE", num_replicas=1))
    net.run(100 * NS_PER_MS)
    (told,) = heard(watching, "LEADER").items()
    assert told[0] == "CONSUMER.LEADER_ELECTED.R.C"
    assert (told[1]["stream"], told[1]["consumer"], told[1]["leader"]) == ("R", "C", first)
    assert [row["name"] for row in told[1]["replicas"]] == ["a", "b", "c"]

    net.ask(client, "STREAM.LEADER.STEPDOWN.R")
    net.run(500 * NS_PER_MS)
    found = heard(watching, "LEADER")
    assert sorted(found) == ["CONSUMER.LEADER_ELECTED.R.C", "STREAM.LEADER_ELECTED.R"]
    assert {event["leader"] for event in found.values()} == {
        net.ask(client, "STREAM.INFO.R")["cluster"]["leader"]
    }


def test_a_leader_that_loses_its_majority_says_so(net: JetNet) -> None:
    servers = net.trio()
    client = servers[0].client()
    net.answers(client, "STREAM.CREATE.R", R, wait_ms=2000)
    net.ask(client, "CONSUMER.CREATE.R.C", consumer("C"))
    leader = net.jet(net.ask(client, "STREAM.INFO.R")["cluster"]["leader"])
    watching = watcher(net, leader)
    for server in servers:
        if server is not leader:
            net.crash(server.name)
    net.run(2000 * NS_PER_MS)
    found = heard(watching, "QUORUM_LOST")
    assert sorted(found) == ["CONSUMER.QUORUM_LOST.R.C", "STREAM.QUORUM_LOST.R"]
    event = found["STREAM.QUORUM_LOST.R"]
    assert event["type"] == "io.nats.jetstream.advisory.v1.stream_quorum_lost"
    assert [(row["name"], row.get("offline", False)) for row in event["replicas"]] == [
        (server.name, server is not leader) for server in servers
    ]


def test_a_leader_that_hands_over_has_lost_no_majority(net: JetNet) -> None:
    servers = net.trio()
    client = servers[0].client()
    net.answers(client, "STREAM.CREATE.R", R, wait_ms=2000)
    watching = watcher(net, servers[2])
    for _ in range(3):
        net.ask(client, "STREAM.LEADER.STEPDOWN.R")
        net.run(500 * NS_PER_MS)
    assert heard(watching, "QUORUM_LOST") == {}


def test_the_system_account_hears_of_a_removed_server_and_of_streams_of_all_accounts(net: JetNet) -> None:
    servers = net.trio()
    net.run(100 * NS_PER_MS)
    lost = next(server for server in servers if server is not net.leader())
    leader = net.leader()
    events: dict[str, dict[str, Any]] = {}
    system = leader.node.system_account
    assert system is not None

    def keep(request: Any) -> None:
        events[request.subject.decode().removeprefix(PREFIX)] = json.loads(request.payload)

    system.subscribe_handler(b"$JS.EVENT.ADVISORY.>", keep, None, False)
    net.answers(leader.client(), "STREAM.CREATE.R", R, wait_ms=2000)
    assert events["STREAM.LEADER_ELECTED.R"]["account"] == "$G"
    net.crash(lost.name)
    net.run(500 * NS_PER_MS)
    steps = leader.member.operators.remove_server(json.dumps({"peer": lost.name}).encode())
    leader.node.turn_state.go_on(steps)
    leader.wake()
    net.run(1000 * NS_PER_MS)
    removed = events["SERVER.REMOVED"]
    assert (removed["server"], removed["cluster"]) == (lost.name, "SIM")

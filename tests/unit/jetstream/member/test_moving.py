"""Streams with one replica are moved to another server, with their messages and consumers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import TRIO, JetNet, JetServer
from tests.support.simnet import LONG_NS
from tests.unit.jetstream.member.test_scaling import acknowledged, floor, groups, holders, messages

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.member.operators import Operators


def body(place: str, **more: Any) -> dict[str, Any]:
    """Return the configuration that places the stream on one server."""
    return {"name": "R", "subjects": ["r.>"], "placement": {"tags": [place]}, **more}


def made(net: JetNet, place: str = "a", **more: Any) -> list[JetServer]:
    """Create the stream on one server, with ten messages, two of them acknowledged; return the servers."""
    net.tags = {name: (name, "odd" if name == "b" else "even") for name in TRIO}
    servers = net.trio()
    assert "error" not in net.ask(servers[0].client(), "STREAM.CREATE.R", body(place, **more))
    assert net.publish(servers[1], "r.x", 10) == list(range(1, 11))
    acknowledged(net, 2)
    return servers


def moved(net: JetNet, *names: str) -> None:
    """Wait until the stream is only on the named servers, and no longer in a group."""
    net.run_until(lambda: [server.name for server in holders(net)] == [*names])
    net.run_until(lambda: not any(groups(server) for server in net.living()))


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_stream_moves_to_the_servers_of_its_new_placement(net: JetNet, storage: str) -> None:
    servers = made(net, storage=storage)
    answer = net.ask(servers[2].client(), "STREAM.UPDATE.R", body("c", storage=storage))
    assert answer["config"]["placement"]["tags"] == ["c"]
    assert answer["config"]["num_replicas"] == 1
    assert net.publish(servers[1], "r.x", 3) == [11, 12, 13]
    moved(net, "c")
    assert messages(net) == list(range(1, 14))
    assert floor(net) == 2
    assert net.publish(servers[0], "r.x", 1) == [14]
    assert [server.errors() for server in net.living()] == [[], [], []]


def test_a_stream_that_moves_moves_nowhere_else(net: JetNet) -> None:
    servers = made(net)
    client = servers[2].client()
    assert "error" not in net.ask(client, "STREAM.UPDATE.R", body("b"))
    assert net.ask(client, "STREAM.UPDATE.R", body("c"))["error"]["err_code"] == 10124
    assert net.ask(client, "STREAM.UPDATE.R", body("b", num_replicas=3))["error"]["err_code"] == 10124
    assert net.ask(client, "STREAM.PEER.REMOVE.R", {"peer": "a"})["error"]["err_code"] == 10124
    assert net.ask(client, "STREAM.UPDATE.R", body("b", max_msgs=50))["config"]["num_replicas"] == 1
    moved(net, "b")
    info = net.ask(client, "STREAM.INFO.R")
    assert (info["config"]["max_msgs"], info["state"]["messages"]) == (50, 10)


def test_a_move_goes_on_after_the_leader_of_the_metadata_is_lost(net: JetNet) -> None:
    made(net)
    lost = net.leader().name
    target = next(name for name in ("b", "c") if name != lost)
    client = net.jet(target).client()
    assert "error" not in net.ask(client, "STREAM.UPDATE.R", body(target))
    net.crash(lost)
    net.run(LONG_NS)
    net.begin(lost)
    net.ready()
    moved(net, target)
    assert messages(net) == list(range(1, 11))


def test_a_move_goes_on_after_all_servers_started_again(net: JetNet) -> None:
    made(net)
    assert "error" not in net.ask(net.jet("a").client(), "STREAM.UPDATE.R", body("b"))
    for name in TRIO:
        net.crash(name)
    for name in TRIO:
        net.begin(name)
    net.ready()
    moved(net, "b")
    assert messages(net) == list(range(1, 11))
    assert floor(net) == 2


def test_a_stream_leaves_a_server_that_is_evacuated(net: JetNet) -> None:
    made(net, "even")
    (old,) = holders(net)
    new = next(name for name in ("a", "c") if name != old.name)
    leader = net.leader().member
    told: list[object] = []

    def evacuate() -> Any:
        told.append((yield from leader.operators.evacuate_server(b'{"peer": "%b"}' % old.name.encode())))

    leader.turn.go_on(evacuate())
    net.run(100 * NS_PER_MS)
    assert told == [{"success": True}]
    moved(net, new)
    assert messages(net) == list(range(1, 11))


def test_a_stream_on_a_server_that_is_away_waits_for_it_before_it_moves(net: JetNet) -> None:
    made(net, "even")
    (old,) = holders(net)
    new = next(name for name in ("a", "c") if name != old.name)
    net.crash(old.name)
    net.run(LONG_NS)
    leader = net.leader().member
    leader.turn.go_on(leader.operators.evacuate_server(b'{"peer": "%b"}' % old.name.encode()))
    net.run(LONG_NS)
    assert holders(net) == []
    net.begin(old.name)
    net.ready()
    moved(net, new)
    assert messages(net) == list(range(1, 11))


def operated(net: JetNet, steps: Callable[[Operators], Any]) -> Any:
    """Return the result of an operator's request to the leader of the metadata."""
    leader, told = net.leader().member, []

    def ask() -> Any:
        try:
            told.append((yield from steps(leader.operators)))
        except ApiError as error:
            told.append(error)

    leader.turn.go_on(ask())
    net.run_until(lambda: bool(told))
    return told[0]


@pytest.mark.parametrize("wait_ms", [0, 500, 2000])
def test_a_move_is_cancelled_while_both_servers_are_there(net: JetNet, wait_ms: int) -> None:
    servers = made(net)
    client = servers[2].client()
    assert net.ask(client, "STREAM.CANCEL_MOVE.R")["error"]["err_code"] == 10129
    assert net.ask(client, "STREAM.CANCEL_MOVE.S")["error"]["err_code"] == 10059
    assert "error" not in net.ask(client, "STREAM.UPDATE.R", body("b"))
    net.run(wait_ms * NS_PER_MS)
    answer = net.ask(client, "STREAM.CANCEL_MOVE.R")
    assert answer["config"]["placement"]["tags"] == ["a"]
    assert answer["config"]["num_replicas"] == 1
    moved(net, "a")
    assert messages(net) == list(range(1, 11))
    assert floor(net) == 2
    assert "error" not in net.ask(client, "STREAM.UPDATE.R", body("c"))
    moved(net, "c")
    assert messages(net) == list(range(1, 11))


def stuck(net: JetNet, place: str, wait_ms: int) -> None:
    """Begin to move the stream to server b, and kill the server from which it moves."""
    made(net, place)
    (old,) = holders(net)
    assert "error" not in net.ask(net.jet("b").client(), "STREAM.UPDATE.R", body("odd"))
    net.run(wait_ms * NS_PER_MS)
    net.crash(old.name)
    net.run(1000 * NS_PER_MS)


@pytest.mark.parametrize("wait_ms", [0, 300, 2200])
@pytest.mark.parametrize("is_started_again", [True, False])
def test_a_move_is_cancelled_after_its_first_server_was_lost(
    net: JetNet, wait_ms: int, is_started_again: bool
) -> None:
    stuck(net, "a", wait_ms)
    client = net.jet("b").client()
    (refused,) = net.answers(client, "STREAM.UPDATE.R", body("c"), wait_ms=2000)
    assert refused["error"]["err_code"] == 10124
    assert refused["error"]["description"].endswith("is away: start it, or cancel the move")
    (answer,) = net.answers(client, "STREAM.CANCEL_MOVE.R", wait_ms=2000)
    assert answer["config"]["placement"]["tags"] == ["a"]
    for name in TRIO if is_started_again else "a":
        if name in net.servers:
            net.crash(name)
    for name in TRIO if is_started_again else "a":
        net.begin(name)
    net.ready()
    moved(net, "a")
    assert messages(net) == list(range(1, 11))
    assert floor(net) == 2


@pytest.mark.parametrize("wait_ms", [0, 300, 2200])
def test_after_a_cancelled_move_a_lost_server_can_be_removed(net: JetNet, wait_ms: int) -> None:
    stuck(net, "even", wait_ms)
    lost = next(name for name in TRIO if name not in net.servers)
    request = json.dumps({"peer": lost}).encode()
    refused = operated(net, lambda operators: operators.remove_server(request))
    assert refused.err_code == 10124
    assert refused.description.endswith("is away: start it, or cancel the move")
    answer = operated(net, lambda operators: operators.cancel_move("$G", "R"))
    assert answer["config"]["placement"]["tags"] == ["even"]
    assert operated(net, lambda operators: operators.remove_server(request)) == {"success": True}
    moved(net, next(name for name in ("a", "c") if name != lost))
    assert net.ask(net.jet("b").client(), "STREAM.INFO.R")["state"]["messages"] == 0
    assert net.publish(net.jet("b"), "r.x", 1) == [1]


@pytest.mark.parametrize("publisher", TRIO)
def test_publishers_notice_nothing_of_a_move(net: JetNet, publisher: str) -> None:
    made(net)
    client = net.jet(publisher).client()
    client.send(b"SUB in.p 7000\r\n")
    net.run(50 * NS_PER_MS)
    assert "error" not in net.ask(net.jet("c").client(), "STREAM.UPDATE.R", body("b"))
    sent = 0
    while holders(net) != [net.jet("b")] or any(groups(server) for server in net.living()):
        client.send(b"PUB r.p in.p 2\r\nhi\r\n")
        sent += 1
        net.run(2 * NS_PER_MS)
    net.run(3000 * NS_PER_MS)
    answers = [frame.payload for frame in client.frames() if frame.subject == b"in.p"]
    assert [json.loads(answer)["seq"] for answer in answers] == list(range(11, 11 + sent))


def members(leader: JetServer) -> set[int]:
    """Return the members of the metadata group, as its leader sees them."""
    status = leader.member.meta_status()
    assert status is not None
    return {each.node for each in status.replicas}


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_removed_server_that_runs_gives_up_its_streams(net: JetNet, replicas: int) -> None:
    net.hosts["d"] = "10.0.0.4"
    servers = net.trio()
    for number in range(6):
        net.create(servers[0].client(), f"S{number}", num_replicas=replicas)
    net.begin("d")
    net.ready()
    leader = net.leader()
    old = next(server for server in servers if server is not leader)
    assert old.streams
    request = json.dumps({"peer": old.name}).encode()
    leader.node.turn_state.go_on(leader.member.operators.remove_server(request))
    leader.wake()
    net.run_until(lambda: not old.streams)

    net.run_until(lambda: old.member.node not in members(leader))
    assert [len(net.publish(leader, f"s{number}", 1)) for number in range(6)] == [1] * 6
    assert old.streams == []


def test_a_removed_server_that_learns_nothing_leaves_the_metadata_after_a_while(
    net: JetNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = net.trio()
    leader = net.leader()
    deaf = next(server for server in servers if server is not leader)
    monkeypatch.setattr(deaf.member.consensus, "receive", lambda node, data: None)
    request = json.dumps({"peer": deaf.name}).encode()
    leader.node.turn_state.go_on(leader.member.operators.remove_server(request))
    leader.wake()
    net.run(5000 * NS_PER_MS)
    assert deaf.member.node in members(leader)
    net.run_until(lambda: deaf.member.node not in members(leader))

"""Streams of one replica that move to another server, with everything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import TRIO, JetNet, JetServer
from tests.support.simnet import LONG_NS
from tests.unit.jetstream.member.test_scaling import acknowledged, floor, groups, holders, messages

from pyjs.base.clock import NS_PER_MS


def body(place: str, **more: Any) -> dict[str, Any]:
    """Return the configuration of the stream on one server."""
    return {"name": "R", "subjects": ["r.>"], "placement": {"tags": [place]}, **more}


def made(net: JetNet, place: str = "a", **more: Any) -> list[JetServer]:
    """Create the stream on one server, with ten messages of which two are acknowledged; return the servers."""
    net.tags = {name: (name, "odd" if name == "b" else "even") for name in TRIO}
    servers = net.trio()
    assert "error" not in net.ask(servers[0].client(), "STREAM.CREATE.R", body(place, **more))
    assert net.publish(servers[1], "r.x", 10) == list(range(1, 11))
    acknowledged(net, 2)
    return servers


def moved(net: JetNet, *names: str) -> None:
    """Wait until the stream is on certain servers only, and in no group."""
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

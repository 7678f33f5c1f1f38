"""Streams that are reduced to one replica and increased again, on three servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import TRIO, JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.base.errors import StoreFailed
from pyjs.jetstream.member import meta_requests
from pyjs.jetstream.replication import streams

BODY: dict[str, Any] = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}


def scaled(net: JetNet, replicas: int, **more: Any) -> dict[str, Any]:
    """Change the number of replicas; return the answer."""
    client = net.living()[-1].client()
    (answer,) = net.answers(
        client, "STREAM.UPDATE.R", {**BODY, "num_replicas": replicas, **more}, wait_ms=4000
    )
    assert answer.get("config", {}).get("num_replicas") == replicas, answer
    return answer


def made(net: JetNet, **more: Any) -> list[JetServer]:
    """Create the stream with three replicas; return the servers."""
    servers = net.trio()
    (answer,) = net.answers(servers[0].client(), "STREAM.CREATE.R", {**BODY, **more}, wait_ms=2000)
    assert "config" in answer, answer
    return servers


def holders(net: JetNet) -> list[JetServer]:
    return [server for server in net.living() if server.streams == ["R"]]


def groups(server: JetServer) -> list[int]:
    """Return the numbers of the streams' groups that a server's log contains."""
    log = server.member._log
    assert log is not None
    return sorted(group for group in log.groups if group != server.member.meta_group)


def messages(net: JetNet) -> list[int]:
    """Return the sequences that the stream has."""
    state = net.ask(net.living()[0].client(), "STREAM.INFO.R", {"deleted_details": True})["state"]
    gone = set(state.get("deleted") or ())
    return [seq for seq in range(state["first_seq"], state["last_seq"] + 1) if seq not in gone]


def acknowledged(net: JetNet, count: int) -> None:
    """Create a consumer if there is none, and acknowledge `count` messages."""
    server = net.living()[0]
    client = server.client()
    config = {"durable_name": "C", "ack_policy": "explicit"}
    net.ask(client, "CONSUMER.CREATE.R.C", {"stream_name": "R", "config": config})
    client.send(b"SUB in.m 7000\r\nPUB $JS.API.CONSUMER.MSG.NEXT.R.C in.m 1\r\n%d\r\n" % count)
    net.run(100 * NS_PER_MS)
    frames = client.frames()
    replies = [frame.reply for frame in frames if frame.reply.startswith(b"$JS.ACK.")]
    assert len(replies) == count, frames
    for reply in replies:
        client.send(b"PUB %b 4\r\n+ACK\r\n" % reply)
    net.run(200 * NS_PER_MS)


def floor(net: JetNet) -> int:
    """Return the sequence of the last message that the consumer has acknowledged."""
    answer = net.ask(net.living()[1].client(), "CONSUMER.INFO.R.C")
    seq: int = answer["ack_floor"]["stream_seq"]
    return seq


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_stream_is_reduced_to_one_replica_and_gets_others_again(net: JetNet, storage: str) -> None:
    servers = made(net, storage=storage)
    BODY["storage"] = storage
    net.publish(servers[0], "r.x")
    acknowledged(net, 2)

    scaled(net, 1)
    net.run(1000 * NS_PER_MS)

    (kept,) = holders(net)
    assert [groups(server) for server in servers] == [[], [], []]
    assert net.ask(servers[0].client(), "STREAM.INFO.R")["config"]["num_replicas"] == 1
    assert floor(net) == 2
    for server in servers:
        assert len(net.publish(server, "r.x", 1)) == 1
    assert messages(net) == list(range(1, 9))
    acknowledged(net, 2)
    assert floor(net) == 4

    scaled(net, 3)
    net.run(2000 * NS_PER_MS)
    assert len(holders(net)) == 3
    assert net.publish(servers[1], "r.x", 1) == [9]
    net.crash(kept.name)
    net.run(2000 * NS_PER_MS)
    assert messages(net) == list(range(1, 10))
    assert floor(net) == 4
    assert all(server.errors() == [] for server in net.living())


@pytest.fixture(autouse=True)
def _body() -> Any:
    before = dict(BODY)
    yield
    BODY.clear()
    BODY.update(before)


@pytest.mark.parametrize("times", [1, 2])
def test_everything_is_there_after_new_starts(net: JetNet, times: int) -> None:
    """Marks of applied entries belong to a group: those of an earlier group must not cut later messages."""
    servers = made(net)
    net.publish(servers[0], "r.x")
    for _ in range(times):
        scaled(net, 1)
        net.run(1000 * NS_PER_MS)
        net.publish(servers[0], "r.x", 3)
        if times == 2:
            scaled(net, 3)
            net.run(2000 * NS_PER_MS)
            net.publish(servers[0], "r.x", 1)
    before = messages(net)
    for name in TRIO:
        net.crash(name)
    for name in TRIO:
        net.begin(name)
    net.ready()
    net.run(2000 * NS_PER_MS)
    assert messages(net) == before
    assert net.publish(net.living()[0], "r.x", 1) == [len(before) + 1]
    assert len(holders(net)) == (1 if times == 1 else 3)


def test_ids_count_as_before(net: JetNet) -> None:
    servers = made(net, max_msgs=2)

    def publish(message_id: bytes) -> dict[str, Any]:
        client = servers[0].client()
        headers = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id
        client.send(b"SUB in.p 1\r\nHPUB r.x in.p %d %d\r\n%b\r\n" % (len(headers), len(headers), headers))
        net.run(100 * NS_PER_MS)
        answer: dict[str, Any] = json.loads(client.frames()[-1].payload)
        return answer

    for number in range(4):  # the first two messages are removed
        publish(b"%d" % number)
    scaled(net, 1, max_msgs=2)
    net.run(2000 * NS_PER_MS)
    assert publish(b"0") == {"stream": "R", "seq": 1, "duplicate": True}
    assert publish(b"3") == {"stream": "R", "seq": 4, "duplicate": True}
    scaled(net, 3, max_msgs=2)
    net.run(2000 * NS_PER_MS)
    assert publish(b"3") == {"stream": "R", "seq": 4, "duplicate": True}


def test_a_server_that_was_away_meanwhile_forgets_its_replica(net: JetNet) -> None:
    servers = made(net)
    net.publish(servers[0], "r.x")
    leader = net.ask(servers[0].client(), "STREAM.INFO.R")["cluster"]["leader"]
    away = next(name for name in TRIO if name != leader and name != net.leader().name)
    net.crash(away)
    net.run(1000 * NS_PER_MS)
    scaled(net, 1)
    net.run(1000 * NS_PER_MS)
    net.publish(net.living()[0], "r.x")
    net.begin(away)
    net.ready()
    net.run(3000 * NS_PER_MS)
    assert [server.name for server in holders(net)] == [leader]
    assert groups(net.jet(away)) == []

    net.crash(away)
    net.run(1000 * NS_PER_MS)
    scaled(net, 2)
    net.run(2000 * NS_PER_MS)
    net.begin(away)
    net.ready()
    scaled(net, 3)
    net.run(4000 * NS_PER_MS)
    assert len(holders(net)) == 3
    net.crash(leader)
    net.run(2000 * NS_PER_MS)
    assert messages(net) == list(range(1, 11))


def test_a_change_back_to_three_replicas_at_once_is_followed(net: JetNet) -> None:
    servers = made(net)
    net.publish(servers[0], "r.x")
    client = servers[0].client()
    for replicas in (1, 3, 1, 3):
        body = json.dumps({**BODY, "num_replicas": replicas}).encode()
        client.send(b"PUB $JS.API.STREAM.UPDATE.R %d\r\n%b\r\n" % (len(body), body))
        net.run(NS_PER_MS)
    net.run(5000 * NS_PER_MS)
    assert len(holders(net)) == 3
    assert net.publish(servers[2], "r.x", 1) == [6]
    net.crash(net.ask(client, "STREAM.INFO.R")["cluster"]["leader"])
    net.run(2000 * NS_PER_MS)
    assert messages(net) == list(range(1, 7))


def test_a_stream_that_is_deleted_while_it_is_reduced_is_gone(net: JetNet) -> None:
    servers = made(net)
    net.publish(servers[0], "r.x")
    client = servers[0].client()
    body = json.dumps({**BODY, "num_replicas": 1}).encode()
    client.send(b"PUB $JS.API.STREAM.UPDATE.R %d\r\n%b\r\n" % (len(body), body))
    net.run(2 * NS_PER_MS)
    assert net.ask(client, "STREAM.DELETE.R")["success"]
    net.run(2000 * NS_PER_MS)
    assert holders(net) == []
    assert [groups(server) for server in servers] == [[], [], []]
    assert not list(net.directory.glob("**/streams/R"))


@pytest.mark.parametrize("after_ms", [5, 20, 100])
def test_a_kill_at_any_moment_loses_nothing(net: JetNet, after_ms: int) -> None:
    servers = made(net)
    net.publish(servers[0], "r.x")
    acknowledged(net, 2)
    client = servers[0].client()
    body = json.dumps({**BODY, "num_replicas": 1}).encode()
    client.send(b"PUB $JS.API.STREAM.UPDATE.R %d\r\n%b\r\n" % (len(body), body))
    net.run(after_ms * NS_PER_MS)
    for name in TRIO:
        net.crash(name)
    for name in TRIO:
        net.begin(name)
    net.ready()
    net.run(4000 * NS_PER_MS)
    scaled(net, 1)
    net.run(1000 * NS_PER_MS)
    assert len(holders(net)) == 1
    assert messages(net) == [1, 2, 3, 4, 5]
    assert floor(net) == 2


def led_by(net: JetNet, name: str) -> None:
    """Make a server the leader of the stream."""
    client = net.living()[0].client()
    net.ask(client, "STREAM.LEADER.STEPDOWN.R", {"placement": {"preferred": name}})
    net.run(1000 * NS_PER_MS)
    assert net.ask(client, "STREAM.INFO.R")["cluster"]["leader"] == name


def on_later(net: JetNet) -> str:
    """Make a replica that was added later the leader; return the name of its server."""
    servers = made(net)
    net.publish(servers[0], "r.x")
    acknowledged(net, 2)
    scaled(net, 2)
    net.run(1000 * NS_PER_MS)
    (later,) = [server.name for server in servers if server.streams != ["R"]]
    scaled(net, 3)
    net.run(2000 * NS_PER_MS)
    led_by(net, later)
    return later


def reduce(net: JetNet, replicas: int = 1) -> None:
    """Request another number of replicas, without waiting."""
    body = json.dumps({**BODY, "num_replicas": replicas}).encode()
    net.living()[0].client().send(b"PUB $JS.API.STREAM.UPDATE.R %d\r\n%b\r\n" % (len(body), body))


def unable(*_: object) -> Iterator[None]:
    """Stand in for a server that cannot write its files."""
    raise StoreFailed("R", "no files")
    yield


def group_of(server: JetServer) -> int:
    """Return the number of the stream's group in a server's metadata."""
    found = server.member.machine.state.stream("$G", "R")
    assert found is not None
    return found.group


@pytest.mark.parametrize("back", [1, 3])
def test_a_replica_that_came_later_goes_on_alone_after_a_new_start(
    net: JetNet, monkeypatch: pytest.MonkeyPatch, back: int
) -> None:
    later = on_later(net)
    before = group_of(net.jet(later))
    with monkeypatch.context() as slow:
        slow.setattr(streams, "finish_steps", unable)
        reduce(net)
        net.run_until(lambda: any(group_of(server) != before for server in net.living()))
        if back == 3:
            reduce(net, 3)
        net.run(100 * NS_PER_MS)
        for name in TRIO:
            net.crash(name)
    for name in TRIO:
        net.begin(name)
    net.ready()
    net.run(9000 * NS_PER_MS)
    if back == 1:
        assert [server.name for server in holders(net)] == [later]
        assert [groups(server) for server in net.living()] == [[], [], []]
    else:
        assert len(holders(net)) == 3
        assert all(groups(server) == [group_of(server)] for server in net.living())
    assert messages(net) == [1, 2, 3, 4, 5]
    assert floor(net) == 2
    assert net.publish(net.living()[0], "r.x", 1) == [6]
    assert not any("no leader" in text for server in net.living() for text in server.errors())


def test_a_stream_that_came_back_to_a_server_is_there_after_its_next_start(net: JetNet) -> None:
    servers = made(net)
    net.publish(servers[0], "r.x", 5)
    scaled(net, 1)
    net.run_until(lambda: len(holders(net)) == 1 and not any(map(groups, servers)))
    (first,) = holders(net)
    scaled(net, 3)
    net.run_until(lambda: len(holders(net)) == 3)
    net.run(5000 * NS_PER_MS)
    other = next(server.name for server in servers if server is not first)  # it had lost its replica
    net.ask(servers[0].client(), "STREAM.LEADER.STEPDOWN.R", {"placement": {"preferred": other}})
    net.run(500 * NS_PER_MS)
    scaled(net, 1)
    net.run_until(lambda: [server.name for server in holders(net)] == [other])
    net.run(2000 * NS_PER_MS)
    net.crash(other)
    net.begin(other)
    net.ready()
    net.run(500 * NS_PER_MS)
    assert messages(net) == [1, 2, 3, 4, 5]


def test_a_server_that_leaves_a_stream_gets_it_again_only_after_that(net: JetNet) -> None:
    net.trio()
    client = net.jet("a").client()
    assert "error" not in net.ask(client, "STREAM.CREATE.R", {**BODY, "num_replicas": 1})
    bodies = [{**BODY, "num_replicas": replicas} for replicas in (2, 1, 2, 1, 2)]
    for body in bodies:
        net.answers(client, "STREAM.UPDATE.R", body, wait_ms=20)
    net.run(12_000 * NS_PER_MS)
    led = net.ask(client, "STREAM.INFO.R")
    assert "leader" in led["cluster"], led
    assert all(row["current"] for row in led["cluster"].get("replicas", ()))
    net.publish(net.jet("b"), "r.x", 3)
    assert messages(net) == [1, 2, 3]


def test_an_update_that_waits_too_long_for_a_server_to_leave_is_refused(
    net: JetNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta_requests, "LEAVE_NS", 0)
    net.trio()
    client = net.leader().client()
    assert "error" not in net.ask(client, "STREAM.CREATE.R", {**BODY, "num_replicas": 1})
    scaled(net, 2)
    net.run(4000 * NS_PER_MS)
    follower = net.ask(client, "STREAM.INFO.R")["cluster"]["replicas"][0]["name"]
    if follower == net.leader().name:
        net.ask(client, "STREAM.LEADER.STEPDOWN.R")
        net.run(1000 * NS_PER_MS)
        follower = net.ask(client, "STREAM.INFO.R")["cluster"]["replicas"][0]["name"]
    net.pause(follower)  # it cannot agree to its removal, and the others do not know yet that it was removed
    net.answers(client, "STREAM.UPDATE.R", {**BODY, "num_replicas": 1}, wait_ms=20)
    answers = net.answers(client, "STREAM.UPDATE.R", {**BODY, "num_replicas": 2}, wait_ms=100)
    assert [answer["error"]["err_code"] for answer in answers] == [10226]

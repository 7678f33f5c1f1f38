"""Archives of streams on three servers: created and restored through any of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.base.errors import StoreFailed
from pyjs.jetstream.member.losses import Losses
from pyjs.jetstream.transfer.building import StreamBuild

BODY: dict[str, Any] = {"name": "R", "subjects": ["r.>"]}


def back_up(net: JetNet, server: JetServer, name: str = "R") -> tuple[dict[str, Any], list[bytes]]:
    """Return the answer to the request for an archive, and its chunks."""
    client = server.client()
    client.send(b"SUB arc.s 7001\r\n")
    net.run(50 * NS_PER_MS)
    body = {"deliver_subject": "arc.s", "chunk_size": 1024}
    answer = net.ask(server.client(), f"STREAM.SNAPSHOT.{name}", body)
    assert "config" in answer, answer
    chunks: list[bytes] = []
    for _ in range(100):
        for frame in client.frames():
            if frame.subject != b"arc.s":
                continue
            if not frame.payload:
                return answer, chunks
            chunks.append(frame.payload)
            if frame.reply:
                client.send(b"PUB %b 0\r\n\r\n" % frame.reply)
        net.run(50 * NS_PER_MS)
    raise AssertionError("the archive does not end")


def restored(
    net: JetNet, server: JetServer, answer: dict[str, Any], chunks: list[bytes], **options: Any
) -> dict[str, Any]:
    """Restore an archive; return the last answer."""
    client = server.client()
    body = {"config": {**answer["config"], **options}, "state": answer["state"]}
    begun = net.ask(client, "STREAM.RESTORE.R", body)
    if "error" in begun:
        return begun
    client.send(b"SUB arc.r 7002\r\n")
    for chunk in (*chunks, b""):
        client.send(b"PUB %b arc.r %d\r\n%b\r\n" % (begun["deliver_subject"].encode(), len(chunk), chunk))
        for _ in range(200):
            net.run(50 * NS_PER_MS)
            frames = [frame for frame in client.frames() if frame.subject == b"arc.r"]
            if frames:
                break
        else:
            raise AssertionError("no answer")
    found: dict[str, Any] = json.loads(frames[-1].payload)
    return found


def messages(net: JetNet) -> list[dict[str, Any]]:
    client, found = net.living()[0].client(), []
    state = net.ask(client, "STREAM.INFO.R")["state"]
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = net.ask(client, "STREAM.MSG.GET.R", {"seq": seq})
        if "message" in answer:
            found.append(answer["message"])
    return found


@pytest.mark.parametrize(("storage", "before", "after"), [("file", 1, 1), ("file", 3, 3), ("memory", 1, 3)])
def test_a_stream_is_restored_with_its_consumers(net: JetNet, storage: str, before: int, after: int) -> None:
    servers = net.trio()
    body = {**BODY, "num_replicas": before, "storage": storage}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    net.publish(servers[0], "r.x", 6)
    net.ask(servers[0].client(), "STREAM.MSG.DELETE.R", {"seq": 3})
    config = {"durable_name": "C", "ack_policy": "explicit", "deliver_policy": "by_start_sequence"}
    config |= {"opt_start_seq": 4}
    made = net.ask(servers[0].client(), "CONSUMER.CREATE.R.C", {"stream_name": "R", "config": config})
    assert "config" in made, made
    kept = messages(net)
    archives = [back_up(net, server) for server in servers]
    assert net.ask(servers[0].client(), "STREAM.DELETE.R")["success"]

    for server, (answer, chunks) in zip(servers, archives, strict=True):
        found = restored(net, server, answer, chunks, num_replicas=after)
        assert found.get("config", {}).get("num_replicas") == after, found
        assert found["state"]["messages"] == 5
        net.run(3000 * NS_PER_MS)
        assert sum(each.streams == ["R"] for each in servers) == after
        assert messages(net) == kept
        assert net.ask(server.client(), "CONSUMER.INFO.R.C")["num_pending"] == 3
        assert net.publish(server, "r.x", 1) == [7]
        if server is servers[-1] and after == 3:
            net.crash(net.ask(server.client(), "STREAM.INFO.R")["cluster"]["leader"])
            net.run(2000 * NS_PER_MS)
            assert len(messages(net)) == 6
            assert net.ask(net.living()[0].client(), "CONSUMER.INFO.R.C")["num_pending"] == 4
            break
        assert net.ask(servers[0].client(), "STREAM.DELETE.R")["success"]
        net.run(1000 * NS_PER_MS)
    assert all(each.errors() == [] for each in net.living())


def test_what_the_cluster_does_not_take_is_refused_and_leaves_nothing(net: JetNet) -> None:
    servers = net.trio()
    net.answers(servers[0].client(), "STREAM.CREATE.R", {**BODY, "num_replicas": 3}, wait_ms=2000)
    net.publish(servers[0], "r.x", 2)
    answer, chunks = back_up(net, servers[1])
    assert restored(net, servers[1], answer, chunks)["error"]["err_code"] == 10130
    net.ask(servers[0].client(), "STREAM.DELETE.R")
    net.create(servers[0].client(), "OTHER", subjects=["r.x"])
    assert restored(net, servers[1], answer, chunks)["error"]["err_code"] == 10065
    net.ask(servers[0].client(), "STREAM.DELETE.OTHER")

    client = servers[0].client()
    begun = net.ask(client, "STREAM.RESTORE.R", {"config": answer["config"], "state": answer["state"]})
    net.create(servers[2].client(), "R", subjects=["q"])  # the name has become taken meanwhile
    client.send(b"SUB arc.r 7002\r\n")
    for chunk in (*chunks, b""):
        client.send(b"PUB %b arc.r %d\r\n%b\r\n" % (begun["deliver_subject"].encode(), len(chunk), chunk))
        net.run(200 * NS_PER_MS)
    last = [
        json.loads(frame.payload) for frame in client.frames() if frame.subject == b"arc.r" and frame.payload
    ]
    assert [each["error"]["err_code"] for each in last] == [10130]
    assert net.ask(client, "STREAM.INFO.R")["config"]["subjects"] == ["q"]
    assert sum(each.streams == ["R"] for each in servers) == 1
    assert not list(net.directory.glob("**/streams/.*restore*"))


def test_a_restored_stream_is_there_after_new_starts(net: JetNet) -> None:
    servers = net.trio()
    net.answers(servers[0].client(), "STREAM.CREATE.R", {**BODY, "num_replicas": 3}, wait_ms=2000)
    net.publish(servers[0], "r.x", 4)
    answer, chunks = back_up(net, servers[1])
    net.ask(servers[0].client(), "STREAM.DELETE.R")
    found = restored(net, servers[2], answer, chunks)
    assert "config" in found, found
    for server in servers:
        net.crash(server.name)
    for server in servers:
        net.begin(server.name)
    net.ready()
    net.run(4000 * NS_PER_MS)
    assert len(messages(net)) == 4
    assert all(each.streams == ["R"] for each in net.living())
    assert net.publish(net.living()[0], "r.x", 1) == [5]


def broken(_: StreamBuild) -> Iterator[None]:
    """Replaces the opening of a built stream by a failure."""
    yield None
    raise StoreFailed("R", "it cannot be opened")


def begun(net: JetNet, replicas: int) -> tuple[list[JetServer], dict[str, Any], list[bytes]]:
    """Return three servers, and an archive of a stream that was then deleted."""
    servers = net.trio()
    net.answers(servers[0].client(), "STREAM.CREATE.R", {**BODY, "num_replicas": replicas}, wait_ms=2000)
    net.publish(servers[0], "r.x", 4)
    answer, chunks = back_up(net, servers[1])
    net.ask(servers[0].client(), "STREAM.DELETE.R")
    return servers, answer, chunks


def is_free(net: JetNet) -> bool:
    """Return whether the stream does not exist, and no files and no restore of it remain."""
    answer = net.ask(net.living()[0].client(), "STREAM.INFO.R")
    assert answer["error"]["err_code"] == 10059, answer
    left = list(net.directory.glob("**/streams/*R*"))
    return not left and not any(server.streams for server in net.living())


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_restore_that_fails_in_its_last_step_leaves_nothing(
    net: JetNet, monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    servers, answer, chunks = begun(net, replicas)
    with monkeypatch.context() as short:
        short.setattr(StreamBuild, "add_steps", broken)
        found = restored(net, servers[2], answer, chunks)
    assert found["error"]["err_code"] == 10062, found
    assert is_free(net)
    net.run(3000 * NS_PER_MS)
    assert is_free(net)

    found = restored(net, servers[2], answer, chunks)
    assert found["state"]["messages"] == 4
    assert len(messages(net)) == 4


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("is_moved", [False, True])
def test_a_restore_whose_builder_was_killed_leaves_nothing_or_everything(
    net: JetNet, monkeypatch: pytest.MonkeyPatch, replicas: int, is_moved: bool
) -> None:
    servers, answer, chunks = begun(net, replicas)
    client, kept = servers[0].client(), list[object]()  # chores that never end
    begun_at = net.ask(client, "STREAM.RESTORE.R", {"config": answer["config"], "state": answer["state"]})
    client.send(b"SUB arc.r 7002\r\n")
    with monkeypatch.context() as short:
        if is_moved:
            short.setattr(Losses, "opened", lambda *_, **__: None)
        else:
            short.setattr(StreamBuild, "add_steps", lambda _: iter([kept.append]))
        for chunk in (*chunks, b""):
            client.send(
                b"PUB %b arc.r %d\r\n%b\r\n" % (begun_at["deliver_subject"].encode(), len(chunk), chunk)
            )
            net.run(100 * NS_PER_MS)
        found = servers[0].member.machine.state.stream("$G", "R")
        assert found is not None
        (builder,) = (each for each in servers if each.member.node == found.first_node)
        net.crash(builder.name)
    net.run(1000 * NS_PER_MS)
    net.begin(builder.name)
    net.ready()
    net.run(5000 * NS_PER_MS)
    if is_moved:
        assert len(messages(net)) == 4
        assert sum(each.streams == ["R"] for each in net.living()) == replicas
    else:
        assert is_free(net)
        found_then = restored(net, net.living()[2], answer, chunks)
        assert found_then["state"]["messages"] == 4

"""Mirrors and sources on three servers: their source streams are on any server, and leaders are lost."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import TRIO, JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.mirror import sourcing


def create(net: JetNet, name: str, **options: Any) -> None:
    body = {"name": name, **options}
    (answer,) = net.answers(net.living()[0].client(), f"STREAM.CREATE.{name}", body, wait_ms=2000)
    assert "config" in answer, answer


def info(net: JetNet, name: str) -> dict[str, Any]:
    """Return the info of a stream; without a leader it shows no messages."""
    found = net.answers(net.living()[0].client(), f"STREAM.INFO.{name}")
    return found[0] if found and "state" in found[0] else {"state": {"messages": -1, "last_seq": 0}}


def until_messages(net: JetNet, name: str, count: int, seconds: int = 30) -> dict[str, Any]:
    """Wait until a stream has `count` messages; return its info."""
    for _ in range(10 * seconds):
        found = info(net, name)
        if found["state"]["messages"] == count:
            break
    assert found["state"]["messages"] == count, found
    return found


def leader(net: JetNet, name: str) -> str:
    for _ in range(100):
        found: str = info(net, name).get("cluster", {}).get("leader", "")
        if found:
            return found
    raise AssertionError("no leader")


def messages(net: JetNet, name: str) -> list[dict[str, Any]]:
    """Return all messages of a stream."""
    client, found = net.living()[0].client(), []
    state = info(net, name)["state"]
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = net.ask(client, f"STREAM.MSG.GET.{name}", {"seq": seq})
        if "message" in answer:
            found.append(answer["message"])
    return found


def origins(net: JetNet, name: str) -> list[tuple[str, int]]:
    """Return the source stream and sequence of each copy."""
    found = []
    for message in messages(net, name):
        headers = base64.b64decode(message["hdrs"]).decode()
        fields = headers.partition("Nats-Stream-Source: ")[2].split("\r\n")[0].split(" ")
        found.append((fields[0], int(fields[1])))
    return found


def again(net: JetNet, name: str) -> None:
    """Start a server again that was killed."""
    net.begin(name)
    net.ready()
    net.run(1000 * NS_PER_MS)


def hpub(subject: bytes, header: bytes) -> bytes:
    """Return an HPUB with one header and no payload."""
    block = b"NATS/1.0\r\n%b\r\n\r\n" % header
    return b"HPUB %b %d %d\r\n%b\r\n" % (subject, len(block), len(block), block)


def server_with(net: JetNet, *names: str) -> JetServer:
    """Return a server that leads none of these streams."""
    led = {leader(net, name) for name in names}
    return next(server for server in net.living() if server.name not in led)


@pytest.mark.parametrize(("origin", "copy"), [(1, 1), (1, 3), (3, 1), (3, 3)])
def test_a_mirror_has_what_its_origin_has(net: JetNet, origin: int, copy: int) -> None:
    servers = net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=origin)
    create(net, "OTHER", subjects=["x"])  # so that streams with one replica are on different servers
    net.publish(servers[0], "o.a")
    assert net.ask(servers[0].client(), "STREAM.MSG.DELETE.O", {"seq": 3})["success"]
    create(net, "M", num_replicas=copy, mirror={"name": "O"})
    until_messages(net, "M", 4)
    net.publish(servers[1], "o.b")

    found = until_messages(net, "M", 9)

    assert found["mirror"]["name"] == "O"
    assert found["mirror"]["lag"] == 0
    assert "error" not in found["mirror"]
    assert messages(net, "M") == messages(net, "O")
    assert net.ask(servers[0].client(), "CONSUMER.NAMES.O")["consumers"] == []
    assert all(server.errors() == [] for server in servers)


def test_a_mirror_outlives_its_leaders_and_those_of_its_origin(net: JetNet) -> None:
    servers = net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=3)
    create(net, "M", num_replicas=3, mirror={"name": "O"})
    count = 0
    for name in ("M", "O", "M", "O"):
        count += len(net.publish(net.living()[0], "o.a"))
        lost = leader(net, name)
        net.crash(lost)
        net.run(1500 * NS_PER_MS)
        count += len(net.publish(net.living()[0], "o.a"))
        until_messages(net, "M", count)
        again(net, lost)
    assert count == 40
    assert messages(net, "M") == messages(net, "O")
    assert len(servers) == 3


@pytest.mark.parametrize("replicas", [1, 3])
def test_sources_are_copied_once_whatever_leader_is_lost(net: JetNet, replicas: int) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"])
    create(net, "B", subjects=["b.>"], num_replicas=3)
    create(net, "S", num_replicas=replicas, sources=[{"name": "A"}, {"name": "B", "filter_subject": "b.x"}])
    count = {"A": 0, "B": 0}
    for round_ in range(3):
        count["A"] += len(net.publish(net.living()[0], "a.x", 4))
        count["B"] += len(net.publish(net.living()[1], "b.x", 3))
        net.publish(net.living()[1], "b.y", 1)
        if replicas == 3 or round_ == 1:
            lost = leader(net, "S")
            net.crash(lost)
            net.run(1500 * NS_PER_MS)
            again(net, lost)
    until_messages(net, "S", sum(count.values()))
    net.run(3000 * NS_PER_MS)
    copies = origins(net, "S")
    assert len(set(copies)) == len(copies) == sum(count.values())
    assert [seq for name, seq in copies if name == "A"] == list(range(1, count["A"] + 1))
    seqs = [seq for name, seq in copies if name == "B"]
    assert seqs == sorted(seqs)


def test_copies_that_are_gone_are_not_made_again_by_the_next_leader(net: JetNet) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"])
    create(net, "S", num_replicas=3, sources=[{"name": "A"}])
    net.publish(net.living()[0], "a.x", 6)
    until_messages(net, "S", 6)
    assert net.ask(net.living()[0].client(), "STREAM.PURGE.S")["purged"] == 6
    net.crash(leader(net, "S"))
    net.run(1500 * NS_PER_MS)
    net.publish(net.living()[0], "a.x", 1)
    until_messages(net, "S", 1)
    net.run(3000 * NS_PER_MS)
    assert origins(net, "S") == [("A", 7)]


@pytest.mark.parametrize("replicas", [1, 3])
def test_an_origin_with_interest_loses_what_every_leader_has_copied(net: JetNet, replicas: int) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=replicas, retention="interest")
    create(net, "S", num_replicas=3, sources=[{"name": "O"}])
    net.run(1000 * NS_PER_MS)
    count = 0
    for _ in range(2):
        count += len(net.publish(server_with(net, "O"), "o.a", 4))
        until_messages(net, "S", count)
        until_messages(net, "O", 0)
        client = net.living()[0].client()
        assert net.ask(client, "STREAM.LEADER.STEPDOWN.S")["success"]
        net.run(3000 * NS_PER_MS)
    assert count == 8
    assert origins(net, "S") == [("O", seq) for seq in range(1, 9)]
    assert len(net.ask(net.living()[0].client(), "CONSUMER.NAMES.O")["consumers"]) == 1


def test_a_source_that_is_added_again_keeps_its_consumer(net: JetNet) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], retention="interest")
    create(net, "S", sources=[{"name": "O"}])
    client = net.living()[0].client()
    net.run(1000 * NS_PER_MS)
    names = net.ask(client, "CONSUMER.NAMES.O")["consumers"]
    server = next(each for each in net.living() if leader(net, "S") == each.name)
    js = server.node.jetstream.accounts["$G"]
    stream = js.streams["S"]

    # the names to remove arrive late: the source exists again, and uses the newest of these consumers
    sourcing.leave(js, "S", stream.created_ns, stream.config.sources)
    net.run(500 * NS_PER_MS)

    assert len(names) == 1
    assert net.ask(client, "CONSUMER.NAMES.O")["consumers"] == names


def test_a_source_that_is_removed_takes_its_consumer_along(net: JetNet) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], retention="interest")
    create(net, "S", subjects=["s"], sources=[{"name": "O"}])
    client = net.living()[0].client()
    net.run(1000 * NS_PER_MS)
    assert len(net.ask(client, "CONSUMER.NAMES.O")["consumers"]) == 1

    net.ask(client, "STREAM.UPDATE.S", {"name": "S", "subjects": ["s"]})
    net.run(500 * NS_PER_MS)

    assert net.ask(client, "CONSUMER.NAMES.O")["consumers"] == []


@pytest.mark.parametrize("replicas", [1, 3])
def test_an_origin_keeps_messages_until_they_are_copied(net: JetNet, replicas: int) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=replicas, retention="workqueue")
    net.publish(net.living()[0], "o.a", 5)
    create(net, "S", num_replicas=3, sources=[{"name": "O"}])
    until_messages(net, "S", 5)
    until_messages(net, "O", 0)
    net.crash(leader(net, "S"))
    net.publish(net.living()[0], "o.a", 5)
    net.run(1500 * NS_PER_MS)
    found = until_messages(net, "S", 5 + info(net, "O")["state"]["last_seq"] - 5)
    assert found["state"]["messages"] >= 5
    copies = origins(net, "S")
    assert len(set(copies)) == len(copies)


def test_a_missing_origin_is_copied_once_it_is_there_and_again_when_it_is_another_one(net: JetNet) -> None:
    net.trio()
    create(net, "S", num_replicas=3, sources=[{"name": "A"}])
    net.run(2000 * NS_PER_MS)
    assert info(net, "S")["sources"][0]["error"]["err_code"] == 10059
    create(net, "A", subjects=["a.>"])
    net.publish(net.living()[0], "a.x", 3)
    until_messages(net, "S", 3)
    assert net.ask(net.living()[0].client(), "STREAM.DELETE.A")["success"]
    create(net, "A", subjects=["a.>"])
    net.publish(net.living()[0], "a.x", 2)
    until_messages(net, "S", 5, seconds=60)
    assert origins(net, "S") == [("A", 1), ("A", 2), ("A", 3), ("A", 1), ("A", 2)]


def test_a_full_stream_goes_on_when_it_has_room(net: JetNet) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"])
    create(net, "S", num_replicas=3, sources=[{"name": "A"}], max_msgs=3, discard="new")
    net.publish(net.living()[0], "a.x", 5)
    until_messages(net, "S", 3)
    net.run(3000 * NS_PER_MS)
    assert info(net, "S")["state"]["messages"] == 3
    assert net.ask(net.living()[0].client(), "STREAM.PURGE.S")["purged"] == 3
    until_messages(net, "S", 2)
    assert origins(net, "S") == [("A", 4), ("A", 5)]


# limits, the number of copies that fit at first, and the number that fit later
FULL: list[tuple[dict[str, Any], int, int]] = [
    ({"max_msgs_per_subject": 1, "discard_new_per_subject": True}, 4, 1),
    ({"max_msgs_per_subject": 2, "discard_new_per_subject": True, "max_msgs": 7}, 7, 2),
    ({"max_msgs_per_subject": 5, "max_msgs": 6}, 6, 2),
    ({"max_bytes": 600}, 6, 2),
]


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(("limits", "kept", "later"), FULL, ids=str)
def test_a_full_stream_keeps_what_it_has(
    net: JetNet, limits: dict[str, Any], kept: int, later: int, replicas: int
) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"])
    client = net.living()[0].client()
    client.send(b"".join(b"PUB a.%d 1\r\n%d\r\n" % (number % 4, number % 10) for number in range(12)))
    net.run(500 * NS_PER_MS)
    create(net, "S", num_replicas=replicas, sources=[{"name": "A"}], discard="new", **limits)
    until_messages(net, "S", kept)
    net.run(3000 * NS_PER_MS)
    assert origins(net, "S") == [("A", seq) for seq in range(1, kept + 1)]
    assert info(net, "S")["sources"][0]["lag"] == 12 - kept - 2  # as nats-server counts it
    assert net.ask(net.living()[0].client(), "STREAM.PURGE.S", {"filter": "a.0"})["success"]
    net.run(3000 * NS_PER_MS)
    left = [seq for seq in range(1, kept + 1) if seq % 4 != 1]
    assert [seq for _, seq in origins(net, "S")] == [*left, *range(kept + 1, kept + later + 1)]


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_copy_that_rolls_up_is_taken_by_a_full_subject(net: JetNet, replicas: int) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"], allow_rollup_hdrs=True)
    limits = {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True}
    create(net, "S", num_replicas=replicas, sources=[{"name": "A"}], allow_rollup_hdrs=True, **limits)
    net.publish(net.living()[0], "a.x", 1)
    until_messages(net, "S", 1)
    net.living()[0].client().send(hpub(b"a.x", b"Nats-Rollup: sub"))
    net.run(3000 * NS_PER_MS)
    assert origins(net, "S") == [("A", 2)]


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_counter_takes_nothing_after_a_copy_that_it_cannot_count(net: JetNet, replicas: int) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"], allow_msg_counter=True)
    create(net, "B", subjects=["b.>"])
    sources = [{"name": "A"}, {"name": "B"}]
    create(net, "S", num_replicas=replicas, sources=sources, allow_msg_counter=True)
    client = net.living()[0].client()
    client.send(hpub(b"a.x", b"Nats-Incr: 1") + b"PUB b.x 2\r\nno\r\nPUB b.x 2\r\nno\r\n")
    net.run(5000 * NS_PER_MS)
    client.send(hpub(b"a.x", b"Nats-Incr: 1"))
    net.run(1000 * NS_PER_MS)
    assert info(net, "B")["state"]["messages"] == 2
    assert origins(net, "S") == [("A", 1), ("A", 2)]


def test_all_replicas_of_a_copy_are_equal_after_new_starts(net: JetNet) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"], num_replicas=3)
    create(net, "S", num_replicas=3, sources=[{"name": "A"}])
    net.publish(net.living()[0], "a.x", 8)
    until_messages(net, "S", 8)
    for name in TRIO:
        net.crash(name)
    for name in TRIO:
        net.begin(name)
    net.ready()
    net.run(2000 * NS_PER_MS)
    net.publish(net.living()[0], "a.x", 2)
    until_messages(net, "S", 10)
    net.run(2000 * NS_PER_MS)
    assert origins(net, "S") == [("A", seq) for seq in range(1, 11)]
    found = []
    for server in net.living():
        assert server.node.jetstream is not None
        store = server.node.jetstream.accounts["$G"].streams["S"].store
        copies = [store.get(seq) for seq in range(1, 11)]
        found.append([(each.ts, each.subject, each.headers, each.payload) for each in copies if each])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 10


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_source_is_added_and_removed_by_an_update(net: JetNet, replicas: int) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"])
    create(net, "B", subjects=["b.>"])
    net.publish(net.living()[0], "a.x", 2)
    net.publish(net.living()[0], "b.x", 2)
    create(net, "S", num_replicas=replicas, sources=[{"name": "A"}])
    until_messages(net, "S", 2)
    for sources, count in (([{"name": "A"}, {"name": "B"}], 4), ([{"name": "B"}], 5)):
        body = {"name": "S", "num_replicas": replicas, "sources": sources}
        (answer,) = net.answers(net.living()[1].client(), "STREAM.UPDATE.S", body, wait_ms=2000)
        assert "config" in answer, answer
        until_messages(net, "S", 4)
        if count == 5:
            net.publish(net.living()[0], "a.x", 1)
            net.publish(net.living()[0], "b.x", 1)
            until_messages(net, "S", 5)
    assert origins(net, "S") == [("A", 1), ("A", 2), ("B", 1), ("B", 2), ("B", 3)]


def test_positions_of_sources_stay_when_the_number_of_replicas_changes(net: JetNet) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"])
    body: dict[str, Any] = {"name": "S", "num_replicas": 3, "sources": [{"name": "A"}]}
    create(net, **body)
    count = 0
    for replicas in (1, 3):
        net.publish(net.living()[0], "a.x", 3)
        count += 3
        until_messages(net, "S", 3)
        net.ask(net.living()[0].client(), "STREAM.PURGE.S")
        changed = {**body, "num_replicas": replicas}
        (answer,) = net.answers(net.living()[1].client(), "STREAM.UPDATE.S", changed, wait_ms=4000)
        assert answer["config"]["num_replicas"] == replicas
        net.run(2000 * NS_PER_MS)
    net.publish(net.living()[0], "a.x", 1)
    until_messages(net, "S", 1)
    assert origins(net, "S") == [("A", count + 1)]


def test_a_work_queue_keeps_what_a_worker_has_acknowledged_until_it_is_copied(net: JetNet) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=1, retention="workqueue")
    config = {"durable_name": "W", "ack_policy": "explicit"}
    assert "error" not in net.ask(
        net.living()[0].client(), "CONSUMER.CREATE.O.W", {"stream_name": "O", "config": config}
    )
    create(net, "S", num_replicas=3, sources=[{"name": "O"}], max_msgs=1, discard="new")
    net.run(3000 * NS_PER_MS)
    assert len(net.publish(net.living()[0], "o.a", 4)) == 4

    client = net.living()[0].client()
    client.send(b'SUB in.m 7\r\nPUB $JS.API.CONSUMER.MSG.NEXT.O.W in.m 12\r\n{"batch":10}\r\n')
    net.run(200 * NS_PER_MS)
    for frame in client.frames():
        if frame.reply.startswith(b"$JS.ACK."):
            client.send(b"PUB %b 4\r\n+ACK\r\n" % frame.reply)
    net.run(2000 * NS_PER_MS)

    copied = []
    for _ in range(4):
        copied += [seq for _, seq in origins(net, "S")]
        net.ask(net.living()[0].client(), "STREAM.PURGE.S")
        net.run(4000 * NS_PER_MS)
    assert copied == [1, 2, 3, 4]


def names(net: JetNet, stream: str) -> list[str]:
    """Return the names of the consumers of a stream."""
    found: list[str] = net.ask(net.living()[0].client(), f"CONSUMER.NAMES.{stream}")["consumers"]
    return found


def update(net: JetNet, name: str, **options: Any) -> None:
    (answer,) = net.answers(
        net.living()[1].client(), f"STREAM.UPDATE.{name}", {"name": name, **options}, wait_ms=2000
    )
    assert "config" in answer, answer


KINDS: list[dict[str, Any]] = [{"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]}]


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
@pytest.mark.parametrize("kind", KINDS, ids=["mirror", "source"])
def test_an_origin_keeps_nothing_for_a_copy_that_is_gone(
    net: JetNet, kind: dict[str, Any], retention: str
) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=3, retention=retention)
    for name, replicas in (("S", 3), ("T", 1), ("U", 3)):
        create(net, name, num_replicas=replicas, **kind)
    net.run(2000 * NS_PER_MS)
    assert len(names(net, "O")) == 3
    for server, name in zip(net.living(), "ST", strict=False):
        assert net.answers(server.client(), f"STREAM.DELETE.{name}", wait_ms=1000)[0]["success"]
    net.run(1000 * NS_PER_MS)
    assert len(names(net, "O")) == 1
    update(net, "U", num_replicas=3, subjects=["u"])
    net.run(1000 * NS_PER_MS)
    assert names(net, "O") == []
    net.publish(net.living()[0], "u", 2)
    until_messages(net, "U", 2)


def test_a_missing_origin_costs_no_entries(net: JetNet) -> None:
    net.trio()
    create(net, "S", num_replicas=3, sources=[{"name": "A"}, {"name": "B"}])
    net.run(3000 * NS_PER_MS)
    before = [applied(server, "S") for server in net.living()]
    net.run(30_000 * NS_PER_MS)
    assert [applied(server, "S") for server in net.living()] == before
    assert [each["error"]["err_code"] for each in info(net, "S")["sources"]] == [10059, 10059]


def applied(server: JetServer, name: str) -> int:
    """Return the number of entries of a stream's group that a server has applied."""
    found = server.member.machine.state.stream("$G", name)
    assert found is not None
    assert server.member.consensus is not None
    return server.member.consensus.status(found.group).applied


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("kind", ["mirror", "source"])
def test_a_named_consumer_is_copied_from_whatever_leader_is_lost(
    net: JetNet, kind: str, replicas: int
) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=3, retention="workqueue")
    consumer = {"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "d.c"}
    config = {**consumer, "flow_control": True, "idle_heartbeat": 1_000_000_000}
    client = net.living()[0].client()
    assert "config" in net.ask(client, "CONSUMER.CREATE.O.C", {"stream_name": "O", "config": config})
    place = {"name": "O", "consumer": {"name": "C", "deliver_subject": "d.c"}}
    create(
        net, "S", num_replicas=replicas, **({"mirror": place} if kind == "mirror" else {"sources": [place]})
    )
    count = 0
    for name in ("S", "O", "S"):
        count += len(net.publish(net.living()[0], "o.a", 4))
        until_messages(net, "S", count)
        if name == "O" or replicas == 3:
            assert net.ask(net.living()[0].client(), f"STREAM.LEADER.STEPDOWN.{name}")["success"]
            net.run(1000 * NS_PER_MS)
    until_messages(net, "O", 0)
    assert info(net, "S")["state"]["last_seq"] == count == 12
    assert names(net, "O") == ["C"]


def test_the_info_of_a_stream_names_its_mirrors(net: JetNet) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=3)
    assert "alternates" not in info(net, "O")
    create(net, "N", mirror={"name": "O"})
    create(net, "M", num_replicas=3, mirror={"name": "O"})
    assert info(net, "O")["alternates"] == [{"name": name, "cluster": "SIM"} for name in ("O", "M", "N")]
    assert "alternates" not in info(net, "M")
    update(net, "M", num_replicas=3)
    assert net.ask(net.living()[0].client(), "STREAM.DELETE.N")["success"]
    assert "alternates" not in info(net, "O")


def test_a_new_leader_searches_positions_that_are_not_committed_in_steps(
    net: JetNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sourcing, "SEARCHED_PER_STEP", 4)
    net.trio()
    create(net, "A", subjects=["a.>"])
    create(net, "S", num_replicas=3, subjects=["s"], sources=[{"name": "A"}])
    net.publish(net.living()[0], "a.x", 2)
    net.publish(net.living()[0], "s", 12)
    until_messages(net, "S", 14)
    for server in net.living():  # as in a stream that had no other replicas before
        assert server.node.jetstream is not None
        replica = server.node.jetstream.accounts["$G"].streams["S"].replica
        assert replica is not None
        replica.consumers.positions.clear()
    assert net.ask(net.living()[0].client(), "STREAM.LEADER.STEPDOWN.S")["success"]
    net.run(1000 * NS_PER_MS)
    net.publish(net.living()[0], "a.x", 1)
    until_messages(net, "S", 15)
    found = [each for each in messages(net, "S") if "hdrs" in each]
    assert [base64.b64decode(each["data"]) for each in found] == [b"hi"] * 3


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_copy_goes_on_soon_after_its_origin_was_away(net: JetNet, replicas: int) -> None:
    net.trio()
    create(net, "A", subjects=["a.>"])
    create(net, "S", num_replicas=replicas, sources=[{"name": "A"}])
    net.publish(net.living()[0], "a.x", 2)
    until_messages(net, "S", 2)
    lost = leader(net, "A")
    net.crash(lost)
    net.run(1000 * NS_PER_MS)
    again(net, lost)
    net.publish(net.living()[0], "a.x", 1)
    until_messages(net, "S", 3, seconds=5)


def test_a_mirror_answers_direct_gets_of_an_origin_that_is_away(net: JetNet) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], allow_direct=True)
    create(net, "M", num_replicas=3, mirror={"name": "O"}, mirror_direct=True, allow_direct=True)
    net.publish(net.living()[0], "o.a", 2)
    until_messages(net, "M", 2)
    net.run(3000 * NS_PER_MS)
    net.crash(leader(net, "O"))
    net.run(5000 * NS_PER_MS)
    client = net.living()[0].client()
    client.send(b'SUB in 1\r\nPUB $JS.API.DIRECT.GET.O in 9\r\n{"seq":2}\r\n')
    net.run(500 * NS_PER_MS)
    assert [frame.payload for frame in client.frames() if frame.subject == b"in"] == [b"hi"]


def test_a_work_queue_keeps_what_comes_before_the_start_of_its_source(net: JetNet) -> None:
    net.trio()
    create(net, "O", subjects=["o.>"], num_replicas=3, retention="workqueue")
    net.publish(net.living()[0], "o.a", 4)
    create(net, "S", num_replicas=3, sources=[{"name": "O", "opt_start_seq": 3}])
    until_messages(net, "S", 2)
    until_messages(net, "O", 2)
    for name in ("O", "S", "O"):
        assert net.ask(net.living()[0].client(), f"STREAM.LEADER.STEPDOWN.{name}")["success"]
        net.run(2000 * NS_PER_MS)
    assert [each["seq"] for each in messages(net, "O")] == [1, 2]

"""Clients use streams on three servers: the results on three of ours and on three nats-servers are equal.

The scenes are taken from the cluster tests of other clients: changes to replicas of streams, consumers, buckets and
object stores, tags, leaders that step down while requests wait, servers that are lost or in lame duck mode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, NodeClient, ThreeServers
from tests.conformance.harness.scenes import Scene, Stage

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)
pytestmark = [needs_peer, pytest.mark.timeout(300)]

COMMON = """
jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB }
accounts { A { users: [{user: a, password: a}], jetstream: enabled }, SYS { users: [{user: s, password: s}] } }
no_auth_user: a
system_account: SYS
"""
TAGS = {name: f'server_tags: ["az:{name}"]' for name in NAMES}
SECOND = 10**9


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(Path(__file__), tmp_path_factory.mktemp("scenes"), COMMON, ready, TAGS)
    yield made
    made.close()


def ready(servers: ThreeServers) -> None:
    """Wait until all servers follow the same metadata leader, as the tests of nats.js do."""

    def leader(name: str) -> str:
        page = servers.wait_page(name, "/jsz", lambda page: page.get("meta_cluster", {}).get("leader"))
        return str(page["meta_cluster"]["leader"])

    while len({leader(name) for name in NAMES}) > 1:
        pass
    for name in NAMES:
        servers.wait_healthy(name)


def api(asker: Asker, subject: str, body: object = None) -> dict[str, Any]:
    """Return the answer to a request."""
    return asker.ask(f"$JS.API.{subject}", body)


def made(servers: ThreeServers, name: str, **options: object) -> Asker:
    """Create a stream through one server and wait for its leader; return a client of another server."""
    asker = Asker(servers.client("a"))
    found = api(asker, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **options})
    assert "error" not in found, found
    led(asker, name)
    return asker


def led(asker: Asker, name: str) -> dict[str, Any]:
    """Wait until a stream has a leader and its replicas are current; return its `cluster`."""

    def is_led(answer: dict[str, Any]) -> bool:
        cluster = answer.get("cluster", {})
        return "leader" in cluster and all(each["current"] for each in cluster.get("replicas", ()))

    cluster: dict[str, Any] = asker.until(f"$JS.API.STREAM.INFO.{name}", is_led)["cluster"]
    return cluster


def error(answer: dict[str, Any]) -> object:
    """Return the code and text of an error, or the word ok."""
    found = answer.get("error")
    return "ok" if found is None else [found["code"], found.get("err_code"), found["description"]]


def acks(asker: Asker, subject: str, count: int) -> list[object]:
    """Publish messages in sequence; return the acknowledgements."""
    return [asker.ask(subject, {"n": n}) for n in range(count)]


def frames(client: NodeClient, count: int) -> list[list[str]]:
    """Wait for messages; return subject, headers and payload of each."""
    client.wait_for_messages(count)
    client.fence()
    return [[frame[0].decode(), frame[3].decode(), frame[4].decode()] for frame in client.take()]


def publish(client: NodeClient, subject: str, headers: str, inbox: str) -> dict[str, Any]:
    """Publish with headers; return the answer."""
    head = f"NATS/1.0\r\n{headers}\r\n\r\n".encode()
    client.send(b"SUB %b ack\r\nUNSUB ack 1\r\n" % inbox.encode())
    client.send(
        b"HPUB %b %b %d %d\r\n%b\r\n" % (subject.encode(), inbox.encode(), len(head), len(head), head)
    )
    client.wait_for_any()
    answer: dict[str, Any] = json.loads(client.take()[0][4])
    return answer


# -- streams and their replicas ----------------------------------------------------------------------------------


def cluster_info(servers: ThreeServers) -> Any:
    """Return the group of a stream and its replicas as each server reports them, which nats.c reads."""
    made(servers, "INFO", num_replicas=3)
    found = []
    for name in NAMES:
        cluster = api(Asker(servers.client(name)), "STREAM.INFO.INFO")["cluster"]
        rows = cluster["replicas"]
        names = sorted([cluster["leader"], *(row["name"] for row in rows)])
        found.append(
            [cluster["name"], names, [sorted(row) for row in rows], [row["current"] for row in rows]]
        )
    return found


def publishing(servers: ThreeServers) -> Any:
    """Publish through every server: sequences, duplicates and expected sequences are those of a single stream."""
    made(servers, "PUB", num_replicas=3)
    found: list[object] = []
    for at, name in enumerate(NAMES):
        found += acks(Asker(servers.client(name)), "PUB.x", 2)
        client = servers.client(name)
        found.append(publish(client, "PUB.y", "Nats-Msg-Id: one", f"_INBOX.m{at}"))
        found.append(publish(client, "PUB.y", "Nats-Expected-Last-Sequence: 99", f"_INBOX.e{at}"))
        found.append(publish(client, "PUB.z", "Nats-Expected-Last-Subject-Sequence: 0", f"_INBOX.s{at}"))
        found.append(publish(client, "PUB.z", "Nats-Expected-Stream: NO", f"_INBOX.n{at}"))
    return [_acknowledged(each) for each in found]


def _acknowledged(answer: Any) -> object:
    return [answer.get("stream"), answer.get("seq"), answer.get("duplicate"), error(answer)]


def replicas_go_down_and_up(servers: ThreeServers) -> Any:
    """Change the number of replicas of a bucket from three to one and back, as nats.js does."""
    options = {"subjects": ["$KV.B.>"], "max_msgs_per_subject": 2, "allow_direct": True, "discard": "new"}
    asker = made(servers, "KV_B", num_replicas=3, **options)
    found: list[object] = []
    for at, replicas in enumerate((3, 1, 3, 2, 1)):
        config = {"name": "KV_B", **options, "num_replicas": replicas}
        answer = api(asker, "STREAM.UPDATE.KV_B", config)
        found.append([error(answer), answer.get("config", {}).get("num_replicas")])
        cluster = asker.until(
            "$JS.API.STREAM.INFO.KV_B",
            lambda info, wanted=replicas: (  # type: ignore[misc]
                info.get("cluster", {}).get("leader")
                and len(info["cluster"].get("replicas", ())) == wanted - 1
                and all(row["current"] for row in info["cluster"].get("replicas", ()))
            ),
        )["cluster"]
        found.append(len(cluster.get("replicas", ())))
        ack = asker.until(f"$KV.B.k{at % 2}", lambda ack: "seq" in ack, {"n": at})
        found.append(ack["stream"])
        last = asker.until(
            f"$JS.API.DIRECT.GET.KV_B.$KV.B.k{at % 2}",
            lambda value, at=at: value.get("n") == at,  # type: ignore[misc]
        )
        found.append(last)
    return found


def placement_by_tags(servers: ThreeServers) -> Any:
    """Place a mirror and a stream by tags: they are on the tagged server."""
    made(servers, "ORIGIN", num_replicas=3)
    asker = Asker(servers.client("b"))
    acks(asker, "ORIGIN.x", 3)
    found: list[object] = []
    for name in NAMES:
        config = {
            "name": f"M{name}",
            "mirror": {"name": "ORIGIN"},
            "placement": {"cluster": "TRIO", "tags": [f"az:{name}"]},
        }
        found.append(error(api(asker, f"STREAM.CREATE.M{name}", config)))
        info = asker.until(
            f"$JS.API.STREAM.INFO.M{name}",
            lambda info: info.get("state", {}).get("messages") == 3 and info["cluster"].get("leader"),
        )
        found.append([info["cluster"]["leader"], info["state"]["last_seq"], info["config"]["placement"]])
    for tags in (["az:x"], ["az:a", "az:b"]):
        config = {"name": "NO", "subjects": ["no"], "placement": {"tags": tags}}
        found.append(_with_tags_in_order(error(api(asker, "STREAM.CREATE.NO", config)), tags))
    return found


def _with_tags_in_order(refusal: Any, tags: list[str]) -> Any:
    """Return an error whose text lists exactly `tags`, with these in the order of the request.

    nats-server collects them in a map, so their order in its text is random. This server sorts them, as
    tests/unit/jetstream/cluster/test_placement.py checks.
    """
    code, number, text = refusal
    head, mark, listed = text.partition(" tags not matched ")
    assert sorted(listed.strip("[]").split(", ")) == sorted(map(repr, tags)), text
    return [code, number, f"{head}{mark}{tags}"]


def an_object_store(servers: ThreeServers) -> Any:
    """Store an object in chunks, replace its entry, and read it from every server."""
    options: dict[str, Any] = {"subjects": ["$O.o.C.>", "$O.o.M.>"], "allow_rollup_hdrs": True}
    made(servers, "OBJ_o", num_replicas=3, allow_direct=True, **options)
    writer = Asker(servers.client("b"))
    acks(writer, "$O.o.C.one", 3)
    client = servers.client("c")
    found: list[object] = [
        _acknowledged(publish(client, "$O.o.M.name", "Nats-Rollup: sub", f"_INBOX.r{n}")) for n in range(2)
    ]
    found.append(error(api(writer, "STREAM.PURGE.OBJ_o", {"filter": "$O.o.C.none"})))
    for name in NAMES:
        asker = Asker(servers.client(name))
        state = api(asker, "STREAM.INFO.OBJ_o")["state"]
        found.append([state["messages"], state["first_seq"], state["last_seq"], state["num_subjects"]])
        found.append(asker.until("$JS.API.DIRECT.GET.OBJ_o.$O.o.C.one", lambda value: value.get("n") == 2))
    return found


def direct_gets(servers: ThreeServers) -> Any:
    """Get messages directly through every server, one and in a batch."""
    made(servers, "GET", num_replicas=3, allow_direct=True)
    acks(Asker(servers.client("a")), "GET.x", 4)
    for name in NAMES:  # any replica may answer, even one that is behind
        servers.wait_page(name, "/jsz?streams=1&acc=A", lambda page: _last_seqs(page).get("GET") == 4)
    found: list[object] = []
    for name in NAMES:
        client = servers.client(name)
        for body, count in (({"seq": 2}, 1), ({"seq": 9}, 1), ({"batch": 3, "seq": 1}, 4)):
            data = json.dumps(body).encode()
            client.send(
                b"SUB _INBOX.g 1\r\nPUB $JS.API.DIRECT.GET.GET _INBOX.g %d\r\n%b\r\n" % (len(data), data)
            )
            got = frames(client, count)
            found.append([[head.partition("Nats-Time-Stamp")[0], payload] for _, head, payload in got])
            client.send(b"UNSUB 1\r\n")
    return found


def _last_seqs(page: Any) -> dict[str, int]:
    """Return the last sequence of each stream that a server has."""
    (account,) = page["account_details"]
    return {each["name"]: each["state"]["last_seq"] for each in account["stream_detail"]}


def removals(servers: ThreeServers) -> Any:
    """Delete and purge at servers other than the one at which the messages were published."""
    made(servers, "DEL", num_replicas=3)
    acks(Asker(servers.client("a")), "DEL.x", 5)
    found: list[object] = []
    for at, (verb, body) in enumerate(
        [
            ("STREAM.MSG.DELETE", {"seq": 2}),
            ("STREAM.MSG.DELETE", {"seq": 2}),
            ("STREAM.MSG.DELETE", {"seq": 99}),
            ("STREAM.PURGE", {"keep": 2}),
            ("STREAM.PURGE", {"filter": "DEL.y"}),
            ("STREAM.PURGE", None),
        ]
    ):
        asker = Asker(servers.client(NAMES[at % 3]))
        answer = api(asker, f"{verb}.DEL", body)
        state = api(asker, "STREAM.INFO.DEL")["state"]
        found.append([error(answer), answer.get("purged"), state["messages"], state["first_seq"]])
    return found


# -- consumers ---------------------------------------------------------------------------------------------------


def consumer_replicas(servers: ThreeServers) -> Any:
    """Create consumers with their own number of replicas, as nats.go does."""
    asker = made(servers, "REP", num_replicas=3)
    found: list[object] = []
    for replicas in (0, 1, 3, 5):
        config = {"durable_name": f"C{replicas}", "ack_policy": "explicit", "num_replicas": replicas}
        answer = api(asker, f"CONSUMER.CREATE.REP.C{replicas}", {"stream_name": "REP", "config": config})
        found.append([error(answer), answer.get("config", {}).get("num_replicas")])
    return [*found, api(asker, "CONSUMER.NAMES.REP")["consumers"]]


def pulling(servers: ThreeServers) -> Any:
    """Publish through one server, pull through another, acknowledge through the third."""
    made(servers, "PULL", num_replicas=3, retention="workqueue")
    acks(Asker(servers.client("a")), "PULL.x", 3)
    config = {"durable_name": "C", "ack_policy": "explicit", "max_deliver": 3}
    api(Asker(servers.client("b")), "CONSUMER.CREATE.PULL.C", {"stream_name": "PULL", "config": config})
    other, acker = servers.client("c"), Asker(servers.client("a"))
    acker.until("$JS.API.CONSUMER.INFO.PULL.C", lambda info: info.get("num_pending") == 3)
    # A larger batch would end with 408 on nats-server and with 404 on ours (docs/cluster.md).
    body = b'{"batch": 3, "no_wait": true}'
    other.send(
        b"SUB _INBOX.p.> 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.PULL.C _INBOX.p.1 %d\r\n%b\r\n"
        % (len(body), body)
    )
    other.wait_for_messages(3)
    got = other.take()
    replies = [frame[2].decode() for frame in got if frame[2]]
    found: list[object] = [[frame[0].decode(), frame[3].decode(), frame[4].decode()] for frame in got]
    found.append([reply.split(".")[:7] for reply in replies])
    found.append([acker.ask(reply) for reply in replies])  # confirmed
    acker.until("$JS.API.STREAM.INFO.PULL", lambda info: info.get("state", {}).get("messages") == 0)
    info = acker.until("$JS.API.CONSUMER.INFO.PULL.C", lambda info: info.get("num_ack_pending") == 0)
    found.append([info["ack_floor"]["stream_seq"], info["num_ack_pending"], info["num_pending"]])
    return found


def a_push_consumer(servers: ThreeServers) -> Any:
    """Receive messages of a push consumer, with its queue group, on another server."""
    made(servers, "PUSH", num_replicas=3)
    receiver = servers.client("b")
    receiver.send(b"SUB to.x g 1\r\n")
    asker = Asker(servers.client("c"))
    servers.settle(receiver, asker.client)
    config = {"durable_name": "C", "deliver_subject": "to.x", "deliver_group": "g", "ack_policy": "none"}
    found: list[object] = [
        error(api(asker, "CONSUMER.CREATE.PUSH.C", {"stream_name": "PUSH", "config": config}))
    ]
    acks(Asker(servers.client("a")), "PUSH.x", 3)
    found.append(frames(receiver, 3))
    return found


def a_leader_steps_down(servers: ThreeServers) -> Any:
    """Let the leader of a consumer step down while a request waits; continue with the next leader."""
    asker = made(servers, "DOWN", num_replicas=3)
    body = {"stream_name": "DOWN", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    api(asker, "CONSUMER.CREATE.DOWN.C", body)
    before = asker.until("$JS.API.CONSUMER.INFO.DOWN.C", lambda info: "leader" in info.get("cluster", {}))
    client = servers.client(next(name for name in NAMES if name != before["cluster"]["leader"]))
    pull = b'{"batch": 2, "expires": 600000000000}'
    client.send(b"SUB _INBOX.d 1\r\n")
    next_one = b"PUB $JS.API.CONSUMER.MSG.NEXT.DOWN.C _INBOX.d %d\r\n%b\r\n" % (len(pull), pull)
    client.send(next_one)
    asker.until("$JS.API.CONSUMER.INFO.DOWN.C", lambda info: info.get("num_waiting") == 1)
    found: list[object] = [api(asker, "CONSUMER.LEADER.STEPDOWN.DOWN.C").get("success")]
    found.append(frames(client, 1))
    asker.until(
        "$JS.API.CONSUMER.INFO.DOWN.C",
        lambda info: info.get("cluster", {}).get("leader") not in (None, before["cluster"]["leader"]),
    )
    client.send(next_one)
    asker.until("$JS.API.CONSUMER.INFO.DOWN.C", lambda info: info.get("num_waiting") == 1)
    asker.until("DOWN.x", lambda ack: "seq" in ack, {"n": 1})
    found.append(frames(client, 1))
    return found


# -- servers that go ---------------------------------------------------------------------------------------------


def lame_duck(servers: ThreeServers) -> Any:
    """Put a server into lame duck mode; return what clients are told, and whether another server leads the stream."""
    asker = made(servers, "LAME", num_replicas=3)
    near, far = servers.client("c"), servers.client("a")
    for client in (near, far):
        client.wait_info(lambda info: len(info.get("connect_urls", [])) == len(NAMES))
        client.infos.clear()
    own = f"127.0.0.1:{servers.server('c').port}"
    servers.server("c").signal("USR2")
    told = near.wait_info(lambda info: bool(info.get("ldm")))
    others = far.wait_info(lambda info: own not in info.get("connect_urls", []))
    found: list[object] = [
        own in told.get("connect_urls", []),
        len(others["connect_urls"]),
        others.get("ldm"),
    ]
    info = asker.until(
        "$JS.API.STREAM.INFO.LAME", lambda info: info.get("cluster", {}).get("leader") not in (None, "", "c")
    )
    found.append(info["cluster"]["leader"] in ("a", "b"))
    found.append(asker.until("LAME.x", lambda ack: "seq" in ack, {"n": 1})["seq"] >= 1)
    near.close()
    servers.server("c").kill()
    servers.server("c").start()
    return found


def a_server_is_lost(servers: ThreeServers) -> Any:
    """Kill the only server of a stream with one replica; return how the cluster reports it, until it is back."""
    asker = Asker(servers.client("a"))
    config = {"name": "ONE", "subjects": ["one.>"], "placement": {"tags": ["az:c"]}}
    api(asker, "STREAM.CREATE.ONE", config)
    made(servers, "THREE", num_replicas=3)
    acks(asker, "one.x", 2)
    acks(asker, "THREE.x", 2)
    servers.server("c").kill()
    asker.until("$JS.API.STREAM.INFO.THREE", lambda info: info.get("cluster", {}).get("leader") in ("a", "b"))
    left = Asker(servers.client("b"))
    found: list[object] = [sorted({"ONE", "THREE"} & set(api(left, "STREAM.NAMES")["streams"]))]
    found.append(asker.until("THREE.x", lambda ack: "seq" in ack, {"n": 3})["stream"])
    client = servers.client("a")
    client.send(b"SUB _INBOX.l 1\r\nPUB one.x _INBOX.l 0\r\n\r\n")
    found.append(frames(client, 1))  # no responders
    servers.server("c").start()
    asker.until("$JS.API.STREAM.INFO.ONE", lambda info: info.get("state", {}).get("messages") == 2)
    found.append(asker.until("one.x", lambda ack: "seq" in ack, {"n": 3})["stream"])
    return found


def a_majority_is_lost(servers: ThreeServers) -> Any:
    """Stop two of three servers while a client pulls, as the tests of nats.go do; nothing is lost."""
    asker = made(servers, "TWO", num_replicas=3)
    acks(asker, "TWO.x", 2)
    config = {"stream_name": "TWO", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    api(asker, "CONSUMER.CREATE.TWO.C", config)
    for name in ("b", "c"):
        servers.server(name).kill()
    client = servers.client("a")
    client.send(b"SUB _INBOX.t.> 1\r\nPUB $JS.API.CONSUMER.MSG.NEXT.TWO.C _INBOX.t.1 0\r\n\r\n")
    servers.start_processes("b", "c")
    for name in NAMES:
        servers.wait_healthy(name)
    info = asker.until("$JS.API.CONSUMER.INFO.TWO.C", lambda info: "leader" in info.get("cluster", {}))
    state = api(asker, "STREAM.INFO.TWO")["state"]
    return [state["messages"], info["config"]["durable_name"], error(info)]


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        cluster_info,
        publishing,
        replicas_go_down_and_up,
        placement_by_tags,
        an_object_store,
        direct_gets,
        removals,
        consumer_replicas,
        pulling,
        a_push_consumer,
        a_leader_steps_down,
        lame_duck,
        a_server_is_lost,
        a_majority_is_lost,
    )
}


@pytest.mark.parametrize("name", SCENES)
def test_clients_see_the_same(stage: Stage, name: str) -> None:
    ours, peer = stage.both(SCENES[name], name)
    assert ours == peer

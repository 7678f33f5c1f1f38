"""Decisions of three nats-servers with JetStream, and that our metadata state machine makes the same ones.

These scenes play on three nats-servers. Their answers are compared with those of our state machine alone, which gets
the same requests as entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import peer_command

from pyjs.config.options import AccountJetStreamOptions, JetStreamOptions
from pyjs.jetstream.cluster import advisories
from pyjs.jetstream.cluster.answers import matching
from pyjs.jetstream.cluster.assignments import StoredConfig, stored_config
from pyjs.jetstream.cluster.entries import (
    AccountPurged,
    Bounds,
    Entry,
    ServerDescribed,
    ServerEvacuating,
    ServerRemoved,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
    encode,
)
from pyjs.jetstream.cluster.moves import Field, field_of, updated_nodes, without_replica
from pyjs.jetstream.cluster.placement import Rules, fitting, successor
from pyjs.jetstream.cluster.reports import (
    Backlog,
    ConsumerName,
    GroupStatus,
    PeerStatus,
    consumer_cluster,
    meta_cluster,
    stream_cluster,
)
from pyjs.jetstream.cluster.servers import Server
from pyjs.jetstream.cluster.state import MetaState
from pyjs.jetstream.config.declared import from_json
from pyjs.jetstream.config.stream import Placement
from pyjs.jetstream.config.stream_requests import read_stream
from pyjs.jetstream.errcodes import STREAM_NOT_FOUND, ApiError
from pyjs.jetstream.rules.stream import check

PEER = peer_command()
pytestmark = needs_peer
GB, MB = 1 << 30, 1 << 20
MAX_FILE, MAX_STREAMS = 100 * MB, 6  # of account FEW
COMMON = f"""
jetstream {{ store_dir: "<<store>>", max_file_store: {GB}, max_memory_store: {100 * MB} }}
accounts {{
    A {{ users: [{{user: a, password: a}}], jetstream: enabled }}
    FEW {{ users: [{{user: f, password: f}}], jetstream: {{max_file: {MAX_FILE}, max_streams: {MAX_STREAMS}}} }}
    SYS {{ users: [{{user: s, password: s}}] }}
}}
no_auth_user: a
system_account: SYS
"""
TAGS = {"a": ("az:1", "ssd"), "b": ("az:2", "ssd"), "c": ("az:2",)}
LOGINS: dict[str, dict[str, object]] = {
    "A": {},
    "FEW": {"user": "f", "pass": "f"},
    "SYS": {"user": "s", "pass": "s"},
}
BOUNDS = {"A": Bounds(), "FEW": Bounds(MAX_STREAMS, MAX_FILE)}


ALL = Rules(online=frozenset({1, 2, 3}))


@dataclass
class Ours:
    """The metadata of our cluster with the same servers, driven as the API drives it."""

    account: str
    rules: Rules = ALL
    state: MetaState = field(default_factory=MetaState)

    def __post_init__(self) -> None:
        for node, name in enumerate(NAMES, 1):
            server = Server(node, name, "TRIO", TAGS[name], node, "0.1.0", 1, 100 * MB, GB)
            self.do(ServerDescribed(server))

    def do(self, entry: Entry) -> str:
        """Apply an entry; return the answer to the client."""
        done = self.state.apply(self.state.index + 1, 0, encode(entry))
        return _text(done.error)

    @property
    def field(self) -> Field:
        """The servers on which streams can be placed."""
        return field_of(self.state, "TRIO", self.rules)

    def request(self, verb: str, name: str, **options: object) -> str:
        """Carry out an API request; return the answer to the client."""
        try:
            return {"CREATE": self._create, "UPDATE": self._update, "DELETE": self._delete}[verb](
                name, options
            )
        except ApiError as error:
            return _text(error)

    def _create(self, name: str, options: dict[str, object]) -> str:
        made, bounds = stored(name, options), BOUNDS[self.account]
        if self.state.check_create(self.account, made, bounds) is not None:
            return _text(None)
        return self.do(StreamCreated(self.account, made, self.field.place(made.config), bounds))

    def _update(self, name: str, options: dict[str, object]) -> str:
        made, bounds = stored(name, options), BOUNDS[self.account]
        self.state.check_update(self.account, made, bounds)
        old = self.state.stream(self.account, name)
        assert old is not None
        nodes = updated_nodes(self.field, old, made.config, old.nodes[0])
        return self.do(StreamUpdated(self.account, old.group, old.revision, made, nodes, bounds))

    def _delete(self, name: str, options: dict[str, object]) -> str:
        old = self.state.stream(self.account, name)
        STREAM_NOT_FOUND.raise_if(old is None)
        assert old is not None
        return self.do(StreamDeleted(self.account, name, old.group))


def stored(name: str, options: dict[str, object]) -> StoredConfig:
    """Return the configuration that a request results in."""
    config = read_stream(json.dumps(_body(name, options)).encode(), True).config.with_required_level()
    return stored_config(check(config, JetStreamOptions(), AccountJetStreamOptions()))


def _body(name: str, options: dict[str, object]) -> dict[str, object]:
    return {"name": name, "subjects": [name.lower()], **options}


def _text(error: ApiError | None) -> str:
    return "ok" if error is None else f"{error.code} {error.err_code} {error.description}"


def told(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    return "ok" if error is None else f"{error['code']} {error['err_code']} {error['description']}"


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    """Three nats-servers that all know the leader of their metadata."""
    assert PEER is not None
    own = {name: f"server_tags: {json.dumps(tags)}" for name, tags in TAGS.items()}
    with three(PEER, tmp_path_factory.mktemp("jetstream"), COMMON, own=own) as servers:
        meta_leader(servers)
        yield servers


@pytest.fixture
def asker(peers: ThreeServers) -> Iterator[Asker]:
    """A client of account A; the streams of the account are deleted at the end."""
    asker = Asker(peers.client("b"))
    yield asker
    for name in asker.ask("$JS.API.STREAM.NAMES")["streams"] or ():
        assert told(asker.ask(f"$JS.API.STREAM.DELETE.{name}")) == "ok"
    peers.release()


def meta_leader(servers: ThreeServers) -> str:
    """Wait until all servers name the same leader and see three members; return its name."""
    found: set[str] = set()
    while len(found) != 1 or "" in found:
        pages = [servers.wait_page(name, "/jsz", lambda page: "meta_cluster" in page) for name in NAMES]
        blocks = [page["meta_cluster"] for page in pages]
        found = {each.get("leader", "") if each["cluster_size"] == 3 else "" for each in blocks}
    return found.pop()


def create(asker: Asker, name: str, **options: object) -> dict[str, Any]:
    return asker.ask(f"$JS.API.STREAM.CREATE.{name}", _body(name, options))


def led(asker: Asker, name: str) -> dict[str, Any]:
    """Wait until a stream has a leader; return its `cluster`."""
    answer = asker.until(f"$JS.API.STREAM.INFO.{name}", lambda info: "leader" in info.get("cluster", {}))
    cluster: dict[str, Any] = answer["cluster"]
    return cluster


def holders(cluster: dict[str, Any]) -> set[str]:
    return {cluster["leader"], *(row["name"] for row in cluster.get("replicas", ()))}


# -- placement -------------------------------------------------------------------------------------------------


def placement(*tags: str, cluster: str = "") -> dict[str, object]:
    return {"placement": {"tags": tags, **({"cluster": cluster} if cluster else {})}}


PLACED: list[dict[str, object]] = [
    {"num_replicas": 3},
    {"num_replicas": 5},
    *({"num_replicas": count, **placement("ssd")} for count in (1, 2, 3)),
    {"num_replicas": 3, **placement("SSD")},
    {"num_replicas": 2, **placement("!ssd")},
    placement("!ssd"),
    placement("gpu", "tpu"),
    placement("az:1", "!ssd"),
    {"num_replicas": 2, **placement("az:2", "!ssd")},
    placement("az:2", "!ssd"),
    placement("gpu", "!ssd"),
    placement(cluster="X"),
    placement(cluster="TRIO"),
]


@pytest.mark.parametrize("options", PLACED, ids=str)
def test_streams_are_placed_by_the_same_rules(asker: Asker, options: dict[str, object]) -> None:
    ours = Ours("A")
    answer = create(asker, "P", **options)
    mine = ours.request("CREATE", "P", **options)
    assert mine == told(answer)
    if mine == "ok":
        stream = ours.state.stream("A", "P")
        assert stream is not None
        nodes = tuple(NAMES.index(name) + 1 for name in holders(answer["cluster"]))
        assert len(nodes) == len(stream.nodes)
        config = stream.config
        servers = ours.state.servers.values()
        fit = fitting(servers, config, "TRIO", {}, ALL, nodes)
        assert sorted(fit) == sorted(nodes)  # the servers that nats-server chose at random fit by our rules


# -- conflicts and limits --------------------------------------------------------------------------------------

REQUESTS: list[tuple[str, str, dict[str, object]]] = [
    ("CREATE", "S", {"num_replicas": 3}),
    ("CREATE", "S", {"num_replicas": 3}),
    ("CREATE", "S", {"num_replicas": 3, "max_msgs": 5}),
    ("CREATE", "T", {"subjects": ["s", "t"]}),
    ("CREATE", "T", {"subjects": ["*"]}),
    ("CREATE", "T", {"subjects": ["t.>"]}),
    ("UPDATE", "T", {"subjects": ["t.>", "s"]}),
    ("UPDATE", "T", {"subjects": ["t.a", "u"]}),
    ("CREATE", "U", {"subjects": ["t.b", "u"]}),
    ("CREATE", "U", {"subjects": ["t.b"]}),
    ("UPDATE", "NONE", {}),
    ("DELETE", "NONE", {}),
    ("CREATE", "P", {"placement": {"preferred": "a"}}),
    ("UPDATE", "T", {"subjects": ["t.a", "u"], "num_replicas": 2, **placement("ssd")}),
    # more than MAX_FILE of the account, because each replica counts
    ("CREATE", "BIG", {"max_bytes": 2 * GB}),
    ("CREATE", "BIG", {"max_bytes": 40 * MB, "num_replicas": 3}),
    ("CREATE", "BIG", {"max_bytes": 40 * MB, "num_replicas": 2}),
    ("CREATE", "MORE", {"max_bytes": 30 * MB}),
    ("CREATE", "MORE", {"max_bytes": 20 * MB}),
    ("UPDATE", "MORE", {"max_bytes": 21 * MB}),
    ("CREATE", "S", {"num_replicas": 3}),
    ("DELETE", "MORE", {}),
    ("UPDATE", "BIG", {"max_bytes": 40 * MB, "num_replicas": 3}),
    # more streams than MAX_STREAMS of the account
    *(("CREATE", f"N{number}", {}) for number in range(4)),
    ("DELETE", "N0", {}),
    ("CREATE", "N3", {"subjects": ["n0"]}),
]


def test_conflicts_and_limits_are_decided_alike(peers: ThreeServers) -> None:
    ours, asker = Ours("FEW"), Asker(peers.client("c", **LOGINS["FEW"]))
    expected = [
        told(asker.ask(f"$JS.API.STREAM.{verb}.{name}", None if verb == "DELETE" else _body(name, options)))
        for verb, name, options in REQUESTS
    ]
    found = [ours.request(verb, name, **options) for verb, name, options in REQUESTS]
    peers.release()
    assert found == expected
    assert len(set(expected)) > 7  # the requests test many different rules


# -- answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("server", NAMES)
def test_every_server_answers_names_and_lists(peers: ThreeServers, asker: Asker, server: str) -> None:
    ours = Ours("A")
    made: dict[str, dict[str, object]] = {"B": {}, "A": {"subjects": ["x.*"]}, "C": {"num_replicas": 3}}
    for name, options in made.items():
        create(asker, name, **options)
        ours.request("CREATE", name, **options)
    client = Asker(peers.client(server))
    for subject in ("", "x.>", "c", "none"):
        answer = client.ask("$JS.API.STREAM.NAMES", {"subject": subject})
        assert answer["streams"] == ([each.name for each in matching(ours.state, "A", subject)] or None)
    listed = client.ask("$JS.API.STREAM.LIST")
    assert [each["config"]["name"] for each in listed["streams"]] == ["A", "B", "C"]
    assert all(each["cluster"]["name"] == "TRIO" for each in listed["streams"])


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_stream_tells_its_group(asker: Asker, replicas: int) -> None:
    ours = Ours("A")
    ours.request("CREATE", "S", num_replicas=replicas)
    create(asker, "S", num_replicas=replicas)
    theirs = led(asker, "S")
    stream = ours.state.stream("A", "S")
    assert stream is not None
    leader = NAMES.index(theirs["leader"]) + 1
    rows = [(NAMES.index(row["name"]) + 1, row) for row in theirs.get("replicas", ())]
    status = GroupStatus(
        leader,
        5,
        tuple(PeerStatus(node, row["current"], row["active"], lag=row.get("lag", 0)) for node, row in rows),
    )
    mine = stream_cluster(ours.state, "TRIO", stream, status, "SYS")
    assert list(mine) == list(theirs)
    assert mine.get("replicas") == theirs.get("replicas")
    assert mine.get("raft_group", "")[:6] == theirs.get("raft_group", "")[:6]
    assert len(mine.get("raft_group", "")) == len(theirs.get("raft_group", ""))


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_consumer_tells_a_group(peers: ThreeServers, asker: Asker, replicas: int) -> None:
    ours, name = Ours("A"), ConsumerName("D", replicas)
    ours.request("CREATE", "S", num_replicas=3)
    create(asker, "S", num_replicas=3)
    led(asker, "S")
    config = {"durable_name": "D", "ack_policy": "explicit", "num_replicas": replicas}
    other = Asker(peers.client("c"))
    theirs = other.ask("$JS.API.CONSUMER.CREATE.S.D", {"stream_name": "S", "config": config})["cluster"]
    stream = ours.state.stream("A", "S")
    assert stream is not None
    status = GroupStatus(NAMES.index(theirs["leader"]) + 1, 5, (PeerStatus(1, True, 1),))
    mine = consumer_cluster(ours.state, "TRIO", stream, name, status, "SYS")
    assert list(mine) == list(theirs)
    assert mine.get("raft_group", "")[:6] == theirs.get("raft_group", "")[:6]
    assert len(mine.get("raft_group", "")) == len(theirs.get("raft_group", ""))


@pytest.mark.parametrize("server", NAMES)
def test_jsz_tells_of_the_metadata_group(peers: ThreeServers, server: str) -> None:
    leader = meta_leader(peers)
    theirs = peers.page(server, "/jsz")["meta_cluster"]
    others = tuple(PeerStatus(node, True, 1) for node, name in enumerate(NAMES, 1) if name != server)
    status = GroupStatus(NAMES.index(leader) + 1, 0, others)
    mine = meta_cluster(Ours("A").state, "TRIO", status, Backlog(3))
    theirs["snapshot"].pop("last_duration", None)
    assert list(mine) == list(theirs)
    assert list(mine["snapshot"]) == list(theirs["snapshot"])
    assert [row["peer"] for row in mine["replicas"]] == [row["peer"] for row in theirs["replicas"]]
    assert {name: mine[name] for name in ("leader", "peer", "cluster_size", "quorum_needed")} == {
        name: theirs[name] for name in ("leader", "peer", "cluster_size", "quorum_needed")
    }


# -- what operators do -----------------------------------------------------------------------------------------

STEPDOWNS: list[dict[str, object]] = [
    {"preferred": "the leader"},
    {"preferred": "zz"},
    {"preferred": "zz", "tags": ["ssd"]},
    {"tags": ["gpu"]},
    {"cluster": "X"},
    {"preferred": "another"},
    {"tags": ["!gpu"]},
    {"tags": ["AZ:2"]},
    {},
]


@pytest.mark.parametrize("wanted", STEPDOWNS, ids=str)
def test_leaders_step_down_for_the_same_servers(asker: Asker, wanted: dict[str, object]) -> None:
    ours = Ours("A")
    create(asker, "S", num_replicas=3)
    leader = led(asker, "S")["leader"]
    other = next(name for name in NAMES if name != leader)
    words = {"the leader": leader, "another": other}
    asked = {
        key: words.get(value, value) if isinstance(value, str) else value for key, value in wanted.items()
    }
    theirs = told(asker.ask("$JS.API.STREAM.LEADER.STEPDOWN.S", {"placement": asked}))
    given = from_json(Placement, {**asked, "tags": asked.get("tags", [])})
    try:
        successor(ours.state.servers, (1, 2, 3), NAMES.index(leader) + 1, given, {1, 2, 3})
        mine = "ok"
    except ApiError as error:
        mine = _text(error)
    assert mine == theirs


@pytest.mark.parametrize(
    ("peer", "replicas"), [("zz", 2), ("member", 3), ("member", 2), ("member", 1), ("stranger", 2)]
)
def test_replicas_are_removed_alike(asker: Asker, peer: str, replicas: int) -> None:
    create(asker, "S", num_replicas=replicas)
    there = holders(led(asker, "S"))
    name = {"member": min(there), "stranger": min({*NAMES} - there, default="")}.get(peer, peer)
    ours = Ours("A")
    nodes = tuple(NAMES.index(each) + 1 for each in there)
    ours.do(StreamCreated("A", stored("S", {"num_replicas": replicas}), nodes))
    stream = ours.state.stream("A", "S")
    assert stream is not None
    try:
        mine = ours.do(without_replica(ours.field, stream, NAMES.index(name) + 1 if name in NAMES else 99))
    except ApiError as error:
        mine = _text(error)
    assert mine == told(asker.ask("$JS.API.STREAM.PEER.REMOVE.S", {"peer": name}))


def test_unknown_servers_cannot_be_removed(peers: ThreeServers) -> None:
    asker, ours = Asker(peers.client("a", **LOGINS["SYS"])), Ours("A")
    assert ours.do(ServerRemoved(99)) == told(asker.ask("$JS.API.SERVER.REMOVE", {"peer": "zz"}))
    assert ours.do(ServerEvacuating(99, True)) == told(asker.ask("$JS.API.SERVER.EVACUATE", {"peer": "zz"}))
    peers.release()


def test_the_advisory_of_a_new_leader_has_the_same_fields(peers: ThreeServers, asker: Asker) -> None:
    watchers = [peers.client("a"), peers.client("a", **LOGINS["SYS"])]
    for watcher in watchers:
        watcher.send(b"SUB $JS.EVENT.ADVISORY.*.LEADER_ELECTED.> 1\r\n")
        watcher.fence()
    peers.settle(asker.client, watchers[0])
    create(asker, "S", num_replicas=3)
    for watcher, account in zip(watchers, ("", "A"), strict=True):
        watcher.wait_for_any()
        frame = watcher.take()[0]
        theirs = json.loads(frame[4])
        mine = advisories.stream_leader("S", theirs["leader"], theirs["replicas"], account)
        assert mine.subject == frame[0].decode()
        assert f"io.nats.jetstream.{mine.kind}" == theirs["type"]
        assert mine.fields == {key: theirs[key] for key in mine.fields}
        assert list(theirs) == ["type", "id", "timestamp", *mine.fields]
        assert {row["name"] for row in theirs["replicas"]} == {*NAMES}


def test_a_purged_account_has_no_streams(peers: ThreeServers, asker: Asker) -> None:
    ours = Ours("A")
    for name in ("S", "T"):
        create(asker, name)
        ours.request("CREATE", name)
    system = Asker(peers.client("c", **LOGINS["SYS"]))
    assert system.ask("$JS.API.ACCOUNT.PURGE.A")["initiated"]
    assert ours.do(AccountPurged("A")) == "ok"
    asker.until("$JS.API.STREAM.NAMES", lambda answer: answer["streams"] is None)
    assert matching(ours.state, "A", "") == []


def test_waiting_requests_are_told_of_the_change_of_the_leader(asker: Asker) -> None:
    create(asker, "W", subjects=["w"], num_replicas=3)
    led(asker, "W")
    config = {"durable_name": "c", "ack_policy": "explicit"}
    asker.ask("$JS.API.CONSUMER.CREATE.W.c", {"stream_name": "W", "config": config})
    info = "$JS.API.CONSUMER.INFO.W.c"
    asker.until(info, lambda answer: "leader" in answer.get("cluster", {}))
    body = json.dumps({"batch": 7, "max_bytes": 900, "expires": 60 * 10**9}).encode()
    subject = b"$JS.API.CONSUMER.MSG.NEXT.W.c"
    asker.client.send(b"SUB in.m 9\r\nPUB %b in.m %d\r\n%b\r\n" % (subject, len(body), body))
    asker.until(info, lambda answer: answer.get("num_waiting") == 1)
    asker.ask("$JS.API.CONSUMER.LEADER.STEPDOWN.W.c")
    asker.client.wait_for_any()
    (frame,) = asker.client.take()
    assert (
        frame[3] == b"NATS/1.0 409 Leadership Change\r\n\r\n"
    )  # like our servers: tests/system/test_cluster_consumers.py

"""The same requests to clusters of three nats-servers and three of ours: equal answers and pages, field by field."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import our_command, peer_command

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)
pytestmark = needs_peer

COMMON = """
jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB, limits { max_ha_assets: 4 } }
accounts {
    A { users: [{user: a, password: a}], jetstream: enabled }
    SYS { users: [{user: s, password: s}] }
}
no_auth_user: a
system_account: SYS
"""
S: dict[str, object] = {"name": "S", "subjects": ["s.>"]}
R: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
CONSUMER = {"stream_name": "S", "config": {"name": "D", "durable_name": "D", "ack_policy": "explicit"}}
# subject after $JS.API, body; sent in this order
REQUESTS: list[tuple[str, object]] = [
    ("STREAM.NAMES", None),
    ("STREAM.LIST", None),
    ("STREAM.CREATE.S", S),
    ("STREAM.CREATE.S", S),
    ("STREAM.CREATE.R", R),
    ("STREAM.CREATE.S", {**S, "max_msgs": 9}),
    ("STREAM.CREATE.T", {"name": "T", "subjects": ["s.x"]}),
    ("STREAM.CREATE.T", {"name": "U"}),
    ("STREAM.CREATE.T", {"name": "T", "num_replicas": 5}),
    ("STREAM.UPDATE.S", {**S, "max_msgs": 5}),
    ("STREAM.UPDATE.R", {**R, "max_msgs": 5}),
    ("STREAM.UPDATE.T", {"name": "T"}),
    ("STREAM.INFO.S", None),
    ("STREAM.INFO.R", None),
    ("STREAM.INFO.T", None),
    ("STREAM.NAMES", None),
    ("STREAM.LIST", None),
    ("INFO", None),
    ("CONSUMER.CREATE.S.D", CONSUMER),
    ("CONSUMER.INFO.S.D", None),
    ("CONSUMER.LIST.S", None),
    ("CONSUMER.NAMES.S", None),
    ("CONSUMER.INFO.S.X", None),
    ("CONSUMER.INFO.T.X", None),
    ("STREAM.PURGE.S", None),
    ("STREAM.MSG.GET.S", {"seq": 1}),
    ("STREAM.LEADER.STEPDOWN.S", None),
    ("STREAM.PEER.REMOVE.S", {"peer": "zz"}),
    ("STREAM.PEER.REMOVE.R", {"peer": "zz"}),
    ("STREAM.PEER.REMOVE.R", {"peer": "a"}),
    ("STREAM.PEER.REMOVE.R", None),
    ("STREAM.PEER.REMOVE.R", {"peer": 5}),
    ("STREAM.PEER.REMOVE.R", "x"),
    ("STREAM.LEADER.STEPDOWN.R", {"placement": {"tags": ["zz"]}}),
    ("STREAM.LEADER.STEPDOWN.R", {"placement": "x"}),
    ("STREAM.LEADER.STEPDOWN.R", {"placement": {"cluster": "ZZ"}}),
    ("STREAM.LEADER.STEPDOWN.S", 5),
    ("STREAM.UPDATE.R", {**R, "max_msgs": 5, "placement": {"cluster": "ZZ"}}),
    ("STREAM.UPDATE.R", {**R, "max_msgs": 5, "placement": {"tags": ["zz"]}}),
    ("STREAM.CREATE.X", {"name": "X", "placement": {"cluster": "ZZ"}}),
    ("CONSUMER.LEADER.STEPDOWN.S.X", None),
    ("STREAM.PEER.REMOVE.R", {"peer": ""}),
    ("STREAM.PEER.REMOVE.T", {"peer": "a"}),
    ("CONSUMER.LEADER.STEPDOWN.S.D", None),
    ("CONSUMER.DELETE.S.D", None),
    ("STREAM.CREATE.M", {"name": "M", "mirror": {"name": "S"}}),
    ("STREAM.INFO.S", None),
    ("STREAM.INFO.M", None),
    ("STREAM.DELETE.M", None),
    ("STREAM.INFO.S", None),
    ("STREAM.DELETE.S", None),
    ("STREAM.DELETE.R", None),
    ("STREAM.DELETE.S", None),
]
# The same requests, sent as the system account.
OF_OPERATORS: list[tuple[str, object]] = [
    ("SERVER.REMOVE", {"peer": "zz"}),
    ("SERVER.REMOVE", {"peer_id": "zz", "peer": "a"}),
    ("SERVER.REMOVE", None),
    ("SERVER.EVACUATE", {"peer": "zz"}),
    ("SERVER.EVACUATE", None),
    ("SERVER.EVACUATE", {"peer": 5}),
    ("SERVER.EVACUATE", 5),
    ("SERVER.REMOVE", {"peer": 5}),
    ("ACCOUNT.PURGE.B", None),
    ("META.LEADER.STEPDOWN", {"placement": {"preferred": "zz"}}),
    ("META.LEADER.STEPDOWN", None),
]
VARIED = {"active", "created", "ts", "leader_since", "raft_group", "leader", "total", "errors"}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ThreeServers]]:
    """Both clusters, each with a leader that all of its servers know."""
    peer = peer_command()
    assert peer is not None
    with ExitStack() as stack:
        commands = {"peer": peer, "ours": our_command()}
        yield [
            stack.enter_context(three(command, tmp_path_factory.mktemp(name), COMMON))
            for name, command in commands.items()
        ]


def ready(servers: ThreeServers) -> None:
    for name in NAMES:
        servers.wait_page(name, "/jsz", is_led)
        servers.wait_healthy(name)


def is_led(page: Any) -> bool:
    meta = page.get("meta_cluster", {})
    return bool(meta.get("leader")) and meta["cluster_size"] == len(NAMES)


def masked(value: object) -> object:
    """Return an answer without the values that differ between runs; the names of fields and their order stay."""
    if isinstance(value, dict):
        return [
            (key, "*" if key in VARIED else len(each) if key == "replicas" else masked(each))
            for key, each in value.items()
        ]
    return [masked(each) for each in sorted(value, key=named)] if isinstance(value, list) else value


def named(value: object) -> str:
    """Return a sort key: the order of alternates and of missing streams in nats-server is random."""
    return str(value.get("name", "")) if isinstance(value, dict) else ""


def play(servers: ThreeServers, requests: list[tuple[str, object]], **login: object) -> list[object]:
    """Send requests to one server in sequence; return the answers."""
    ready(servers)
    askers = [Asker(servers.client(name, **login)) for name in NAMES]
    answers: list[object] = []
    for at, (subject, body) in enumerate(requests):
        answers.append((subject, masked(askers[at % 3].ask(f"$JS.API.{subject}", body))))
    servers.release()
    return answers


def test_clients_get_the_same_answers(clusters: list[ThreeServers]) -> None:
    theirs, mine = (play(servers, REQUESTS) for servers in clusters)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []


def test_operators_get_the_same_answers(clusters: list[ThreeServers]) -> None:
    theirs, mine = (play(servers, OF_OPERATORS, user="s", **{"pass": "s"}) for servers in clusters)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []


# -- what operators see ----------------------------------------------------------------------------------------

MEMORY_CONSUMER = {"stream_name": "R", "config": {"name": "C", "durable_name": "C", "ack_policy": "explicit"}}
PAGES = [
    "/jsz",
    "/jsz?acc=A",
    "/jsz?streams=1&consumers=1&config=1&raft=1",
    "/jsz?streams=1&stream-leader-only=1",
    "/raftz?acc=X",
    "/raftz?group=X",
    "/healthz",
    "/healthz?js-meta-only=1",
    "/healthz?js-server-only=1",
    "/healthz?js-enabled-only=1",
    "/healthz?stream=R",
    "/healthz?account=A",
    "/healthz?account=X",
    "/healthz?account=A&stream=R",
    "/healthz?account=A&stream=R&consumer=C",
    "/healthz?account=A&stream=X",
    "/healthz?account=A&stream=X&details=1",
    "/healthz?account=A&stream=R&consumer=X",
    "/healthz?account=A&stream=X&consumer=X",
]
# Fields that are only present at some moments, or that only one of the two servers has.
PASSING = {"last_active", "last_seen", "catching_up", "last_duration", "scrub", "lag", "offline", "last_time"}
# A consumer of nats-server may have its own leader; our server does not compress messages.
PASSING |= {"leader_since", "consumers_leader", "compress_ok", "voted_for"}


@pytest.fixture
def watched(clusters: list[ThreeServers]) -> Iterator[list[ThreeServers]]:
    """Both clusters with the stream R and its consumer C."""
    for servers in clusters:
        ready(servers)
        asker = Asker(servers.client("a"))
        asker.ask("$JS.API.STREAM.CREATE.R", R)
        asker.until("$JS.API.STREAM.INFO.R", lambda info: "leader" in info.get("cluster", {}))
        asker.ask("$JS.API.CONSUMER.CREATE.R.C", MEMORY_CONSUMER)
        asker.until("$JS.API.CONSUMER.INFO.R.C", lambda info: "leader" in info.get("cluster", {}))
    yield clusters
    for servers in clusters:
        Asker(servers.client("a")).ask("$JS.API.STREAM.DELETE.R")
        servers.release()


def shape(value: object) -> object:
    """Return the names of the fields of a page, in order, and the types of their values."""
    if isinstance(value, dict):
        return [(key, shape(each)) for key, each in value.items() if key not in PASSING]
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


def seen(servers: ThreeServers, name: str, path: str) -> tuple[int, Any]:
    """Return status and content of a page."""
    try:
        return 200, servers.page(name, path)
    except urllib.error.HTTPError as error:
        body = error.read().decode()
        return error.code, json.loads(body) if body.startswith("{") else body


def leader_of(servers: ThreeServers) -> str:
    return str(servers.page("a", "/jsz")["meta_cluster"]["leader"])


def shown(servers: ThreeServers) -> list[object]:
    """Return the leader's report about stream R, and a page that only the leader of the metadata has."""
    info = Asker(servers.client("a")).ask("$JS.API.STREAM.INFO.R")
    pages: list[object] = []
    for path in PAGES:
        status, page = seen(servers, info["cluster"]["leader"], path)
        pages.append((path, status, page if path.startswith("/healthz") or status != 200 else shape(page)))
    follower = next(name for name in NAMES if name != leader_of(servers))
    return [*pages, seen(servers, follower, "/jsz?leader-only=1")]


def test_pages_have_the_same_fields(watched: list[ThreeServers]) -> None:
    theirs, mine = map(shown, watched)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []


def group_of(servers: ThreeServers, account: str) -> list[object]:
    """Return the fields of a group of the account's streams, as each server shows it."""
    found: list[object] = []
    for name in NAMES:
        _, page = seen(servers, name, f"/raftz?acc={account}")
        key = next(key for key in page[account] if key.startswith(("S-", "_meta_")))
        group = page[account][key]
        names = sorted(peer["name"] for peer in group["peers"].values())
        found.append((shape({**group, "peers": []}), group["size"], group["quorum_needed"], names))
    return found


@pytest.mark.parametrize("account", ["A", "SYS"])
def test_groups_are_shown_alike(watched: list[ThreeServers], account: str) -> None:
    theirs, mine = (group_of(servers, account) for servers in watched)
    assert mine == theirs


def told(servers: ThreeServers) -> list[object]:
    """Return the types of the fields in the answers to requests of the system account."""
    asker = Asker(servers.client("b", user="s", **{"pass": "s"}))
    answers = [
        asker.ask("$SYS.REQ.SERVER.PING.JSZ", {"leader_only": True}),
        asker.ask("$SYS.REQ.SERVER.PING.RAFTZ", {"account": "X"}),
        asker.ask("$SYS.REQ.SERVER.PING.HEALTHZ", {"js-meta-only": True}),
        asker.ask("$SYS.REQ.SERVER.PING.STATSZ", {"server_name": leader_of(servers)})["statsz"],
    ]
    return [(shape(answer.get("data")), shape(answer.get("jetstream"))) for answer in answers]


def test_requests_of_the_system_account_have_the_same_fields(watched: list[ThreeServers]) -> None:
    theirs, mine = map(told, watched)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []


def test_too_many_replicated_streams_are_refused_alike(clusters: list[ThreeServers]) -> None:
    requests: list[tuple[str, object]] = [
        (f"STREAM.CREATE.N{number}", {"name": f"N{number}", "num_replicas": 1 if number == 6 else 3})
        for number in range(8)
    ]
    requests += [(f"STREAM.DELETE.N{number}", None) for number in range(8)]
    theirs, mine = (play(servers, requests) for servers in clusters)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []


def announced(servers: ThreeServers) -> list[object]:
    """Return the advisories of a consumer that is created in a stream with replicas, and of a new leader."""
    asker = Asker(servers.client("a"))
    found: list[object] = []
    login: dict[str, Any] = {"user": "s", "pass": "s"}
    watchers = [servers.client("b"), servers.client("c", **login)]
    for watcher in watchers:
        watcher.send(b"SUB $JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.> 1\r\n")
        watcher.fence()
    servers.settle(asker.client, watchers[0])
    body = {"stream_name": "R", "config": {"name": "D", "durable_name": "D"}}
    asker.ask("$JS.API.CONSUMER.CREATE.R.D", body)
    for watcher in watchers:
        watcher.wait_for_any()
        frame = watcher.take()[0]
        found.append((frame[0], shape(json.loads(frame[4]))))
    return found


def test_the_leader_of_a_new_consumer_is_announced_alike(watched: list[ThreeServers]) -> None:
    theirs, mine = map(announced, watched)
    assert mine == theirs

"""Placement with a unique tag and a limit of replicated assets, and the streams of an evacuated server.

As in test_cluster_jetstream.py, three nats-servers are compared with our state machine of the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import peer_command
from tests.conformance.test_cluster_jetstream import (
    COMMON,
    LOGINS,
    TAGS,
    Ours,
    create,
    holders,
    meta_leader,
    placement,
    stored,
    told,
)

from pyjs.jetstream.cluster.entries import ServerEvacuating, StreamCreated
from pyjs.jetstream.cluster.moves import moves
from pyjs.jetstream.cluster.placement import Rules

PEER = peer_command()
pytestmark = needs_peer
MAX_HA = 3
RULES = Rules(online={1, 2, 3}, unique_tag="az:", max_ha_assets=MAX_HA)


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    assert PEER is not None
    own = {name: f"server_tags: {json.dumps(tags)}" for name, tags in TAGS.items()}
    rules = f'jetstream {{ unique_tag: "az:", limits {{ max_ha_assets: {MAX_HA} }},'
    common = COMMON.replace("jetstream {", rules, 1)
    with three(PEER, tmp_path_factory.mktemp("rules"), common, own=own) as servers:
        meta_leader(servers)
        yield servers


STREAMS: list[dict[str, object]] = [
    {},
    {"num_replicas": 3},
    {"num_replicas": 3, **placement("ssd")},
    {"num_replicas": 2, **placement("az:2")},
    {"num_replicas": 2, **placement("AZ:2")},
    {"num_replicas": 2, **placement("ssd")},
    {"num_replicas": 3, **placement("!az:3")},
    # first the limit of b is reached, then that of a
    {"num_replicas": 2, **placement("ssd")},
    {"num_replicas": 2, **placement("ssd")},
    placement("ssd"),
    {"num_replicas": 2, **placement("az:2")},
]


def test_unique_tags_and_the_limit_of_assets_refuse_alike(peers: ThreeServers) -> None:
    asker, ours = Asker(peers.client("a")), Ours("A", rules=RULES)
    expected = [told(create(asker, f"S{at}", **options)) for at, options in enumerate(STREAMS)]
    found = [ours.request("CREATE", f"S{at}", **options) for at, options in enumerate(STREAMS)]
    peers.release()
    assert found == expected


SSD = placement("ssd")
UPDATES: list[tuple[str, dict[str, object]]] = [
    ("ONE", {"num_replicas": 3, **SSD}),
    ("ONE", {"num_replicas": 2, **placement("gpu")}),
    ("ONE", placement("gpu")),
    ("ONE", placement("gpu", "!ssd")),
    ("ONE", placement(cluster="X")),
    ("TWO", {"num_replicas": 2, **placement("gpu")}),
    ("TWO", {"num_replicas": 2, **placement("!ssd")}),
    ("TWO", {"num_replicas": 3, **SSD}),
    ("TWO", {"num_replicas": 1, **placement("az:2")}),
    ("ANY", {"num_replicas": 3}),
    # a has reached its limit of replicated streams; so has b, if ANY is on it
    ("ONE", {"num_replicas": 2, **SSD}),
    ("ONA", {"num_replicas": 2, **placement("az:1")}),
    ("ONC", {"num_replicas": 2, **placement("!ssd")}),
    ("TWO", {"num_replicas": 2, **SSD, "max_msgs": 5}),
]


def test_updates_that_need_other_servers_are_refused_alike(peers: ThreeServers) -> None:
    asker, ours = Asker(peers.client("a")), Ours("A", rules=RULES)
    for name in asker.ask("$JS.API.STREAM.NAMES")["streams"] or ():
        assert told(asker.ask(f"$JS.API.STREAM.DELETE.{name}")) == "ok"
    made: dict[str, dict[str, object]] = {
        "ONE": SSD,
        "ONA": placement("az:1"),
        "ONC": placement("!ssd"),
        "TWO": {"num_replicas": 2, **SSD},
        "ANY": {"num_replicas": 2},
        **{f"FULL{number}": {"num_replicas": 2, **SSD} for number in range(MAX_HA - 2)},
    }
    for name, options in made.items():
        nodes = tuple(NAMES.index(each) + 1 for each in holders(create(asker, name, **options)["cluster"]))
        assert ours.do(StreamCreated("A", stored(name, options), nodes)) == "ok"
    expected, found = [], []
    for name, options in UPDATES:
        body = {"name": name, "subjects": [name.lower()], **options}
        expected.append(told(asker.ask(f"$JS.API.STREAM.UPDATE.{name}", body)))
        found.append(ours.request("UPDATE", name, **options))
    peers.release()
    assert found == expected


def test_an_evacuation_moves_the_same_but_a_stream_keeps_two_replicas(peers: ThreeServers) -> None:
    """nats-server takes one of two replicas away from a stream although no other server fits."""
    asker, system = Asker(peers.client("a")), Asker(peers.client("a", **LOGINS["SYS"]))
    for name in asker.ask("$JS.API.STREAM.NAMES")["streams"] or ():
        assert told(asker.ask(f"$JS.API.STREAM.DELETE.{name}")) == "ok"
    ours = Ours("A", rules=RULES)
    made: dict[str, dict[str, object]] = {
        "SHORT": {"num_replicas": 2, **placement("ssd")},  # on a and b: no other server fits
        "STAYS": placement("ssd", "az:2"),  # on b alone
        "MOVES": placement("az:2"),  # on b or c
    }
    for name, options in made.items():
        nodes = tuple(NAMES.index(each) + 1 for each in holders(create(asker, name, **options)["cluster"]))
        assert ours.do(StreamCreated("A", stored(name, options), nodes)) == "ok"
    ours.do(ServerEvacuating(2, True))
    moving = ours.state.stream("A", "MOVES")
    assert moving is not None
    found = {entry.name: entry.target for entry in moves(ours.field)}
    assert found == ({"MOVES": 3} if moving.nodes == (2,) else {})
    assert told(system.ask("$JS.API.SERVER.EVACUATE", {"peer": "b"})) == "ok"
    for name, servers in {"SHORT": {"a"}, "MOVES": {"c"}, "STAYS": {"b"}}.items():
        asker.until(f"$JS.API.STREAM.INFO.{name}", partial(_is_on, servers))
    peers.release()


def _is_on(servers: set[str], info: dict[str, Any]) -> bool:
    cluster = info.get("cluster", {})
    return "leader" in cluster and holders(cluster) == servers

"""Placement with a unique tag and a limit of replicated assets.

As in test_cluster_jetstream.py, three nats-servers are compared with the parts that will answer here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import ThreeServers, three
from tests.conformance.harness.process import peer_command
from tests.conformance.test_cluster_jetstream import (
    COMMON,
    TAGS,
    Asker,
    Ours,
    create,
    meta_leader,
    placement,
    told,
)

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
    # the limit of b is reached, then that of a
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

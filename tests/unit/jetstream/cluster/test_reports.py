"""Reports about groups, in the order of nats-server's fields."""

from __future__ import annotations

import json

from tests.unit.jetstream.cluster.metafixture import Meta, stream

from pyjs.jetstream.cluster.entries import ServerRemoved
from pyjs.jetstream.cluster.reports import GroupStatus, PeerStatus, meta_cluster, name_of, stream_cluster

PEERS = (PeerStatus(3, False, 5, is_offline=True, lag=7), PeerStatus(2, True, 9))
ROWS = [
    {"name": "n2", "current": True, "active": 9, "peer": "bFOX7rWK"},
    {"name": "n3", "current": False, "offline": True, "active": 5, "lag": 7, "peer": "TqIHjHoG"},
]


def test_a_stream_reports_its_group_with_the_others_by_name() -> None:
    meta = Meta(1, 2, 3)
    status = GroupStatus(1, 1_000_000_000, PEERS)
    found = stream_cluster(meta.state, "TRIO", stream("S", (1, 2, 3), 62), status, "$SYS")
    text = json.dumps(found)
    assert json.loads(text) == {
        "name": "TRIO",
        "raft_group": "S-R3F-00000010",
        "leader": "n1",
        "leader_since": "1970-01-01T00:00:01Z",
        "system_account": True,
        "traffic_account": "$SYS",
        "replicas": found["replicas"],
    }
    assert [row["name"] for row in found["replicas"]] == ["n2", "n3"]
    assert [list(row) for row in found["replicas"]] == [list(row) for row in ROWS]


def test_a_stream_without_a_leader_says_nothing_of_one() -> None:
    meta = Meta(1)
    found = stream_cluster(meta.state, "TRIO", stream(), GroupStatus(), "$SYS")
    assert list(found) == ["name", "raft_group", "system_account", "traffic_account"]


def test_only_the_leader_reports_the_others_of_the_metadata_group() -> None:
    meta = Meta(1, 2, 3)
    status = GroupStatus(1, 0, PEERS)
    leads = meta_cluster(meta.state, "TRIO", status, 1, is_leader=True, pending=0)
    follows = meta_cluster(meta.state, "TRIO", status, 2, is_leader=False, pending=0)
    assert leads["leader"] == follows["leader"] == "n1"
    assert leads["cluster_size"] == 3
    assert "replicas" in leads
    assert "replicas" not in follows
    assert "leader" not in meta_cluster(meta.state, "TRIO", GroupStatus(), 2, is_leader=False, pending=0)


def test_a_removed_server_still_has_its_name() -> None:
    meta = Meta(1, 2)
    meta.do(ServerRemoved(2))
    assert name_of(meta.state, 2) == "n2"
    assert name_of(meta.state, 9) == ""

"""Reports about groups, with nats-server's fields in its order."""

from __future__ import annotations

import json

from tests.unit.jetstream.cluster.metafixture import Meta, stream

from pyjs.base.nuid import short_hash
from pyjs.jetstream.cluster.entries import ServerRemoved
from pyjs.jetstream.cluster.reports import (
    Backlog,
    ConsumerName,
    GroupStatus,
    PeerStatus,
    consumer_cluster,
    meta_cluster,
    name_of,
    stream_cluster,
)

PEERS = (PeerStatus(3, False, 5, is_offline=True, lag=7), PeerStatus(2, True, 9))
ROWS = [
    {"name": "n2", "current": True, "active": 9, "peer": short_hash("n2")},
    {"name": "n3", "current": False, "offline": True, "active": 5, "lag": 7, "peer": short_hash("n3")},
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
    assert found["replicas"] == ROWS
    assert [list(row) for row in found["replicas"]] == [list(row) for row in ROWS]


def test_a_stream_without_a_leader_says_nothing_of_one() -> None:
    meta = Meta(1, 2)
    found = stream_cluster(meta.state, "TRIO", stream("S", (1, 2)), GroupStatus(), "$SYS")
    assert list(found) == ["name", "raft_group", "system_account", "traffic_account"]


def test_the_only_replica_of_a_stream_has_no_group() -> None:
    found = stream_cluster(Meta(1).state, "TRIO", stream(), GroupStatus(1, 5), "$SYS")
    assert found == {"name": "TRIO", "leader": "n1"}


def test_a_consumer_reports_the_group_of_its_stream_under_a_name_of_its_own() -> None:
    state, held = Meta(1, 2, 3).state, stream("S", (1, 2, 3), 62)
    status = GroupStatus(1, 5, PEERS)
    mine = consumer_cluster(state, "TRIO", held, ConsumerName("C"), status, "$SYS")
    other = consumer_cluster(state, "TRIO", held, ConsumerName("D"), status, "$SYS")
    assert mine["raft_group"].startswith("C-R3F-")
    assert mine["raft_group"] != other["raft_group"]
    assert mine | {"raft_group": ""} == stream_cluster(state, "TRIO", held, status, "$SYS") | {
        "raft_group": ""
    }
    single = consumer_cluster(state, "TRIO", held, ConsumerName("E", 1), status, "$SYS")
    assert single == {"name": "TRIO", "leader": "n1"}


def test_the_metadata_group_is_reported_with_its_backlog() -> None:
    meta = Meta(1, 2, 3)
    found = meta_cluster(meta.state, "TRIO", GroupStatus(1, 0, PEERS), Backlog(3, 4, 2, 5, 6, 1_000_000_000))
    assert [row["name"] for row in found.pop("replicas")] == ["n2", "n3"]
    assert found == {
        "name": "TRIO",
        "leader": "n1",
        "peer": short_hash("n1"),
        "cluster_size": 3,
        "quorum_needed": 2,
        "pending": 6,
        "pending_requests": 4,
        "pending_infos": 2,
        "snapshot": {"pending_entries": 5, "pending_size": 6, "last_time": "1970-01-01T00:00:01Z"},
    }
    assert "leader" not in meta_cluster(meta.state, "TRIO", GroupStatus(), Backlog(3))


def test_a_removed_server_still_has_its_name() -> None:
    meta = Meta(1, 2)
    meta.do(ServerRemoved(2))
    assert name_of(meta.state, 2) == "n2"
    assert name_of(meta.state, 9) == ""

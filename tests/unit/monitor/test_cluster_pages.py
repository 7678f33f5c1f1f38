"""The monitoring pages of three servers with JetStream in a cluster: /raftz, /jsz, /healthz and the front page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.unit.monitor.conftest import FixedProcess, Site

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import LOG_FILE_SIZE, JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.member.member_node import MemberNode
from pyjs.monitor.router import Router
from pyjs.monitor.state import Monitored

WAIT_MS = 2000
CONSUMER = {"stream_name": "R", "config": {"durable_name": "C", "name": "C", "ack_policy": "explicit"}}


class Pages(Site):
    """The monitoring port of one server of the network."""

    def __init__(self, server: JetServer) -> None:
        self.log = server.log
        monitored = Monitored(server.node, server.options, FixedProcess(), server.node.started_at_ns)
        monitored.ready = True
        self.router = Router(monitored, server.net.clock, server.log)


class Trio:
    """Three servers with the stream R of three replicas, its consumer C, and the stream S of one replica."""

    def __init__(self, net: JetNet) -> None:
        self.net = net
        self.servers = net.trio()
        client = self.servers[0].client()
        body = {"name": "R", "subjects": ["r"], "num_replicas": 3}
        net.answers(client, "STREAM.CREATE.R", body, wait_ms=WAIT_MS)
        net.create(client, "S")
        net.ask(client, "CONSUMER.CREATE.R.C", CONSUMER)
        net.run(500 * NS_PER_MS)

    @property
    def leader(self) -> JetServer:
        """The server that is the leader of R."""
        return self.net.jet(self.net.ask(self.net.living()[0].client(), "STREAM.INFO.R")["cluster"]["leader"])

    @property
    def followers(self) -> list[JetServer]:
        """The servers that do not lead."""
        leader = self.leader
        return [server for server in self.servers if server is not leader]


@pytest.fixture
def trio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trio]:
    monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
    net = JetNet(tmp_path)
    yield Trio(net)
    net.stop()


def stream_of(page: Any, name: str) -> Any:
    (account,) = page["account_details"]
    return next(each for each in account["stream_detail"] if each["name"] == name)


def test_the_front_page_links_to_the_groups_where_there_are_any(trio: Trio, site: Site) -> None:
    assert b'href="/raftz"' in Pages(trio.servers[0]).ask("/").body
    assert b"raftz" not in site.ask("/").body
    answer = site.ask("/raftz")
    assert (answer.status, answer.body) == (404, b"No Raft nodes registered")


def test_raftz_shows_the_metadata_group_and_on_request_the_streams_of_an_account(trio: Trio) -> None:
    pages = Pages(trio.leader)
    ((account, groups),) = pages.json("/raftz").items()
    assert (account, list(groups)) == ("$SYS", ["_meta_"])
    meta = groups["_meta_"]
    assert (meta["size"], meta["quorum_needed"], len(meta["peers"])) == (3, 2, 2)

    ((name, group),) = pages.json("/raftz?acc=$G")["$G"].items()
    assert name.startswith("S-R3F-")
    assert (group["state"], group["leader"]) == ("LEADER", group["id"])
    assert group["leader_since"] > "2"
    assert group["applied"] == group["committed"] == group["pindex"] == group["wal"]["last_seq"] > 0
    assert group["pterm"] == group["term"] > 0
    assert {peer["last_replicated_index"] for peer in group["peers"].values()} == {group["pindex"]}
    assert {peer["name"] for peer in group["peers"].values()} == {each.name for each in trio.followers}
    assert pages.json(f"/raftz?acc=$G&group={name}") == {"$G": {name: group}}


def test_a_follower_names_the_leader_of_a_group(trio: Trio) -> None:
    (group,) = Pages(trio.followers[0]).json("/raftz?acc=$G")["$G"].values()
    leader = next(peer for peer, each in group["peers"].items() if each["name"] == trio.leader.name)
    assert (group["state"], group["leader"], group["voted_for"]) == ("FOLLOWER", leader, leader)
    assert all("last_replicated_index" not in peer for peer in group["peers"].values())
    assert "leader_since" not in group


def test_jsz_counts_the_groups_and_shows_each_stream_with_its_replicas(trio: Trio) -> None:
    page = Pages(trio.leader).json("/jsz?streams=1&consumers=1&raft=1")
    assert page["ha_assets"] == 2
    detail = stream_of(page, "R")
    assert detail["cluster"]["leader"] == trio.leader.name
    rows = detail["cluster"]["replicas"]
    assert [row["name"] for row in rows] == sorted(each.name for each in trio.followers)
    assert all(row["current"] and "lag" not in row and "offline" not in row for row in rows)
    (consumer,) = detail["consumer_detail"]
    assert consumer["cluster"]["replicas"] == rows
    assert detail["stream_raft_group"] == detail["cluster"]["raft_group"]
    group = {"name": "C", "raft_group": consumer["cluster"]["raft_group"]}
    assert detail["consumer_raft_groups"] == [group]


def test_jsz_shows_how_many_entries_a_lost_replica_lacks(trio: Trio) -> None:
    lost, leader = trio.followers[0], trio.leader
    trio.net.crash(lost.name)
    trio.net.run(500 * NS_PER_MS)
    trio.net.publish(leader, "r", 4)
    rows = stream_of(Pages(leader).json("/jsz?streams=1"), "R")["cluster"]["replicas"]
    row = next(each for each in rows if each["name"] == lost.name)
    assert (row["current"], row["offline"], row["lag"]) == (False, True, 4)
    assert row["active"] >= 500 * NS_PER_MS
    meta = Pages(leader).json("/jsz")["meta_cluster"]
    assert next(each for each in meta["replicas"] if each["name"] == lost.name)["offline"]


def test_jsz_of_the_leader_alone_is_refused_by_the_others(trio: Trio) -> None:
    leader = trio.net.leader()
    assert Pages(leader).json("/jsz?leader-only=1")["streams"] >= 1
    others = [server for server in trio.servers if server is not leader]
    assert "not leader" in Pages(others[0]).refused("/jsz?leader-only=1")


def test_jsz_leaves_out_streams_that_others_lead_on_request(trio: Trio) -> None:
    shown = [
        [each["name"] for each in page["account_details"][0].get("stream_detail", [])]
        for page in (Pages(each).json("/jsz?streams=1&stream-leader-only=1") for each in trio.servers)
    ]
    assert sorted(name for names in shown for name in names) == ["R", "S"]
    led = [Pages(each).json("/jsz?raft=1") for each in trio.servers]
    assert sum(page.get("streams_leader", 0) for page in led) == 2
    assert sum(page.get("consumers_leader", 0) for page in led) == 1


def test_a_healthy_cluster_is_healthy(trio: Trio) -> None:
    for server in trio.servers:
        for query in ("", "?js-meta-only=1", "?js-server-only=1", "?js-enabled-only=1"):
            assert Pages(server).json(f"/healthz{query}") == {"status": "ok"}
        assert Pages(server).json("/healthz?account=$G&stream=R&consumer=C") == {"status": "ok"}


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("account=X", 'JetStream account "X" not found'),
        ("account=$G&stream=X", 'JetStream stream "X" not found on account "$G"'),
        ("account=$G&stream=R&consumer=X", 'JetStream consumer "X" not found for stream "R" on account "$G"'),
    ],
)
def test_health_of_what_is_not_there_is_not_found(trio: Trio, query: str, error: str) -> None:
    assert Pages(trio.servers[0]).json(f"/healthz?{query}", 404) == {"status": "unavailable", "error": error}


def test_a_stream_on_another_server_is_not_found_here(trio: Trio) -> None:
    statuses = sorted(Pages(each).ask("/healthz?account=$G&stream=S").status for each in trio.servers)
    assert statuses == [200, 404, 404]


def test_a_server_without_a_majority_says_so(trio: Trio) -> None:
    last = trio.leader
    for server in trio.followers:
        trio.net.crash(server.name)
    trio.net.run(2000 * NS_PER_MS)
    answer = Pages(last).json("/healthz", 503)
    assert answer["error"] == "JetStream has not established contact with a meta leader"
    assert Pages(last).json("/healthz?js-enabled-only=1") == {"status": "ok"}
    assert Pages(last).json("/healthz?js-server-only=1") == {"status": "ok"}


def test_a_server_that_starts_again_is_well_when_it_has_all_messages(trio: Trio) -> None:
    net, name = trio.net, trio.followers[0].name
    client = trio.leader.client()
    net.crash(name)
    net.run(1000 * NS_PER_MS)
    for _ in range(20):
        client.send(b"PUB r 2\r\nhi\r\n" * 20)
        net.run(NS_PER_MS)
    server = net.begin(name)
    pages = Pages(server)
    net.run_until(lambda: pages.ask("/healthz").status == 200)
    assert server.node.jetstream is not None
    assert server.node.jetstream.accounts["$G"].streams["R"].store.last_seq == 400


def test_a_stream_without_a_leader_is_not_current(trio: Trio) -> None:
    client = trio.servers[0].client()
    body = {"name": "TWO", "subjects": ["two"], "num_replicas": 2}
    trio.net.answers(client, "STREAM.CREATE.TWO", body, wait_ms=WAIT_MS)
    info = trio.net.ask(client, "STREAM.INFO.TWO")["cluster"]
    stays, lost = info["leader"], info["replicas"][0]["name"]
    trio.net.crash(lost)
    trio.net.run(3000 * NS_PER_MS)
    pages = Pages(trio.net.jet(stays))
    error = "JetStream stream '$G > TWO' is not current: group node unhealthy"
    assert pages.json("/healthz", 503) == {"status": "unavailable", "error": error}
    assert pages.json("/healthz?account=$G&stream=TWO&details=1", 503)["errors"] == [
        {"type": "STREAM", "account": "$G", "stream": "TWO", "error": error}
    ]
    assert pages.json("/healthz?js-meta-only=1") == {"status": "ok"}
    cluster = stream_of(pages.json("/jsz?streams=1"), "TWO")["cluster"]
    assert "leader" not in cluster
    assert [row["name"] for row in cluster["replicas"]] == sorted([stays, lost])
    assert json.dumps(cluster)


def test_a_replica_is_not_current_before_the_leader_has_confirmed_its_messages(trio: Trio) -> None:
    follower = trio.followers[0]
    jetstream = follower.node.jetstream
    assert jetstream is not None
    assert jetstream.shared.replicated is not None
    (machine,) = jetstream.shared.replicated.machines()
    machine._ask_at_ns = (
        follower.node.turn_state.now + 2_000_000_000
    )  # the answer of the leader is outstanding
    answer = Pages(follower).ask("/healthz")
    assert answer.status == 503
    assert b"stream catching up" in answer.body
    trio.net.run(3_000 * NS_PER_MS)
    assert Pages(follower).ask("/healthz").status == 503  # asks the leader
    trio.net.run_until(lambda: Pages(follower).ask("/healthz").status == 200)

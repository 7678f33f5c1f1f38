"""The cluster as each of its servers sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.unit.monitor.conftest import FixedProcess, Site
from tests.unit.monitor.dashboard.conftest import Dash

from pyjs.config.options import Options


def test_a_server_alone_has_no_routes_and_no_metadata_group(dash: Dash) -> None:
    found = dash.view("cluster")

    assert (found["cluster"], found["routes"], found["meta"]) == ("", [], None)
    assert found["name"] == dash.node.server_name


def test_a_server_without_jetstream_has_none_either() -> None:
    assert Dash(Options()).view("cluster")["meta"] is None


if is_here():
    from tests.support.jetnet import LOG_FILE_SIZE, JetNet, JetServer

    from pyjs.base.clock import NS_PER_MS
    from pyjs.jetstream.member.member_node import MemberNode
    from pyjs.monitor.router import Router
    from pyjs.monitor.state import Monitored

    class Data(Site):
        """The dashboard's data about one server of the network."""

        def __init__(self, server: JetServer) -> None:
            self.log = server.log
            monitored = Monitored(server.node, server.options, FixedProcess(), server.node.started_at_ns)
            self.router = Router(monitored, server.net.clock, server.log)

        def view(self, target: str) -> Any:
            return self.json(f"/dashboard/data/{target}")

    @pytest.fixture
    def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JetNet]:
        monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
        made = JetNet(tmp_path)
        yield made
        made.stop()

    def test_replicas_are_shown_by_each_server_and_consumers_by_the_leader(net: JetNet) -> None:
        servers = net.trio()
        client = servers[0].client()
        net.answers(
            client, "STREAM.CREATE.R", {"name": "R", "subjects": ["r"], "num_replicas": 3}, wait_ms=2000
        )
        net.create(client, "S")
        config = {"durable_name": "C", "name": "C", "ack_policy": "explicit"}
        net.ask(client, "CONSUMER.CREATE.R.C", {"stream_name": "R", "config": config})
        net.run(500 * NS_PER_MS)
        leader = net.ask(client, "STREAM.INFO.R")["cluster"]["leader"]
        views = {server.node.server_name: Data(server) for server in servers}

        for name, data in views.items():
            (row,) = data.view("streams?replicated=true")["streams"]
            assert (row["name"], row["cluster"]["leader"], row["replicas"]) == ("R", leader, 3)
            assert all(replica["current"] for replica in row["cluster"]["replicas"])
            found = data.view("cluster")
            assert (found["name"], len(found["meta"]["replicas"])) == (name, 2)
            assert data.view("stream?acc=$G&stream=R")["cluster"]["leader"] == leader
            consumers = [row["name"] for row in data.view("consumers")["consumers"]]
            assert consumers == (["C"] if name == leader else [])
        consumer = views[leader].view("consumer?acc=$G&stream=R&consumer=C")
        assert json.dumps(consumer["info"]["cluster"]["leader"]) == json.dumps(leader)

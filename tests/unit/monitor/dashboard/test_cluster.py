"""The cluster as each of its servers sees it."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.unit.monitor.conftest import FixedProcess, Site, finish
from tests.unit.monitor.dashboard.conftest import Dash, posted

from pyjs.config.options import HttpLogin, Options


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
            self.monitored = Monitored(server.node, server.options, FixedProcess(), server.node.started_at_ns)
            self.server = server
            self.monitored.in_turns = self.in_turns
            self.router = Router(self.monitored, server.net.clock, server.log)

        def view(self, target: str) -> Any:
            return self.json(f"/dashboard/data/{target}")

        def in_turns(self, steps: Iterator[Any]) -> Generator[None, None, None]:
            self.server.node.turn_state.go_on(steps)
            self.server.net.run(500 * NS_PER_MS)
            yield

        def replay(self, stream: str) -> tuple[int, str]:
            """Ask for a replay, and return status and text of the answer."""
            self.monitored.options.monitoring.login = HttpLogin(token="t", replay=True)
            target = f"/dashboard/actions/replay?acc=$G&stream={stream}"
            answer = finish(self.router.answer(target, posted(b"{}")))
            return answer.status, answer.body.decode()

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

    def test_only_the_leader_of_a_stream_replays_its_letters(net: JetNet) -> None:
        servers = net.trio()
        client = servers[0].client()
        net.answers(
            client, "STREAM.CREATE.R", {"name": "R", "subjects": ["r"], "num_replicas": 3}, wait_ms=2000
        )
        net.create(client, "S")
        net.run(500 * NS_PER_MS)
        leader, only = (net.ask(client, f"STREAM.INFO.{name}")["cluster"]["leader"] for name in ("R", "S"))
        views = {server.node.server_name: Data(server) for server in servers}

        for name, data in views.items():
            if name != leader:
                text = f'this server does not lead the stream "R"; {leader} leads it'
                assert data.replay("R") == (409, f"{text}: open the dashboard of that server\n")
                found = data.view("dead_letters?acc=$G&stream=R")
                assert (found["is_leader"], found["leader"]) == (False, leader)
            if name != only:
                status, text = data.replay("S")
                assert (status, f"It is not on this server, but on {only}." in text) == (404, True)
        client.send(b"PUB r 0\r\n\r\n")
        net.run(500 * NS_PER_MS)
        found = '"replayed":0,"failed":0,"skipped":1,"next_seq":0'
        assert views[leader].replay("R") == (200, f'{{"stream":"R",{found}}}')
        assert views[only].view("dead_letters?acc=$G&stream=S")["is_leader"] is True

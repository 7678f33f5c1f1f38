"""Three servers with JetStream on a simulated network: their metadata, and the streams that follow it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import LOG_FILE_SIZE, TRIO, JetNet

from pyjs.jetstream.replication.member_node import MemberNode


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JetNet]:
    monkeypatch.setattr(MemberNode, "log_file_size", LOG_FILE_SIZE)
    net = JetNet(tmp_path)
    yield net
    net.stop()


def test_three_servers_agree_on_a_leader_and_on_who_they_are(net: JetNet) -> None:
    servers = net.trio()
    assert len({server.member.machine.leader for server in servers}) == 1
    for server in servers:
        assert sorted(each.name for each in server.member.machine.state.servers.values()) == [*TRIO]
        assert server.errors() == []


def test_streams_are_spread_over_the_servers_and_known_to_all(net: JetNet) -> None:
    servers = net.trio()
    clients = [server.client() for server in servers]
    for number in range(6):
        answer = net.create(clients[number % 3], f"S{number}")
        assert answer["did_create"], answer
    assert sorted(len(server.streams) for server in servers) == [2, 2, 2]
    for client in clients:
        assert net.ask(client, "STREAM.NAMES")["streams"] == [f"S{number}" for number in range(6)]
        listed = net.ask(client, "STREAM.LIST")["streams"]
        assert [each["config"]["name"] for each in listed] == [f"S{number}" for number in range(6)]
        assert net.ask(client, "STREAM.INFO.S3")["config"]["name"] == "S3"
        assert net.ask(client, "INFO")["streams"] == 6

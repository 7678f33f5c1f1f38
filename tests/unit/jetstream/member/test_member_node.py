"""Three servers with JetStream on a simulated network: their metadata, and the streams that they open accordingly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import TRIO, JetNet, JetServer
from tests.support.simnet import LONG_NS

from pyjs.base.clock import NS_PER_MS
from pyjs.base.nuid import short_hash
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.member import answering
from pyjs.jetstream.member.notes import Question, Reply


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


def test_creating_goes_on_after_the_leader_is_lost(net: JetNet) -> None:
    net.trio()
    lost = net.leader().name
    net.kill(lost)
    net.run(LONG_NS)  # until the others notice the failure
    client = net.living()[0].client()
    answers = net.answers(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}, wait_ms=2000)
    assert [answer.get("did_create") for answer in answers] == [True]


def test_streams_are_there_after_all_servers_started_again(net: JetNet) -> None:
    servers = net.trio()
    client = servers[0].client()
    for name in ("A", "B", "C", "D"):
        assert "error" not in net.create(client, name)
    assert net.ask(client, "STREAM.DELETE.D") == {
        "type": "io.nats.jetstream.api.v1.stream_delete_response",
        "success": True,
    }
    where = {server.name: server.streams for server in servers}
    for name in TRIO:
        net.kill(name).node.stop()
    for name in TRIO:
        net.begin(name)
    net.ready()
    assert {server.name: server.streams for server in net.living()} == where
    answer = net.ask(net.jet("c").client(), "STREAM.NAMES")
    assert answer["streams"] == ["A", "B", "C"]


def test_a_change_reaches_the_server_that_has_the_stream(net: JetNet) -> None:
    servers = net.trio()
    for server in servers:
        name = server.name.upper()
        client = server.client()
        net.create(client, name)
        body = {"name": name, "subjects": [name.lower()], "max_msgs": 7}
        for asked in servers:
            answer = net.ask(asked.client(), f"STREAM.UPDATE.{name}", body)
            assert answer["config"]["max_msgs"] == 7
            assert net.ask(client, f"STREAM.INFO.{name}")["config"]["max_msgs"] == 7


def test_each_request_has_one_answer(net: JetNet) -> None:
    servers = net.trio()
    net.create(servers[0].client(), "S")
    for server in servers:
        client = server.client()
        for subject, body in (
            ("STREAM.INFO.S", None),
            ("STREAM.INFO.NONE", None),
            ("STREAM.DELETE.NONE", None),
            ("STREAM.UPDATE.NONE", {"name": "NONE"}),
            ("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}),
            ("STREAM.CREATE.S", {"name": "S", "subjects": ["x"]}),
            ("STREAM.CREATE.T", {"name": "T", "subjects": ["s"]}),
            ("STREAM.PURGE.S", None),
            ("STREAM.MSG.GET.S", {"seq": 1}),
            ("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": {"durable_name": "D", "name": "D"}}),
            ("CONSUMER.INFO.S.D", None),
            ("CONSUMER.INFO.S.NONE", None),
            ("CONSUMER.NAMES.S", None),
            ("CONSUMER.NAMES.NONE", None),
        ):
            assert len(net.answers(client, subject, body)) == 1, subject


def test_without_a_majority_requests_are_refused_after_a_while(net: JetNet) -> None:
    net.trio()
    for _ in range(2):
        net.kill(net.leader().name)
        net.run(LONG_NS)
    (last,) = net.living()
    answers = net.answers(last.client(), "STREAM.NAMES", wait_ms=6000)
    assert [answer["error"]["err_code"] for answer in answers] == [10008]


def test_a_server_that_waits_for_the_others_holds_requests_at_first(net: JetNet) -> None:
    client = net.begin("a").client()
    assert net.answers(client, "STREAM.NAMES", wait_ms=9000) == []
    answers = net.answers(client, "STREAM.LIST", wait_ms=6000)
    assert [answer["error"]["err_code"] for answer in answers] == [10008]


def test_a_server_holds_a_bounded_number_of_requests(net: JetNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "HELD_MAX", 2)
    net.trio()
    for _ in range(2):
        net.kill(net.leader().name)
        net.run(LONG_NS)
    (last,) = net.living()
    net.run_until(lambda: not last.member.machine.leader)
    client = last.client()
    assert net.answers(client, "STREAM.NAMES") == []
    assert net.answers(client, "STREAM.NAMES") == []
    (refused,) = net.answers(client, "STREAM.NAMES")
    assert refused["error"]["err_code"] == 10008
    net.run(6000 * NS_PER_MS)
    assert net.answers(client, "STREAM.NAMES", wait_ms=50) == []  # there is room for requests again


def test_a_server_holds_a_bounded_number_of_bytes(net: JetNet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "HELD_SIZE", 2 << 20)
    body = {"subject": "x" * 1_000_000}
    client = net.begin("a").client()
    for _ in range(2):
        assert net.answers(client, "STREAM.NAMES", body) == []
    (refused,) = net.answers(client, "STREAM.NAMES", body)
    assert refused["error"]["err_code"] == 10008
    assert refused["error"]["description"].endswith("too many requests wait for a leader")
    assert net.answers(client, "STREAM.NAMES") == []  # a small request still fits
    net.run(10_000 * NS_PER_MS)
    client.frames()
    assert net.answers(client, "STREAM.NAMES", body, wait_ms=50) == []  # there is room for requests again


@pytest.mark.parametrize("subject", ["STREAM.INFO.R", "STREAM.INFO.ONE", "STREAM.NAMES", "INFO"])
@pytest.mark.parametrize("name", TRIO)
def test_a_request_before_the_routes_of_its_server_has_one_answer(
    net: JetNet, name: str, subject: str
) -> None:
    servers = net.trio()
    net.answers(servers[0].client(), "STREAM.CREATE.R", {"name": "R", "num_replicas": 3}, wait_ms=2000)
    net.answers(servers[0].client(), "STREAM.CREATE.ONE", {"name": "ONE"}, wait_ms=2000)
    net.crash(name)
    net.run(1000 * NS_PER_MS)
    answers = net.answers(net.begin(name).client(), subject, wait_ms=3000)
    assert len(answers) == 1
    assert "error" not in answers[0]


@pytest.mark.parametrize("name", TRIO)
def test_the_first_request_of_a_new_cluster_may_come_before_its_routes(net: JetNet, name: str) -> None:
    clients = {each: net.begin(each).client() for each in TRIO}
    answers = net.answers(clients[name], "STREAM.CREATE.R", {"name": "R", "num_replicas": 3}, wait_ms=6000)
    assert [answer["did_create"] for answer in answers] == [True]


def test_a_leader_without_followers_refuses_too(net: JetNet) -> None:
    net.trio()
    leader = net.leader()
    for name in TRIO:
        if name != leader.name:
            net.kill(name).node.stop()
    net.run(LONG_NS)
    client = leader.client()
    # steps down; waits for another leader; there has been no leader for long
    for wait_ms in (2000, 4000, 200):
        answers = net.answers(client, "STREAM.NAMES", wait_ms=wait_ms)
        assert [answer["error"]["err_code"] for answer in answers] == [10008]


def test_a_server_that_lost_its_store_comes_back_as_another_member(net: JetNet) -> None:
    net.trio()
    lost = next(name for name in TRIO if name != net.leader().name)
    net.kill(lost).node.stop()
    shutil.rmtree(net.directory / lost)
    net.begin(lost)
    net.ready()
    leader = net.leader()
    assert leader.member.machine.state.servers[net.jet(lost).member.node].incarnation == 2
    net.run_until(lambda: voters(leader) == 3)
    net.kill(leader.name)
    net.run(LONG_NS)
    assert net.create(net.jet(lost).client(), "S")["did_create"]


def test_the_leader_of_the_metadata_steps_down_for_the_wanted_server(net: JetNet) -> None:
    net.trio()
    first = net.leader()
    wanted = next(server for server in net.living() if server is not first)
    steps = first.member.operators.step_down(json.dumps({"placement": {"preferred": wanted.name}}).encode())
    assert finish(steps) == {"success": True}
    first.wake()
    net.run_until(lambda: wanted.member.machine.leads)
    assert finish(first.member.operators.step_down(b"")) is None


def test_nobody_steps_down_for_an_unknown_server(net: JetNet) -> None:
    net.trio()
    steps = net.leader().member.operators.step_down(b'{"placement":{"preferred":"zz"}}')
    with pytest.raises(ApiError, match="preferred server"):
        finish(steps)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_removed_server_leaves_the_metadata(net: JetNet, by_id: bool) -> None:
    net.trio()
    leader = net.leader()
    lost = next(name for name in TRIO if name != leader.name)
    net.kill(lost).node.stop()
    body = {"peer": "", "peer_id": short_hash(lost)} if by_id else {"peer": lost}
    leader.node.turn_state.go_on(leader.member.operators.remove_server(json.dumps(body).encode()))
    leader.wake()
    net.run_until(lambda: len(leader.member.machine.state.servers) == 2)
    net.run_until(lambda: voters(leader) == 2)


def test_streams_of_a_purged_account_are_removed(net: JetNet) -> None:
    servers = net.trio()
    for name in ("A", "B", "C"):
        net.create(servers[0].client(), name)
    leader = net.leader()
    leader.node.turn_state.go_on(leader.member.operators.purge_account("$G"))
    leader.wake()
    net.run_until(lambda: not any(server.streams for server in servers))
    assert net.ask(servers[1].client(), "STREAM.NAMES")["streams"] is None


def finish(steps: Generator[Any, None, Any]) -> Any:
    """Run steps that never wait; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def voters(server: JetServer) -> int:
    """Return the number of voters in the metadata group, as this server sees it."""
    status = server.member.meta_status()
    return 0 if status is None else sum(each.is_voter for each in status.replicas)


def test_a_server_whose_log_is_gone_comes_back_as_another_member_and_keeps_its_streams(net: JetNet) -> None:
    servers = net.trio()
    for name in ("A", "B", "C"):
        net.create(servers[0].client(), name)
    lost = next(name for name in TRIO if name != net.leader().name)
    streams = net.jet(lost).streams
    net.kill(lost).node.stop()
    shutil.rmtree(net.directory / lost / ".raft")
    net.begin(lost)
    net.ready()
    leader = net.leader()
    net.run_until(lambda: voters(leader) == 3)
    assert leader.member.machine.state.servers[net.jet(lost).member.node].incarnation == 2
    assert net.jet(lost).streams == streams != []


def test_a_replicated_stream_is_made_published_to_and_read_through_any_server(net: JetNet) -> None:
    servers = net.trio()
    answers = net.answers(
        servers[2].client(),
        "STREAM.CREATE.R",
        {"name": "R", "subjects": ["r.>"], "num_replicas": 3},
        wait_ms=2000,
    )
    assert [answer.get("did_create") for answer in answers] == [True]
    assert len(answers[0]["cluster"]["replicas"]) == 2
    for at, server in enumerate(servers):
        assert net.publish(server, "r.x") == list(range(5 * at + 1, 5 * at + 6))
    for server in servers:
        client = server.client()
        info = net.ask(client, "STREAM.INFO.R")
        assert info["state"]["messages"] == 15
        assert net.ask(client, "STREAM.MSG.GET.R", {"seq": 7})["message"]["subject"] == "r.x"
        assert [each["state"]["messages"] for each in net.ask(client, "STREAM.LIST")["streams"]] == [15]


def test_a_replicated_stream_outlives_its_leader_and_new_starts(net: JetNet) -> None:
    servers = net.trio()
    net.answers(
        servers[0].client(),
        "STREAM.CREATE.R",
        {"name": "R", "subjects": ["r.>"], "num_replicas": 3},
        wait_ms=2000,
    )
    assert net.publish(servers[0], "r.x") == [1, 2, 3, 4, 5]
    lost = net.ask(servers[0].client(), "STREAM.INFO.R")["cluster"]["leader"]
    net.kill(lost).node.stop()
    net.run(1000 * NS_PER_MS)
    assert net.publish(net.living()[0], "r.x") == [6, 7, 8, 9, 10]
    for server in net.living():
        net.kill(server.name).node.stop()
    for name in TRIO:
        net.begin(name)
    net.ready()
    net.run(1000 * NS_PER_MS)
    assert net.ask(net.jet("a").client(), "STREAM.INFO.R")["state"]["messages"] == 10
    assert net.publish(net.jet("b"), "r.x", 1) == [11]


def test_a_replicated_stream_is_changed_and_deleted(net: JetNet) -> None:
    servers = net.trio()
    body = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    for at, server in enumerate(servers):
        answers = net.answers(server.client(), "STREAM.UPDATE.R", {**body, "max_msgs": at + 5}, wait_ms=1000)
        assert [answer["config"]["max_msgs"] for answer in answers] == [at + 5]
    assert net.answers(servers[1].client(), "STREAM.DELETE.R", wait_ms=1000)[0]["success"]
    net.run(LONG_NS)
    assert not any(server.streams for server in servers)


def test_a_stream_gets_more_replicas_with_everything_it_has(net: JetNet) -> None:
    servers = net.trio()
    net.create(servers[0].client(), "S")
    assert net.publish(servers[1], "s") == [1, 2, 3, 4, 5]
    body = {"name": "S", "subjects": ["s"], "num_replicas": 3}
    answers = net.answers(servers[1].client(), "STREAM.UPDATE.S", body, wait_ms=3000)
    assert [answer["config"]["num_replicas"] for answer in answers] == [3]
    net.run_until(lambda: all(server.streams == ["S"] for server in servers))
    net.run(1000 * NS_PER_MS)
    assert net.publish(servers[2], "s", 1) == [6]
    net.crash(net.ask(servers[0].client(), "STREAM.INFO.S")["cluster"]["leader"])
    net.run(1000 * NS_PER_MS)
    assert net.publish(net.living()[0], "s", 1) == [7]


def test_the_leader_of_a_stream_steps_down(net: JetNet) -> None:
    servers = net.trio()
    body = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    client = servers[1].client()
    first = net.ask(client, "STREAM.INFO.R")["cluster"]["leader"]
    wanted = next(name for name in TRIO if name != first)
    answer = net.ask(client, "STREAM.LEADER.STEPDOWN.R", {"placement": {"preferred": wanted}})
    assert answer["success"]
    net.run(500 * NS_PER_MS)
    assert net.ask(client, "STREAM.INFO.R")["cluster"]["leader"] == wanted
    refused = net.ask(client, "STREAM.LEADER.STEPDOWN.R", {"placement": {"preferred": wanted}})
    assert refused["error"]["err_code"] == 10005


def test_streams_of_all_servers_are_led_by_different_ones(net: JetNet) -> None:
    client = net.trio()[0].client()
    leaders = set()
    for name in ("A", "B", "C"):
        body = {"name": name, "subjects": [name], "num_replicas": 3}
        (answer,) = net.answers(client, f"STREAM.CREATE.{name}", body, wait_ms=1000)
        leaders.add(answer["cluster"]["leader"])
    assert leaders == {*TRIO}


def test_the_only_replica_stays_the_leader(net: JetNet) -> None:
    client = net.trio()[0].client()
    net.create(client, "S")
    assert net.ask(client, "STREAM.LEADER.STEPDOWN.S")["success"]
    assert net.ask(client, "CONSUMER.LEADER.STEPDOWN.S.NONE")["error"]["err_code"] == 10014
    assert net.ask(client, "STREAM.LEADER.STEPDOWN.NONE")["error"]["err_code"] == 10059


def test_a_replica_is_added_and_removed(net: JetNet) -> None:
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 2}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    net.publish(servers[0], "r.x")
    net.answers(servers[1].client(), "STREAM.UPDATE.R", {**body, "num_replicas": 3}, wait_ms=2000)
    net.run_until(lambda: all(server.streams == ["R"] for server in servers))
    net.run(2000 * NS_PER_MS)
    assert net.publish(servers[2], "r.x", 1) == [6]
    net.answers(servers[1].client(), "STREAM.UPDATE.R", body, wait_ms=2000)
    net.run_until(lambda: sum(server.streams == ["R"] for server in servers) == 2)
    assert net.publish(servers[2], "r.x", 1) == [7]
    assert all(server.errors() == [] for server in servers)


def test_a_removed_server_leaves_the_groups_of_streams(net: JetNet) -> None:
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    net.publish(servers[0], "r.x")
    lost = next(server for server in servers if server is not net.leader())
    net.crash(lost.name)
    net.run(500 * NS_PER_MS)
    leader = net.leader()
    request = json.dumps({"peer": lost.name}).encode()
    leader.node.turn_state.go_on(leader.member.operators.remove_server(request))
    leader.wake()
    net.run(2000 * NS_PER_MS)
    info = net.ask(leader.client(), "STREAM.INFO.R")
    assert (info["state"]["messages"], len(info["cluster"]["replicas"])) == (5, 1)
    assert net.publish(leader, "r.x", 1) == [6]


def test_the_streams_of_an_evacuated_server_move(net: JetNet) -> None:
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 2}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    net.publish(servers[0], "r.x")
    going = next(server for server in servers if server.streams and server is not net.leader())
    leader = net.leader()
    request = json.dumps({"peer": going.name}).encode()
    leader.node.turn_state.go_on(leader.member.operators.evacuate_server(request))
    leader.wake()
    net.run_until(lambda: not going.streams)
    net.run(1000 * NS_PER_MS)
    assert net.ask(going.client(), "STREAM.INFO.R")["state"]["messages"] == 5
    assert net.publish(going, "r.x", 1) == [6]


def evacuate(net: JetNet, name: str) -> None:
    leader = net.leader()
    request = json.dumps({"peer": name}).encode()
    leader.node.turn_state.go_on(leader.member.operators.evacuate_server(request))
    leader.wake()
    net.run(3000 * NS_PER_MS)


def test_a_stream_that_cannot_move_keeps_both_replicas_and_its_messages(net: JetNet) -> None:
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 2}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    net.publish(servers[0], "r.x")
    there = [server.name for server in servers if server.streams]
    third = next(name for name in TRIO if name not in there)
    evacuate(net, third)
    evacuate(net, there[1])
    assert [name for name in TRIO if net.jet(name).streams] == there
    net.crash(there[0])
    net.begin(there[0])
    net.run(4000 * NS_PER_MS)
    assert net.ask(net.jet(third).client(), "STREAM.INFO.R")["state"]["messages"] == 5


def test_the_messages_of_a_single_replica_outlive_an_evacuation(net: JetNet) -> None:
    servers = net.trio()
    net.create(servers[0].client(), "S")
    net.publish(servers[0], "s")
    evacuate(net, next(server.name for server in servers if server.streams))
    assert net.ask(servers[0].client(), "STREAM.INFO.S")["state"]["messages"] == 5


@pytest.mark.parametrize("data", [b"{", b"[]", b""])
def test_a_damaged_answer_is_left_out_of_a_list(
    net: JetNet, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    servers = net.trio()
    for name in ("A", "B", "C"):
        net.create(servers[0].client(), name)
    leader = net.leader()
    bad, good = (server for server in servers if server is not leader)

    def answer(node: int, question: Question) -> None:
        bad.member.tell(node, Reply(question.number, data))

    monkeypatch.setattr(bad.member.questions, "asked", answer)
    listed = net.ask(servers[0].client(), "STREAM.LIST")
    assert listed["missing"] == bad.streams
    assert [each["config"]["name"] for each in listed["streams"]] == sorted(leader.streams + good.streams)


def test_metadata_that_was_closed_because_of_damage_is_reported_without_replicas(net: JetNet) -> None:
    member = net.trio()[0].member
    assert member.consensus is not None
    member.consensus.close(member.meta_group)
    assert member.meta_status() is None
    assert member.status_of(7) is None
    assert "replicas" not in member.reports.meta()


def test_a_server_that_is_not_ready_answers_nothing_that_another_one_answers(net: JetNet) -> None:
    net.trio()
    late = next(name for name in TRIO if name != net.leader().name)
    net.crash(late)
    net.run(500 * NS_PER_MS)
    net.create(net.leader().client(), "S")
    server = net.begin(late)
    client = server.client()
    net.run_until(net.whole)
    answers = net.answers(client, "STREAM.NAMES", wait_ms=6000)
    assert [answer["streams"] for answer in answers] == [["S"]]


def test_a_stream_that_is_wanted_right_after_the_start_waits_for_the_servers(net: JetNet) -> None:
    servers = [net.begin(name) for name in TRIO]
    net.leader()
    body = {"name": "R", "subjects": ["r"], "num_replicas": 3}
    answers = net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=4000)
    assert [answer.get("did_create") for answer in answers] == [True]


def test_a_server_whose_metadata_log_was_dropped_joins_as_another_member(net: JetNet) -> None:
    net.trio()
    name = next(each.name for each in net.living() if not each.member.machine.leads)
    member = net.jet(name).member
    assert member.group is not None
    assert member.consensus is not None
    node, group, consensus = member.node, member.group.group, member.consensus
    consensus._lose(consensus._members[group], "too large")
    for _ in range(2):  # the second turn writes the change to the disk
        consensus._round.turn()
    net.crash(name)

    again = net.begin(name)
    net.run_until(lambda: again.member.is_caught_up and again.member.machine.leader != 0)

    assert again.member.machine.state.servers[node].incarnation == 2
    assert any("joins again as another member" in text for text in again.errors())


@pytest.mark.parametrize("leads", [False, True])
def test_a_server_whose_metadata_log_is_dropped_joins_again_at_once(net: JetNet, leads: bool) -> None:
    net.trio()
    name = next(each.name for each in net.living() if each.member.machine.leads == leads)
    member = net.jet(name).member
    net.create(net.leader().client(), "S")
    assert member.group is not None
    assert member.consensus is not None
    member.consensus._lose(member.consensus._members[member.group.group], "damaged")
    member.consensus._round.mark()

    net.run_until(lambda: member.machine.state.servers[member.node].incarnation == 2)
    net.run_until(lambda: member.machine.leader != 0 and member.machine.state.stream("$G", "S") is not None)

    assert sum("joins again as another member" in text for text in net.jet(name).errors()) == 1
    net.create(net.leader().client(), "T")
    net.run_until(lambda: member.machine.state.stream("$G", "T") is not None)


def test_a_server_whose_metadata_log_is_dropped_hands_over_the_streams_that_it_leads(net: JetNet) -> None:
    servers = net.trio()
    client = servers[0].client()
    for number in range(3):  # one per server
        net.create(client, f"S{number}", num_replicas=3)
    old = next(each for each in net.living() if not each.member.machine.leads)
    led = [each.stream.name for each in old.member.replicated.machines() if each.leads]
    assert led
    assert old.member.group is not None
    old.member.consensus._lose(old.member.consensus._members[old.member.group.group], "damaged")
    old.member.consensus._round.mark()
    net.run(20_000 * NS_PER_MS)

    assert [net.publish(servers[0], name.lower(), 1) for name in led] == [[1]] * len(led)


@pytest.mark.parametrize("seed", range(4))  # different servers become the leader
def test_a_request_waits_for_the_leader_when_servers_come_late(net: JetNet, seed: int) -> None:
    net.rng.seed(seed)
    client = net.begin("a").client()
    net.run(20_000 * NS_PER_MS)
    net.begin("b")
    net.run(5 * NS_PER_MS)
    answers = net.answers(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}, wait_ms=1000)
    assert answers == []
    net.begin("c")
    net.run(3000 * NS_PER_MS)
    assert net.ask(net.jet("c").client(), "STREAM.NAMES")["streams"] == ["S"]

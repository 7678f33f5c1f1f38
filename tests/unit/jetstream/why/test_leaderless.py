"""A stream or a consumer without a leader: one server answers, with the servers that are away and the quorum."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet
from tests.support.simnet import LONG_NS

from pyjs.base.clock import NS_PER_S
from pyjs.jetstream.member import questions
from pyjs.jetstream.why.leaderless import why_leaderless

SILENT_NS = 2 * NS_PER_S  # after which a server that does not answer is offline
WAIT_MS = 3000  # more than a request about a stream without a leader waits


@pytest.fixture
def net(tmp_path: Path) -> Iterator[JetNet]:
    made = JetNet(tmp_path)
    made.trio()
    yield made
    for name in list(made.servers):
        made.kill(name)


def create(net: JetNet, replicas: int = 3, through: str = "a") -> None:
    client = net.jet(through).client()
    assert "config" in net.create(client, "S", num_replicas=replicas)
    config = {"durable_name": "C", "ack_policy": "explicit"}
    assert "config" in net.ask(client, "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    net.run(LONG_NS)


def why(net: JetNet, through: str, subject: str = "PYJS.WHY.S") -> dict[str, Any]:
    """Return the only answer."""
    (answer,) = net.answers(net.jet(through).client(), subject, wait_ms=WAIT_MS)
    return answer


def kinds(answer: dict[str, Any]) -> list[str]:
    return [reason["kind"] for reason in answer["reasons"]]


def holder(net: JetNet) -> str:
    """Return the server of the stream with one replica."""
    return next(server.name for server in net.living() if "S" in server.streams)


def test_the_last_of_three_servers_names_those_that_are_away(net: JetNet) -> None:
    create(net)
    for name in ("b", "c"):
        net.crash(name)
    net.run(SILENT_NS)

    answer = why(net, "a")
    assert (answer["type"], answer["accepts"]) == ("io.pyjs.api.v1.why_response", False)
    reason, metadata = answer["reasons"]
    assert (reason["kind"], reason["reachable"], reason["quorum"]) == ("no_leader", 1, 2)
    assert reason["text"].startswith(
        "No replica leads it: 1 of its 3 replicas can be reached, and 2 must be. Offline: b (for "
    )
    assert [(row["name"], row["offline"]) for row in reason["replicas"]] == [
        ("a", False),
        ("b", True),
        ("c", True),
    ]
    assert metadata["text"].startswith(
        "The metadata of the cluster has no leader: 1 of 3 servers can be reached, and 2 must be."
    )
    assert metadata["stops"] is False


def test_a_consumer_without_a_leader_does_not_deliver(net: JetNet) -> None:
    create(net)
    for name in ("b", "c"):
        net.crash(name)
    net.run(SILENT_NS)

    answer = why(net, "a", "PYJS.WHY.S.C")
    assert (answer["stream"], answer["consumer"], answer["delivers"]) == ("S", "C", False)
    assert kinds(answer) == ["no_leader", "no_meta_leader"]


def test_the_leader_of_the_metadata_need_not_lead_the_stream(net: JetNet) -> None:
    create(net, replicas=1)
    lost = holder(net)
    net.crash(lost)
    net.run(SILENT_NS)

    for server in net.living():
        (reason,) = why(net, server.name)["reasons"]
        assert reason["kind"] == "no_leader"
        assert reason["text"].startswith(f"Its only replica is on {lost}, which is offline (for ")
        assert reason["text"].endswith("Start that server.")


def test_a_leader_that_appears_answers_itself(net: JetNet) -> None:
    create(net)
    net.ready()
    first = next(server for server in net.living() if leads(net, server.name))
    net.crash(first.name)

    for server in net.living():
        assert "error" not in why(net, server.name)
    assert sum(leads(net, server.name) for server in net.living()) == 1
    for server in net.living():
        assert why(net, server.name)["accepts"] is True


def test_a_leader_that_is_cut_off_does_not_answer_as_if_it_led(net: JetNet) -> None:
    create(net)
    first = next(server for server in net.living() if leads(net, server.name))
    others = [server.name for server in net.living() if server is not first]
    for other in others:
        net.cut(first.name, other)

    answer = why(net, first.name)
    assert kinds(answer)[0] == "no_leader"
    assert why(net, others[0])["accepts"] is True


def test_an_unknown_stream_is_refused_once(net: JetNet) -> None:
    for server in net.living():
        assert why(net, server.name, "PYJS.WHY.NONE")["error"]["err_code"] == 10059


def test_without_metadata_an_unknown_stream_may_exist(net: JetNet) -> None:
    for name in ("b", "c"):
        net.crash(name)
    net.run(SILENT_NS)

    answer = why(net, "a", "PYJS.WHY.NONE")
    (reason,) = answer["reasons"]
    assert (reason["kind"], reason["stops"]) == ("no_meta_leader", True)
    assert reason["text"].endswith("this server does not know whether the stream exists.")


def test_replicas_that_wait_or_lag_are_named(net: JetNet) -> None:
    create(net)
    member = net.jet("a").member
    assigned = member.machine.state.stream("$G", "S")
    assert assigned is not None
    views = [
        {"node": member.node, "last": 120, "leader": 0, "cause": ""},
        {"node": net.jet("b").member.node, "last": 20, "leader": 0, "cause": "stream catching up"},
    ]

    text = why_leaderless(member, assigned, views).text
    assert text.startswith(
        "No replica leads it, although 3 of its 3 replicas can be reached: an election is under way."
    )
    assert text.endswith(" Not current: b (stream catching up, 100 entries behind).")


def test_an_older_server_answers_otherwise_and_counts_as_silent(
    net: JetNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.create(net.jet("a").client(), "node", num_replicas=3)
    net.run(LONG_NS)
    monkeypatch.setattr(questions, "view_of", lambda js, name: {name: {"state": {}}})
    for name in ("b", "c"):
        net.crash(name)
    net.run(SILENT_NS)

    assert kinds(why(net, "a", "PYJS.WHY.node")) == ["no_leader", "no_meta_leader"]


def test_many_requests_are_answered_in_turn_or_refused(net: JetNet) -> None:
    create(net)
    for name in ("b", "c"):
        net.crash(name)
    net.run(SILENT_NS)
    client = net.jet("a").client()
    client.send(b"SUB r.> 1\r\n" + b"".join(b"PUB $JS.API.PYJS.WHY.S r.%d 0\r\n\r\n" % n for n in range(200)))
    net.run(2 * NS_PER_S)

    answers = [frame.payload for frame in client.frames() if frame.subject.startswith(b"r.")]
    assert len(answers) == 200
    assert sum(b"too many requests wait for a leader" in each for each in answers) == 200 - 64


def leads(net: JetNet, name: str) -> bool:
    node = net.jet(name).node
    assert node.jetstream is not None
    js = node.jetstream.accounts["$G"]
    replicated = js.shared.replicated
    assert replicated is not None
    return replicated.leads(js.streams["S"])

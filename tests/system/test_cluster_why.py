"""Streams without a leader on three real servers: the reason by the API at every server, and on /whyz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import our_command

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

pytestmark = pytest.mark.timeout(120)  # seconds: starts of servers, on a busy machine
JETSTREAM = 'jetstream { store_dir: "<<store>>", max_file_store: 1GB }'


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServers]:
    with three(our_command(), tmp_path_factory.mktemp("why"), JETSTREAM) as running:
        for name in NAMES:
            running.wait_healthy(name)
        yield running


def why(servers: ThreeServers, through: str, subject: str, kind: str) -> dict[str, Any]:
    """Return the first reason, once it is of a kind: a lost server is noticed after some time."""

    def is_found(answer: dict[str, Any]) -> bool:
        return bool(answer.get("reasons")) and answer["reasons"][0]["kind"] == kind

    answer: dict[str, Any] = Asker(servers.client(through)).until(f"$JS.API.PYJS.WHY.{subject}", is_found)
    return dict(answer["reasons"][0])


def test_the_servers_that_are_away_are_named_at_every_server(servers: ThreeServers) -> None:
    asker = Asker(servers.client("a"))
    for name, replicas in (("R", 3), ("ONE", 1)):
        config = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas}
        asker.until(f"$JS.API.STREAM.CREATE.{name}", lambda answer: "config" in answer, config)
    consumer = {"stream_name": "R", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    asker.until("$JS.API.CONSUMER.CREATE.R.C", lambda answer: "config" in answer, consumer)
    info = asker.until("$JS.API.STREAM.INFO.ONE", lambda answer: "leader" in answer.get("cluster", {}))
    for name in NAMES:  # wherever the leader is
        assert Asker(servers.client(name)).until("$JS.API.PYJS.WHY.R", lambda answer: answer["accepts"])

    servers.release()
    first = info["cluster"]["leader"]
    servers.server(first).kill()
    left = [name for name in NAMES if name != first]
    for name in left:
        reason = why(servers, name, "ONE", "no_leader")
        assert reason["text"].startswith(f"Its only replica is on {first}, which is offline (for ")
        page = servers.wait_page(name, "/whyz?stream=ONE", lambda page: page.get("reasons"))
        assert page["reasons"][0]["text"].startswith(f"Its only replica is on {first}, which is offline")

    second, last = left
    servers.release()
    servers.server(second).kill()
    for subject in ("R", "R.C"):
        reason = why(servers, last, subject, "no_leader")
        assert (reason["reachable"], reason["quorum"]) == (1, 2)
        assert f"Offline: {min(first, second)} (for " in reason["text"]
        assert {row["name"]: row["offline"] for row in reason["replicas"]} == {
            first: True,
            second: True,
            last: False,
        }
    for query in ("stream=R", "stream=R&consumer=C"):
        (reason,) = servers.page(last, f"/whyz?{query}")["reasons"]
        assert (reason["kind"], reason["reachable"]) == ("no_leader", 1)

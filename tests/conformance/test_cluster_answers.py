"""The same requests to three nats-servers and to three of ours: the same answers, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from raft.tests.conftest import is_here
from tests.conformance.harness.asker import Asker
from tests.conformance.harness.both import needs_peer
from tests.conformance.harness.cluster import NAMES, ThreeServers, three
from tests.conformance.harness.process import our_command, peer_command

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)
pytestmark = needs_peer

COMMON = """
jetstream { store_dir: "<<store>>", max_file_store: 1GB, max_memory_store: 100MB }
accounts {
    A { users: [{user: a, password: a}], jetstream: enabled }
    SYS { users: [{user: s, password: s}] }
}
no_auth_user: a
system_account: SYS
"""
S: dict[str, object] = {"name": "S", "subjects": ["s.>"]}
R: dict[str, object] = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}
CONSUMER = {"stream_name": "S", "config": {"name": "D", "durable_name": "D", "ack_policy": "explicit"}}
# Subject after $JS.API, body; in this order.
REQUESTS: list[tuple[str, object]] = [
    ("STREAM.NAMES", None),
    ("STREAM.LIST", None),
    ("STREAM.CREATE.S", S),
    ("STREAM.CREATE.S", S),
    ("STREAM.CREATE.R", R),
    ("STREAM.CREATE.S", {**S, "max_msgs": 9}),
    ("STREAM.CREATE.T", {"name": "T", "subjects": ["s.x"]}),
    ("STREAM.CREATE.T", {"name": "U"}),
    ("STREAM.CREATE.T", {"name": "T", "num_replicas": 5}),
    ("STREAM.UPDATE.S", {**S, "max_msgs": 5}),
    ("STREAM.UPDATE.R", {**R, "max_msgs": 5}),
    ("STREAM.UPDATE.T", {"name": "T"}),
    ("STREAM.INFO.S", None),
    ("STREAM.INFO.R", None),
    ("STREAM.INFO.T", None),
    ("STREAM.NAMES", None),
    ("STREAM.LIST", None),
    ("INFO", None),
    ("CONSUMER.CREATE.S.D", CONSUMER),
    ("CONSUMER.INFO.S.D", None),
    ("CONSUMER.LIST.S", None),
    ("CONSUMER.NAMES.S", None),
    ("CONSUMER.INFO.S.X", None),
    ("CONSUMER.INFO.T.X", None),
    ("STREAM.PURGE.S", None),
    ("STREAM.MSG.GET.S", {"seq": 1}),
    ("STREAM.LEADER.STEPDOWN.S", None),
    ("STREAM.PEER.REMOVE.S", {"peer": "zz"}),
    ("STREAM.PEER.REMOVE.R", {"peer": "zz"}),
    ("STREAM.PEER.REMOVE.R", {"peer": "a"}),
    ("STREAM.PEER.REMOVE.R", None),
    ("STREAM.PEER.REMOVE.T", {"peer": "a"}),
    ("CONSUMER.LEADER.STEPDOWN.S.D", None),
    ("CONSUMER.DELETE.S.D", None),
    ("STREAM.DELETE.S", None),
    ("STREAM.DELETE.R", None),
    ("STREAM.DELETE.S", None),
]
# The same as the system account.
OF_OPERATORS: list[tuple[str, object]] = [
    ("SERVER.REMOVE", {"peer": "zz"}),
    ("SERVER.REMOVE", None),
    ("SERVER.EVACUATE", {"peer": "zz"}),
    ("SERVER.EVACUATE", None),
    ("ACCOUNT.PURGE.B", None),
    ("META.LEADER.STEPDOWN", {"placement": {"preferred": "zz"}}),
    ("META.LEADER.STEPDOWN", None),
]
VARIED = {"created", "ts", "leader_since", "raft_group", "leader", "total", "errors"}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ThreeServers]]:
    """Both clusters, each with a leader that all of its servers know."""
    peer = peer_command()
    assert peer is not None
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("PYJS_UNFINISHED_CLUSTER", "1")
        commands = {"peer": peer, "ours": our_command()}
        yield [
            stack.enter_context(three(command, tmp_path_factory.mktemp(name), COMMON))
            for name, command in commands.items()
        ]


def ready(servers: ThreeServers) -> None:
    for name in NAMES:
        servers.wait_page(name, "/jsz", is_led)
        servers.wait_healthy(name)


def is_led(page: Any) -> bool:
    meta = page.get("meta_cluster", {})
    return bool(meta.get("leader")) and meta["cluster_size"] == len(NAMES)


def masked(value: object) -> object:
    """Return an answer without what differs from run to run; the names of fields and their order stay."""
    if isinstance(value, dict):
        return [
            (key, "*" if key in VARIED else len(each) if key == "replicas" else masked(each))
            for key, each in value.items()
        ]
    return [masked(each) for each in value] if isinstance(value, list) else value


def play(servers: ThreeServers, requests: list[tuple[str, object]], **login: object) -> list[object]:
    """Ask one server after the other; return the answers."""
    ready(servers)
    askers = [Asker(servers.client(name, **login)) for name in NAMES]
    answers: list[object] = []
    for at, (subject, body) in enumerate(requests):
        answers.append((subject, masked(askers[at % 3].ask(f"$JS.API.{subject}", body))))
    servers.release()
    return answers


def test_clients_get_the_same_answers(clusters: list[ThreeServers]) -> None:
    theirs, mine = (play(servers, REQUESTS) for servers in clusters)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []


def test_operators_get_the_same_answers(clusters: list[ThreeServers]) -> None:
    theirs, mine = (play(servers, OF_OPERATORS, user="s", **{"pass": "s"}) for servers in clusters)
    assert [pair for pair in zip(mine, theirs, strict=True) if pair[0] != pair[1]] == []

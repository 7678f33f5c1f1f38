"""A group that lost replicas in a doubtful state waits until an operator accepts the loss of named servers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from raft.tests.conftest import is_here

if not is_here():
    pytest.skip("the consensus engine is not here (make cluster)", allow_module_level=True)

from tests.support.jetnet import JetNet, JetServer

from pyjs.base.clock import NS_PER_MS
from pyjs.jetstream.errcodes import ApiError
from pyjs.jetstream.why.replicas import why_not_current


def accepted(server: JetServer, **body: str) -> dict[str, Any] | int | None:
    """Send the request; return its answer, or the number of the error."""
    steps = server.member.operators.accept_loss(json.dumps(body).encode())
    try:
        while True:
            next(steps)
    except StopIteration as end:
        answer: dict[str, Any] | None = end.value
        return answer
    except ApiError as error:
        return error.err_code


def test_a_loss_is_accepted_by_name_and_only_where_it_is_needed(net: JetNet) -> None:
    servers = net.trio()
    body: dict[str, object] = {"name": "R", "subjects": ["r"], "num_replicas": 3}
    net.answers(servers[0].client(), "STREAM.CREATE.R", body, wait_ms=2000)
    server, *others = servers
    names = {"peer": server.name, "account": "$G", "stream": "R"}
    assert accepted(server, **names) == 10003
    assert accepted(server, **{**names, "stream": "ZZ"}) == 10059
    assert accepted(others[0], **names) is None
    assert accepted(net.leader(), **{**names, "peer": "zz"}) == 10044

    group = server.member.assigned_here("$G", "R")[0].group
    consensus = server.member.consensus
    assert consensus is not None
    for other in others:
        net.crash(other.name)
    (peer,) = (each.peer for each in consensus.status(group).replicas if each.node == server.member.node)
    consensus.doubts.begin(group, peer)
    net.run(7000 * NS_PER_MS)

    assert sorted(server.member.missing(group).split(", ")) == sorted(other.name for other in others)
    (assigned,) = server.member.assigned_here("$G", "R")
    assert "ACCEPT_LOSS" in why_not_current(server.member, server.member.accounts, assigned)
    assert accepted(server, **names) == {"success": True}
    assert accepted(server, **names) == 10003
    assert not server.member.missing(group)

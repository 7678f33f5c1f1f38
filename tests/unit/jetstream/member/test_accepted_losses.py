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
from pyjs.monitor.raftz import raftz
from pyjs.monitor.state import Monitored, ProcessStats


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
    assert accepted(server, **{**names, "stream": ""}) == 10003  # not the metadata
    assert accepted(server, **{**names, "lost": others[0].name}) == 10003
    assert accepted(server, peer=server.name, lost="zz") == 10044
    assert accepted(server, peer=server.name, lost=others[0].name) == 10003
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

    missing = server.member.missing(group)
    assert sorted(missing.split(", ")) == sorted(other.name for other in others)
    assert accepted(server, peer=server.name, lost=others[0].name) == 10003  # it waits for both
    (told,) = (text for level, text in server.log.lines if level == "WRN" and "ACCEPT_LOSS" in text)
    assert told.startswith(
        f"Stream 'R' of account '$G' is in doubt after a power cut, waiting for {missing}: "
    )
    assert page(server)["waits_for"] == missing
    (assigned,) = server.member.assigned_here("$G", "R")
    assert "ACCEPT_LOSS" in why_not_current(server.member, server.member.accounts, assigned)
    assert accepted(server, **names) == {"success": True}
    assert accepted(server, **names) == 10003
    assert not server.member.missing(group)
    assert "waits_for" not in page(server)


def page(server: JetServer) -> dict[str, Any]:
    """Return the group of the stream R in /raftz."""
    steps = raftz(Monitored(server.node, server.options, ProcessStats(), 0), "$G", "")
    while True:
        try:
            next(steps)
        except StopIteration as end:
            (found,) = end.value["$G"].values()
            return dict(found)


def test_all_groups_that_wait_for_one_lost_server_go_on_at_once(net: JetNet) -> None:
    servers = net.trio()
    for name in ("R", "S"):
        net.create(servers[0].client(), name, num_replicas=3)
    server, lost, _ = servers
    member = server.member
    consensus = member.consensus
    assert consensus is not None
    net.crash(lost.name)
    groups = [member.meta_group, *(member.assigned_here("$G", name)[0].group for name in ("R", "S"))]
    peers = {group: consensus.status(group).replicas for group in groups}
    net.run(1000 * NS_PER_MS)
    for group in groups:
        (peer,) = (each.peer for each in peers[group] if each.node == member.node)
        consensus.doubts.begin(group, peer)
        consensus.doubts._doubts[group].asked_ns = 1 << 62  # no read ends the doubt
    net.run(7000 * NS_PER_MS)

    told = [text for level, text in server.log.lines if level == "WRN" and "ACCEPT_LOSS" in text]
    assert told[0].startswith(
        f"The metadata and 2 other groups are in doubt after a power cut, waiting for {lost.name}"
    )
    assert accepted(server, peer=server.name, lost=lost.name) == {"success": True, "groups": 3}
    assert accepted(server, peer=server.name, lost=lost.name) == 10003
    assert not any(map(member.missing, groups))

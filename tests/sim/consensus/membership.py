"""Membership changes in the simulation: replicas that lost their log are replaced, and others are added and removed.

This module acts as the owner of the groups: it knows the state of all nodes, and requests one change at a time from
the leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random

from tests.sim.consensus.node import SimNode

from pyjs.consensus.engine import Change, Conf, RaftError, node_of

VOTERS = 3
Changes = list[tuple[int, int]]


def change(rng: Random, nodes: Sequence[SimNode], group: int, *, repair: bool) -> bool:
    """Begin a change of a group's members, and return whether a leader accepted it.

    With `repair`, only a change that leads to three intact voters is requested.
    """
    leader = next((node for node in nodes if node.leads(group)), None)
    if leader is None:
        return False
    with suppress(RaftError, KeyError):  # the node no longer leads, or another change is in progress
        conf = leader.consensus._engine.status(group).conf
        peers = [peer for node in nodes if (peer := node.peer(group))]
        wanted = _repair(conf, nodes, peers, group)
        if not wanted and not repair:
            wanted = _any(rng, conf, [peer for peer in peers if node_of(peer) != leader.number])
        if not wanted:
            return False
        leader.consensus.change(group, wanted)
        leader.judge.counts["changes"] += 1
        return True
    return False


def stale(conf: Conf, nodes: Sequence[SimNode], group: int) -> list[int]:
    """Return the members whose node is running and now has another replica."""
    now = {node.number: node.peer(group) for node in nodes}
    members = {*conf.voters, *conf.learners, *conf.outgoing}
    return sorted(peer for peer in members if now.get(node_of(peer), peer) not in (0, peer))


def _repair(conf: Conf, nodes: Sequence[SimNode], peers: Sequence[int], group: int) -> Changes:
    gone = stale(conf, nodes, group)
    if gone and (gone[0] not in conf.voters or len(conf.voters) > 1):
        return [(int(Change.REMOVE), gone[0])]
    if len(conf.voters) < VOTERS:
        for peer in [*conf.learners, *peers]:
            if peer in peers and peer not in conf.voters:
                return [(int(Change.ADD_VOTER if peer in conf.learners else Change.ADD_LEARNER), peer)]
    return []


def _any(rng: Random, conf: Conf, peers: Sequence[int]) -> Changes:
    if not peers:
        return []
    peer = rng.choice(peers)
    if peer in conf.learners:
        changes = [(Change.ADD_VOTER, peer)]
        others = [each for each in peers if each in conf.voters]
        if len(conf.voters) > VOTERS and others and rng.random() < 0.5:
            changes.append((Change.REMOVE, rng.choice(others)))
        return [(int(what), each) for what, each in changes]
    if peer not in conf.voters:
        return [(int(rng.choice((Change.ADD_LEARNER, Change.ADD_VOTER))), peer)]
    if len(conf.voters) > VOTERS:
        return [(int(rng.choice((Change.ADD_LEARNER, Change.REMOVE))), peer)]
    return []

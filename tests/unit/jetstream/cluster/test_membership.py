"""How the metadata group's members follow the servers of the cluster."""

from __future__ import annotations

import random

import pytest
from tests.unit.jetstream.cluster.metafixture import server

from pyjs.jetstream.cluster.membership import MemberChange, Members, Move, Peer, next_change, voters_wanted


def peers(*nodes: int) -> frozenset[Peer]:
    return frozenset(Peer(node, 1) for node in nodes)


def change(
    voters: tuple[int, ...], learners: tuple[int, ...], servers: tuple[int, ...], away: tuple[int, ...] = ()
) -> MemberChange | None:
    """Return the next change of a group whose leader is server 1."""
    current = peers(*voters, *learners) - peers(*away)
    members = Members(peers(*voters), peers(*learners), Peer(1, 1), current)
    return next_change(members, {node: server(node) for node in servers})


@pytest.mark.parametrize(
    ("voters", "learners", "servers", "away", "move", "node"),
    [
        ((1,), (), (1, 2), (), Move.ADD_LEARNER, 2),
        ((1,), (2,), (1, 2), (), Move.ADD_VOTER, 2),
        ((1, 2, 3), (4, 5), (1, 2, 3, 4, 5), (), Move.ADD_VOTER, 4),
        ((1, 2, 3), (4, 5), (1, 2, 3, 4, 5), (4,), Move.ADD_VOTER, 5),
        ((1, 2, 3, 4), (), (1, 2, 3, 4), (), Move.DEMOTE, 4),
        ((1, 2, 3, 4), (), (1, 2, 3, 4), (2,), Move.DEMOTE, 2),
        ((1, 2, 3), (4,), (1, 2, 3, 4), (3,), Move.DEMOTE, 3),
        ((1, 2), (3,), (1, 2), (3,), Move.REMOVE, 3),
        ((1, 2, 3), (), (1, 2), (3,), Move.REMOVE, 3),
        ((1, 2, 3), (), (2, 3), (), None, 0),  # the leader must leave: it first transfers its leadership
        ((1, 2, 3), (4,), (1, 2, 3, 4), (), None, 0),
        ((1, 2, 3), (4,), (1, 2, 3, 4), (3, 4), None, 0),
        ((1, 2, 3), (), (1, 2, 3), (2,), None, 0),
        ((1, 2), (), (1, 2), (2,), None, 0),
        ((1, 2, 3, 4, 5), (6,), (1, 2, 3, 4, 5, 6), (), None, 0),
    ],
)
def test_the_next_change(
    voters: tuple[int, ...],
    learners: tuple[int, ...],
    servers: tuple[int, ...],
    away: tuple[int, ...],
    move: Move | None,
    node: int,
) -> None:
    assert change(voters, learners, servers, away) == (move and MemberChange(move, Peer(node, 1)))


def test_a_server_with_an_empty_store_leaves_as_the_old_peer_and_comes_as_a_new_one() -> None:
    servers = {1: server(1), 2: server(2), 3: server(3, incarnation=2)}
    members = Members(peers(1, 2, 3), frozenset(), Peer(1, 1), peers(1, 2))
    assert next_change(members, servers) == (Move.REMOVE, Peer(3, 1))
    members = Members(peers(1, 2), frozenset(), Peer(1, 1), peers(1, 2))
    assert next_change(members, servers) == (Move.ADD_LEARNER, Peer(3, 2))


def test_a_removed_server_that_is_kept_stays_as_a_learner() -> None:
    servers = {node: server(node) for node in (1, 2)}
    members = Members(peers(1, 2, 3), frozenset(), Peer(1, 1), peers(1, 2, 3), kept=peers(3))
    assert next_change(members, servers) == (Move.DEMOTE, Peer(3, 1))
    members = Members(peers(1, 2), peers(3), Peer(1, 1), peers(1, 2, 3), kept=peers(3))
    assert next_change(members, servers) is None
    members = Members(peers(1, 2), peers(3), Peer(1, 1), peers(1, 2, 3))
    assert next_change(members, servers) == (Move.REMOVE, Peer(3, 1))


@pytest.mark.parametrize(("servers", "voters"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (100, 5)])
def test_as_many_vote_as_make_failures_harmless(servers: int, voters: int) -> None:
    assert voters_wanted(servers) == voters


@pytest.mark.parametrize("seed", range(50))
def test_changes_end_with_the_wanted_group_and_never_lose_the_majority(seed: int) -> None:
    chance = random.Random(seed)
    wanted = {node: server(node) for node in chance.sample(range(1, 9), chance.randint(1, 8))}
    wanted[1] = server(1)
    voters, learners = set(peers(1, *chance.sample(range(2, 9), chance.randint(0, 4)))), set[Peer]()
    for _ in range(60):
        current = voters | learners
        found = next_change(Members(frozenset(voters), frozenset(learners), Peer(1, 1), current), wanted)
        if found is None:
            break
        learners.discard(found.peer)
        voters.discard(found.peer)
        if found.move in (Move.ADD_LEARNER, Move.DEMOTE):
            learners.add(found.peer)
        elif found.move is Move.ADD_VOTER:
            voters.add(found.peer)
    assert len(voters) == voters_wanted(len(wanted))
    assert {peer.node for peer in voters | learners} == set(wanted)

"""Adapts the members of the metadata group to the servers of the cluster.

New servers are learners first, and become voters when they have caught up; there are at most five voters. If a server
was removed, or came back with an empty store, its old peer is removed. A removed server that is online stays as a
learner until it has learned that its streams were moved. Changes are made one at a time: the next one is proposed
when the last one was applied.

Source: rules of nats-server 2.15.1 for peers of its meta group, and Raft's thesis, sections 4.2.1 and 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyjs.jetstream.cluster.servers import Server


class Peer(NamedTuple):
    """A member of the metadata group."""

    node: int
    incarnation: int


class Move(Enum):
    """The kinds of changes to the membership."""

    ADD_LEARNER = "add learner"
    ADD_VOTER = "add voter"  # a learner becomes a voter
    DEMOTE = "demote"  # a voter becomes a learner
    REMOVE = "remove"


class MemberChange(NamedTuple):
    """A change that the leader proposes."""

    move: Move
    peer: Peer


@dataclass(frozen=True, slots=True)
class Members:
    """The current members of the group."""

    voters: frozenset[Peer]
    learners: frozenset[Peer]
    leader: Peer
    current: Collection[Peer]  # peers that are online and lack few entries, including the leader
    kept: frozenset[Peer] = frozenset()  # peers of removed servers that stay learners for now


def voters_wanted(servers: int) -> int:
    """Return the wanted number of voters for a number of servers: at most five, and three for four servers."""
    if servers == 4:
        return 3
    return min(servers, 5)


def next_change(members: Members, servers: Mapping[int, Server]) -> MemberChange | None:
    """Return the next change that adapts the group to `servers`, or None if no change is needed.

    The leader is never removed or demoted; it must first transfer the leadership.
    """
    wanted = {Peer(server.node, server.incarnation) for server in servers.values()}
    for peer in sorted(members.learners - wanted - members.kept):
        return MemberChange(Move.REMOVE, peer)
    for peer in sorted(members.voters - wanted - {members.leader}):
        if _is_safe(members, members.voters - {peer}):
            return MemberChange(Move.DEMOTE if peer in members.kept else Move.REMOVE, peer)
    for peer in sorted(wanted - members.voters - members.learners):
        return MemberChange(Move.ADD_LEARNER, peer)
    return _next_voter(members, wanted)


def _next_voter(members: Members, wanted: set[Peer]) -> MemberChange | None:
    most = voters_wanted(len(wanted))
    idle = [peer for peer in sorted(members.voters & wanted) if peer not in members.current]
    ready = [peer for peer in sorted(members.learners & wanted) if peer in members.current]
    voting = len(members.voters & wanted)
    if voting < most and ready:
        return MemberChange(Move.ADD_VOTER, ready[0])
    too_many = voting > most
    # An unreachable voter is replaced by a learner that is online.
    for peer in idle + [peer for peer in sorted(members.voters, reverse=True) if peer not in idle]:
        is_for = too_many or (peer in idle and bool(ready))
        if is_for and peer != members.leader and _is_safe(members, members.voters - {peer}):
            return MemberChange(Move.DEMOTE, peer)
    return None


def _is_safe(members: Members, voters: frozenset[Peer]) -> bool:
    """Return whether more than half of `voters` are current."""
    return 2 * sum(peer in members.current for peer in voters) > len(voters)

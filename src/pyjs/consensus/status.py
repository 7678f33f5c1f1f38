"""The status of a group and the condition of the consensus as a whole, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyjs.consensus.engine import Role, node_of, voters_of
from pyjs.consensus.member import State

if TYPE_CHECKING:
    from pyjs.consensus.engine import Status
    from pyjs.consensus.member import Member


class Condition(Enum):
    """The condition of the consensus of a node.

    RUNNING becomes STOPPED by a call of `stop`, and FAILED if the log fails or an unexpected exception occurs.
    """

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a group."""

    node: int
    peer: int
    is_voter: bool
    # number of entries that the replica may lack; None: unknown, because this node does not lead
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a group, as this node knows it."""

    name: str
    role: Role
    leader: int  # number of the leader's node; 0: none
    term: int
    committed: int  # index of the last committed entry
    applied: int
    last: int
    is_stopped: bool  # whether the machine has failed
    replicas: list[Replica]
    voted_for: int  # number of the node voted for in this term; 0: none
    start: int  # index before the first entry of the log
    log_size: int  # approximate bytes of the log
    proposals: int  # proposals of this node that have no result yet
    queued: int  # committed entries that are not applied yet

    def lag_of(self, replica: Replica) -> int:
        """Return the number of committed entries that a replica may lack; 0 if this node does not lead the group."""
        return max(0, self.committed - (self.last - (replica.lag or 0)))


def status_of(member: Member, found: Status) -> GroupStatus:
    """Return the status of a group, from the engine and from its member."""
    matched = dict(found.matched)
    leads = found.role == Role.LEADER
    replicas = [
        Replica(node_of(peer), peer, is_voter, found.last - matched.get(peer, 0) if leads else None)
        for peers, is_voter in (
            (
                sorted(voters_of(found.conf)),
                True,
            ),  # in a joint membership, voters that will be removed still vote
            (found.conf.learners, False),
        )
        for peer in peers
    ]
    return GroupStatus(
        member.name,
        Role(found.role),
        node_of(found.leader),
        found.term,
        found.commit,
        member.applied,
        found.last,
        member.state is State.STOPPED,
        replicas,
        node_of(found.vote),
        found.start,
        member.log_size,
        member.proposals,
        len(member.queue),
    )

"""The state machine of the metadata group on one server.

The machine applies entries to the metadata and collects their changes for this server's streams. A proposal gets its
result when its entry is applied. If the result will never be known, the proposal ends without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyjs.consensus.engine import Role
from pyjs.jetstream.cluster.assignments import INDEX_MAX
from pyjs.jetstream.cluster.changes import difference
from pyjs.jetstream.cluster.snapshot import decode_snapshot, encode_snapshot
from pyjs.jetstream.cluster.state import MetaState

if TYPE_CHECKING:
    from pyjs.core.sink import Turn
    from pyjs.jetstream.cluster.changes import Change
    from pyjs.jetstream.cluster.state import Applied
    from pyjs.jetstream.member.waiters import Waiters


class Proposal:
    """The result of an entry that this server has proposed; it is not known at first."""

    def __init__(self) -> None:
        self.is_over = False
        self.applied: Applied | None = None  # None when `is_over`: the result is unknown


class MetaMachine:
    """The state machine of the metadata group on one server: the metadata, and the group's leader."""

    def __init__(self, waiters: Waiters, turn: Turn) -> None:
        self._waiters = waiters
        self._turn = turn
        self._lost_ns = 0  # time when the last leader was lost, or the server started
        self._time_ns = 0  # of the last entry
        self.state = MetaState()
        self.changes: list[
            Change
        ] = []  # not yet carried out on this server; drained by the keeper of streams
        self.owes = False  # some streams that entries have removed still exist on this server
        self.leads = False  # this server leads, and has applied all entries of earlier terms
        self.leads_since_ns = 0  # time when this server last became the leader
        self.leader = 0  # number of the server that leads, 0: none is known
        self.leader_since_ns = 0  # on the wall clock; 0: no leader so far
        self.had_leader = False
        self.is_dropped = False  # the log of the group was dropped: this server must join again
        self.pending = 0  # proposals of this server without a result
        self.snapshot_ns = 0  # time of the last entry in the last snapshot that was made or installed
        self.entries = 0  # number of entries applied since the last snapshot
        self.size = 0  # total bytes of these entries

    def begin(self) -> None:
        """Measure the time without a leader from now on; called in the first turn."""
        self._lost_ns = self._turn.now

    def apply(self, index: int, term: int, time_ns: int, payload: bytes, proposal: object | None) -> None:
        """Apply a committed entry, and store the result in `proposal` if this server has proposed the entry."""
        applied = self.state.apply(index, time_ns, payload)
        self._time_ns = time_ns
        self.changes += applied.changes
        self.entries += 1
        self.size += len(payload)
        if isinstance(proposal, Proposal):
            proposal.applied, proposal.is_over = applied, True
        self._waiters.notify()

    def role(self, term: int, role: Role, leader: int) -> None:
        """Store whether this server leads, and the number of the leader (0: unknown)."""
        if role == Role.LEADER and not self.leads:
            self.leads_since_ns = self._turn.now
        self.leads = role == Role.LEADER
        self._turn.reports = True
        if self.leader and not leader:
            self._lost_ns = self._turn.now
        if leader != self.leader:
            self.leader, self.leader_since_ns = leader, self._turn.now + self._turn.skew
        self.had_leader |= leader != 0
        self._waiters.notify()

    def dropped(self, proposal: object) -> None:
        """Record that the result of a proposal will never be known."""
        assert isinstance(proposal, Proposal)
        proposal.is_over = True
        self._waiters.notify()

    def met_server(self) -> None:
        """Measure the time without a leader from now on, since another server has connected."""
        self._lost_ns = self._turn.now

    def leaderless_ns(self) -> int:
        """Return the time (ns) from which the lack of a leader is measured, or the current time if there is a leader.

        It is the time of the last of these events: the start, the loss of the leader, the connection of a server.
        """
        return self._turn.now if self.leader else self._lost_ns

    def durable(self) -> int:
        """Return INDEX_MAX: a snapshot has the whole state, so the log may be cut after any applied entry."""
        return INDEX_MAX

    def snapshot(self) -> bytes | None:
        """Return the encoded metadata, or None until this server has carried out the changes of its streams."""
        if self.changes or self.owes:
            return None
        self.snapshot_ns, self.entries, self.size = self._time_ns, 0, 0
        return encode_snapshot(self.state)

    def install(self, index: int, data: bytes) -> None:
        """Replace the metadata with that of a snapshot."""
        new = decode_snapshot(data)
        self.changes += difference(self.state, new)
        self.state = new
        self.entries = self.size = 0
        self._waiters.notify()

    def renewed(self) -> None:
        """Record that the log of the group was dropped; `MetaGroup.rejoin_steps` then joins the group again."""
        self.is_dropped, self.had_leader = True, False
        self._waiters.notify()

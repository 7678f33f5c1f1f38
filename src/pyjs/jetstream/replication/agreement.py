"""Whether the store of a replica agrees with the log of its group.

With a sync interval, a power failure can take the end of the log and leave the effects of these entries in the store,
since both are synced at different times. Or only this server still has entries that the others have lost. The group
then continues with other entries under the same numbers. The store names the last entry that it has applied, by index
and term. If the committed log has this entry, the store has the effects of that log and nothing else. Until this is
known, the replica is unsure: it serves no copies, its log is not cut, and

- if a committed entry contradicts the store, the replica copies from another one. If the other one has other messages
  than this replica's last ones, the messages here are dropped first (catch_up.py).
- if it is elected, no voter has the lost entries any more, but their effects were acknowledged. It proposes a note
  with the last entry of its store. From this note on, the state of its store is that of the group, and the other
  replicas copy it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyjs.consensus.log.group import StoredGroup
    from pyjs.jetstream.stream.replicated.replica import Replica

KIND = 4  # of the note; see stream_machine.py for the other ones
NOTE = Struct("<BQQQ")  # kind, last sequence, index and term of the entry


class Machine(Protocol):
    """The machine of the replica: stream_machine.StreamMachine."""

    replica: Replica

    def term_at(self, index: int) -> int:
        """Return the term of an entry of the log, 0 if the log does not have it."""

    def propose_note(self, payload: bytes) -> None:
        """Propose an entry that is not the replica's."""


class Agreement:
    """What is known about one replica."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._has_proposed = False
        self.is_unsure = False
        self.in_doubt = False  # the log may have lost entries, and this replica has not led since then

    def begin(self, stored: StoredGroup | None, *, in_doubt: bool) -> None:
        """Compare the store with the log, before the group is opened; in doubt, entries may have been lost."""
        self.in_doubt = in_doubt
        is_unsure = stored is not None and self._is_unsure(stored, in_doubt=in_doubt)
        self.is_unsure = self.is_incomplete or is_unsure

    @property
    def is_incomplete(self) -> bool:
        """Whether the store was dropped, and its copy is not complete: it has applied no entry of any log."""
        replica = self._machine.replica
        return replica.index > 0 and replica.term == 0

    def _is_unsure(self, stored: StoredGroup, *, in_doubt: bool) -> bool:
        replica = self._machine.replica
        if replica.index == 0 or stored.is_damaged:
            return replica.index > 0 and in_doubt
        if replica.index < stored.start:
            return False  # behind: the log began later when its beginning was safe on a majority
        is_safe = not in_doubt or replica.index == stored.start
        return not is_safe or stored.term_at(replica.index) != replica.term

    def allows(self, index: int, term: int) -> bool:
        """Return whether a committed entry does not contradict the store."""
        if not self.is_unsure:
            return True
        replica = self._machine.replica
        if term > replica.term:
            return self._has_entry()
        if index < replica.index:
            return True
        return self._has_entry()

    def _has_entry(self) -> bool:
        """Return whether the log has the last entry of the store: then the replica is sure."""
        replica = self._machine.replica
        is_there = self._machine.term_at(replica.index) == replica.term
        self.is_unsure = self.is_incomplete or not is_there
        return not self.is_unsure

    def role_changed(self) -> None:
        """Allow another note: the one that was proposed may be lost."""
        self._has_proposed = False

    def may_lead(self) -> bool:
        """Return whether an elected replica may lead now; otherwise propose the note.

        All committed entries are applied, and none of them has contradicted the store.
        """
        if not self.is_unsure or self._has_entry():
            return True
        if not self._has_proposed and not self.is_incomplete:
            self._has_proposed = True
            replica = self._machine.replica
            last_seq = replica.stream.store.last_seq
            self._machine.propose_note(NOTE.pack(KIND, last_seq, replica.index, replica.term))
        return False

    def take(self, index: int, term: int, time_ns: int, base: tuple[int, int]) -> bool:
        """Apply a note; return whether this replica has the state after it, so that it copies nothing."""
        replica = self._machine.replica
        if self.is_unsure and base == (replica.index, replica.term):
            self.is_unsure = False
            replica.restart_at(index, term, time_ns)
        return index <= replica.index and term <= replica.term

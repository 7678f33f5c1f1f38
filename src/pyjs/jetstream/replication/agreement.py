"""Finds out whether the store of a replica agrees with the log of its group.

With a sync interval, log and store are synced at different times. So a power failure can destroy the end of the log
while the store keeps the effects of the lost entries. It may also be that only this server still has entries that the
other servers have lost. In both cases, the group continues with other entries under the same indexes. The store has
the index and the term of the last entry that it has applied. If the committed log has this entry, the store has
exactly the effects of that log. Until this is known, the replica is *unsure*: it serves no copies, its log is not
cut, and

- if a committed entry contradicts the store, the replica copies from another replica. If the last messages of both
  differ, the copying replica first drops all its messages (catch_up.py).
- if it is elected, no voter has the lost entries any more, although their effects were acknowledged. The replica then
  proposes a *note*: an entry with the index and term of the last entry of its store. From this note on, the state of
  its store is that of the group, and the other replicas copy this state.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyjs.consensus.log.group import StoredGroup
    from pyjs.jetstream.stream.replicated.replica import Replica

KIND = 4  # kind of a note; stream_machine.py has the other kinds
NOTE = Struct("<BQQQ")  # kind, last sequence of the store, index and term of its last entry


class Machine(Protocol):
    """The part of `stream_machine.StreamMachine` that this module uses."""

    replica: Replica

    def term_at(self, index: int) -> int:
        """Return the term of the entry `index` of the log, or 0 if the log does not have the entry."""

    def propose_note(self, payload: bytes) -> None:
        """Propose a note as an entry of the group's log."""


class Agreement:
    """The agreement between the store of one replica and the log of its group, as far as it is known."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._has_proposed = False
        self.is_unsure = False
        # whether the log may have lost entries, and this replica has not led since then
        self.in_doubt = False

    def begin(self, stored: StoredGroup | None, *, in_doubt: bool) -> None:
        """Compare the store with the log, before the group is opened.

        `stored` is None for a new group. `in_doubt` means that the log may have lost entries.
        """
        self.in_doubt = in_doubt
        is_unsure = stored is not None and self._is_unsure(stored, in_doubt=in_doubt)
        self.is_unsure = self.is_incomplete or is_unsure

    @property
    def is_incomplete(self) -> bool:
        """Whether the store is an incomplete copy that has replaced a dropped store, so its last entry has term 0."""
        replica = self._machine.replica
        return replica.index > 0 and replica.term == 0

    def _is_unsure(self, stored: StoredGroup, *, in_doubt: bool) -> bool:
        replica = self._machine.replica
        if replica.index == 0 or stored.is_damaged:
            return replica.index > 0 and in_doubt
        if replica.index < stored.start:
            # behind, but not unsure: entries before the start of the log were durable on a majority
            return False
        is_safe = not in_doubt or replica.index == stored.start
        return not is_safe or stored.term_at(replica.index) != replica.term

    def allows(self, index: int, term: int) -> bool:
        """Return False if a committed entry contradicts the store, otherwise True; update `is_unsure`."""
        if not self.is_unsure:
            return True
        replica = self._machine.replica
        if term > replica.term:
            return self._has_entry()
        if index < replica.index:
            return True
        return self._has_entry()

    def _has_entry(self) -> bool:
        """Return whether the store is complete and the log has its last entry; update `is_unsure`."""
        replica = self._machine.replica
        is_there = self._machine.term_at(replica.index) == replica.term
        self.is_unsure = self.is_incomplete or not is_there
        return not self.is_unsure

    def role_changed(self) -> None:
        """Allow another note after a change of leader, since the proposed note may be lost."""
        self._has_proposed = False

    def may_lead(self) -> bool:
        """Return whether an elected replica may lead now; if not, propose a note.

        No note is proposed if one was proposed already, or if the store is an incomplete copy. When this is called,
        all committed entries are applied, and none of them has contradicted the store.
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
        """Apply a note; return whether this replica already has the note's state. If not, it must copy the state.

        `base` is the index and the term of the last entry in the store of the replica that proposed the note.
        """
        replica = self._machine.replica
        if self.is_unsure and base == (replica.index, replica.term):
            self.is_unsure = False
            replica.restart_at(index, term, time_ns)
        return index <= replica.index and term <= replica.term

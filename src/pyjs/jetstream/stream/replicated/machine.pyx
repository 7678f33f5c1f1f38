"""The part of a replicated stream's state machine that runs for each entry.

`replication.stream_machine.StreamMachine` is the only subclass; it sets the attributes, and handles all entries that
are not simply applied. Compiled, because each message of a replicated stream may be an entry (measured in
benchmarks/: r3-sync-1).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from pyjs.jetstream.stream.replicated.payload cimport PAYLOAD_VERSION
from pyjs.jetstream.stream.replicated.proposal cimport Proposal
from pyjs.jetstream.stream.replicated.replica cimport Replica


cdef class EntryMachine:
    """The state machine of one replicated stream, as its consensus and its replica see it for each entry."""

    def apply(self, index, term, time_ns, bytes payload not None, Proposal proposal) -> None:
        """Apply a committed entry, or hold it while this replica copies.

        Raises:
            PyjsError: the replica has stopped, or the entry has an unknown format.
        """
        cdef Replica replica = self.replica
        cdef bint is_plain = PyBytes_GET_SIZE(payload) > 0 and PyBytes_AS_STRING(payload)[0] == PAYLOAD_VERSION
        assert replica is not None
        if is_plain and self.catch_up is None and replica.gaps is None and not self.agreement.is_unsure:
            replica.apply(index, term, time_ns, payload, proposal)
            if replica.stopped is not None:
                raise replica.stopped
        else:
            self.apply_other(index, term, time_ns, payload, proposal)

    def propose(self, bytes payload not None, Proposal proposal not None) -> bool:
        """Propose an entry; return False if the consensus refuses it."""
        return self.consensus.propose(self.assignment.group, payload, proposal)

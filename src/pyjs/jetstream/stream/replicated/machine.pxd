"""The part of a replicated stream's state machine that runs for each entry."""
from pyjs.jetstream.stream.replicated.replica cimport Replica

cdef class EntryMachine:
    cdef public object assignment       # jetstream.cluster.assignments.Assignment
    cdef public object consensus        # consensus.consensus.Consensus of the node
    cdef public Replica replica
    cdef public object agreement        # jetstream.replication.agreement.Agreement
    # jetstream.replication.catch_up.CatchUp; None: the replica is not behind
    cdef public object catch_up

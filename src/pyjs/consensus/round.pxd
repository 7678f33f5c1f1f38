"""The frequent half of a turn of consensus."""
from libc.stdint cimport uint64_t

from pyjs.consensus.log.durability cimport Durability
from pyjs.consensus.member cimport Member
from pyjs.consensus.outbox cimport Outbox
from pyjs.consensus.payloads cimport Payloads
from pyjs.core.sink cimport Turn

cdef class Round:
    cdef object owner               # consensus.Consensus
    # methods of the engine.Groups
    cdef object engine_ready, engine_stored, engine_step, engine_propose, engine_has_ready
    cdef object engine_quarantined, engine_counts
    cdef object log                 # log.node_log.NodeLog
    cdef Outbox outbox
    cdef object faults              # faults.MachineFaults
    cdef readonly Payloads payloads
    cdef Durability durability
    cdef Turn turn_state
    cdef list installs              # groups with a complete snapshot (snapshots.Snapshots.whole)
    cdef tuple chores               # containers that have content if the owner has rare work
    cdef readonly dict members      # group -> Member
    cdef readonly object backlog    # deque of Members with entries to apply, in fair order
    cdef list later                 # followers that will apply their few entries at the next tick
    cdef public bint is_staged      # the log has staged records that are not written
    cdef bint is_queued             # this object is in `turn_state.consensus`
    cdef public bint rests          # no tick is due soon, since all groups are idle
    cdef bint is_over               # this node has left its groups

    cpdef queue(self)
    cpdef continue_with(self, Member member)
    cpdef mark(self)
    cpdef bint propose(self, uint64_t group, bytes payload, proposal) except -1
    cpdef step(self, bytes frames, list payloads)
    cpdef turn(self)
    cdef bint has_chores(self) except -1
    cdef agree(self)
    cdef report_durable(self)
    cdef bint stage(self, list writes) except -1
    cdef take(self, ready, list writes)
    cdef queue_entries(self, Member member, bint is_small)
    cdef apply_some(self)

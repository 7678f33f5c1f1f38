"""The frequent half of a turn of consensus."""
from pyjs.consensus.durability cimport Durability
from pyjs.consensus.member cimport Member
from pyjs.consensus.payloads cimport Payloads
from pyjs.core.sink cimport Turn

cdef class Round:
    cdef object owner               # consensus.Consensus
    cdef object engine              # engine.Groups
    cdef object log                 # log.node_log.NodeLog
    cdef object outbox              # outbox.Outbox
    cdef object faults              # faults.MachineFaults
    cdef readonly Payloads payloads
    cdef Durability durability
    cdef Turn turn
    cdef readonly dict members      # group -> Member
    cdef readonly object backlog    # deque of Members with entries to apply, in fair order
    cdef list later                 # followers that will apply their few entries at the next tick
    cdef public bint is_staged      # the log has staged records that are not written
    cdef bint is_queued             # the owner is in `turn.consensus`
    cdef bint is_over               # this node has left its groups

    cpdef queue(self)
    cpdef continue_with(self, Member member)
    cpdef step(self, bytes frames, list payloads)
    cdef report_durable(self)
    cdef bint stage(self, list writes) except -1
    cdef take(self, ready, list writes)
    cdef queue_entries(self, Member member, bint is_small)

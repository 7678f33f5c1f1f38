"""One group of a node: its role, its committed entries, its proposals, and the calls of its state machine."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.consensus.payloads cimport Payloads

cdef enum:
    DESCRIPTOR_SIZE = 40        # descriptor.SIZE


cdef inline uint32_t size_of(bytes body) except? 0:
    """Return the size of the payload that a descriptor describes."""
    cdef uint32_t size = 0
    assert len(body) == DESCRIPTOR_SIZE
    memcpy(&size, <const char*> body, sizeof(size))
    return size


cdef class Member:
    cdef readonly uint64_t group
    cdef readonly str name
    cdef readonly uint64_t peer
    cdef readonly object machine        # seams.Machine
    cdef readonly object state          # a State
    cdef readonly uint64_t applied      # index of the last applied entry
    cdef uint64_t queued                # index of the last committed entry received; >= applied
    cdef readonly object queue          # deque of Committed
    cdef public bint in_backlog         # whether the consensus will continue to apply `queue`
    cdef bint is_late                   # whether the consensus will apply `queue` at the next tick
    cdef bint follows                   # whether `role` is FOLLOWER
    cdef int64_t time_ns                # time of the newest entry in the log
    cdef readonly int64_t applied_time_ns
    cdef readonly uint64_t term
    cdef readonly object role           # Role according to the engine; `leads` becomes true later
    cdef readonly uint64_t leader       # number of the leader's node
    cdef readonly bint leads            # True: this node leads, and has applied all entries of earlier terms
    cdef public bint is_prompt    # whether followers learn at once about committed entries while this node leads
    cdef public object voters           # the peers that elect the leader
    cdef public tuple vote              # term and vote, as written to the log
    cdef public int64_t log_size        # approximate bytes in the log since its start
    cdef public int64_t compact_at      # `log_size` at which the log is compacted
    cdef public dict pending            # index -> term and proposal
    cdef public uint64_t applied_term
    # (index that must be applied before the read, function to call then)
    cdef readonly list reads
    cdef object steps                   # the rest of an `install`; None: nothing is installed

    cpdef int64_t next_time_ns(self, int64_t wall_ns) except? -1
    cpdef proposed(self, uint64_t index, uint64_t term, int64_t time_ns, proposal)
    cpdef take(self, tuple committed)
    cdef bint may_wait(self) noexcept
    cpdef tuple apply_some(self, Payloads payloads, Py_ssize_t count, int64_t size)
    cpdef note_entries(self, list entries)
    cdef install_some(self, steps)
    cdef uint32_t apply(self, Payloads payloads, uint64_t index, uint64_t term, bytes body) except? 0
    cdef lead(self)
    cdef release_reads(self)

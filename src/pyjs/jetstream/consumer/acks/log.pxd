"""The changes of a consumer in one turn, encoded for its state file."""
from libc.stdint cimport int64_t, uint64_t

cdef enum Change:
    DELIVERED = 1               # seq, cseq, n, ts: n first deliveries; seq and cseq rise by one
    ACKED                       # seq, n
    ACKED_ALL                   # seq, cseq
    REDELIVERED                 # seq, ts
    PROGRESS                    # seq, ts
    NAKED                       # seq
    DELAYED                     # seq, due_at
    EXHAUSTED                   # seq
    SETTLED                     # seq
    TERMINATED                  # seq, n, then n bytes
    ACKED_PENDING               # seq, cseq

cdef class StateLog:
    cdef unsigned char* data
    cdef size_t len, room
    cdef public bint enabled
    cdef public bint lost       # the changes are incomplete, for example for lack of memory: a snapshot must follow
    cdef int run                # DELIVERED or ACKED: consecutive changes that are being joined; 0: none
    cdef uint64_t run_seq, run_cseq, run_n
    cdef int64_t run_ts
    cdef void delivered(self, uint64_t seq, uint64_t cseq, int64_t ts) noexcept nogil
    cdef void acked(self, uint64_t seq) noexcept nogil
    cdef void put(self, Change change, uint64_t a, uint64_t b) noexcept nogil
    cdef int put_term(self, uint64_t seq, bytes reason) except -1
    cdef void end_run(self) noexcept nogil
    cdef void write(self, int change, uint64_t* values, int n) noexcept nogil

"""Fast batches: their reply subjects, their sequences, and the flow of their acknowledgements."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef enum Operation:
    START
    APPEND
    COMMIT                      # store this message, and end the batch
    END                         # end the batch; this message is not stored
    PING

cdef struct FastReply:          # the fields of a reply subject; `id` points into it
    const char* id
    uint32_t id_len
    uint16_t flow               # maximum number of messages per acknowledgement
    bint gap_ok
    Operation operation
    uint64_t seq                # number of the message in its batch, from 1

# Fill `out` from a reply subject that ends with ".$FI"; return 0 if it is malformed.
cdef bint parse_fast_reply(const char* reply, size_t n, FastReply* out) noexcept nogil

cdef class FastBatch:
    cdef bytes id
    cdef const char* id_text    # points into `id`
    cdef uint32_t id_len
    cdef uint16_t flow, flow_max                # number of messages per acknowledgement: at present, and at most
    cdef bint gap_ok
    cdef readonly uint64_t last_seq             # highest sequence that was received in the batch
    cdef readonly uint64_t stream_seq           # stream sequence of the batch's last stored message; 0: none
    cdef uint64_t done_seq  # all sequences up to this are stored, duplicates, or reported as missing; <= last_seq
    cdef uint64_t acked_seq                      # all sequences up to this are acknowledged; <= done_seq
    cdef int64_t deadline_ns
    cdef object timer

    cdef bint has_id(self, FastReply* r) noexcept nogil
    cdef bint owes_ack(self, size_t n_open) noexcept nogil

cdef class FastBatches:
    cdef object limits, usage, timers
    cdef int64_t timeout_ns
    cdef dict open              # id -> FastBatch
    cdef size_t n_open
    cdef FastBatch last         # the batch used last; never None, but possibly closed

    cdef FastBatch find(self, FastReply* r)
    cdef FastBatch begin(self, FastReply* r, int64_t now_ns)
    cdef void keep_alive(self, FastBatch batch, int64_t now_ns) noexcept nogil

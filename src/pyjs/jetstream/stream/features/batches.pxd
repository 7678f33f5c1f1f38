"""Atomic batches: their messages in memory, and the headers that number them."""
from libc.stdint cimport int64_t, uint32_t

from pyjs.jetstream.stream.pub_headers cimport Value
from pyjs.wire.ops cimport Msg

cdef struct BatchHeaders:       # the headers of a batch's message; they point into the header block
    Value id
    int64_t seq                 # number of the message in its batch; -1: missing or not a number
    Value commit
    bint has_commit             # there is a commit header, even if `commit` is empty
    bint has_level              # the message requires an API level

cdef struct StagedMessage:
    size_t at                   # offset of subject, headers and payload in the arena
    uint32_t subject_len
    uint32_t header_len
    uint32_t size               # bytes of headers and payload
    bint special                # a header needs a check or has an effect
    bint skipped                # no consumer needs the message, so it is not stored

cdef void scan_batch_headers(const char* headers, size_t n, BatchHeaders* out) noexcept nogil

cdef class BatchUsage:
    cdef public int64_t count           # number of open atomic batches
    cdef public int64_t bytes           # bytes staged in open atomic batches
    cdef public int64_t bytes_max
    cdef public size_t at_once_max      # a batch with up to this many bytes is committed in one turn
    cdef public size_t part_size        # bytes of a larger batch that one step stores
    cdef public int64_t fast_count      # number of open fast batches, which have no staged messages

cdef class AtomicBatch:
    cdef readonly bytes id
    cdef const char* id_text            # points into `id`
    cdef size_t id_len
    cdef StagedMessage* messages
    cdef size_t n, room
    cdef char* arena
    cdef size_t used, arena_room
    cdef int64_t bytes                  # bytes that this batch counts in the usage
    cdef int64_t deadline_ns
    cdef object timer                   # ends the batch after its idle time; None: the batch is not open

    cdef int stage(self, Msg* m, bint special) noexcept nogil           # -1: out of memory
    cdef int put(self, StagedMessage* to, Msg* m) noexcept nogil
    cdef void view(self, size_t i, Msg* m) noexcept nogil               # valid until the next `stage` or `replace`
    cdef int replace(self, size_t i, bytes subject, bytes headers, bytes payload) except -1

cdef class AtomicBatches:
    cdef object limits, timers
    cdef public object tell
    cdef BatchUsage usage
    cdef int64_t timeout_ns
    cdef size_t msgs_max
    cdef dict open              # id -> AtomicBatch
    cdef AtomicBatch last       # the batch used last; never None, but possibly closed

    cdef bint goes_on(self, Msg* m, BatchHeaders* h) noexcept nogil
    cdef bint has_room(self, Msg* m) noexcept nogil
    cdef int stage(self, AtomicBatch batch, Msg* m, bint special, int64_t now_ns) noexcept nogil
    cdef AtomicBatch take(self, Msg* m, BatchHeaders* h, bint special, int64_t now_ns)
    cdef AtomicBatch begin(self, bytes batch_id, int64_t seq, int64_t size, int64_t now_ns)

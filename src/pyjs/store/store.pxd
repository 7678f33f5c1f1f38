"""What the engine asks of a store, file or memory: messages by sequence."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.wire.ops cimport Msg

cdef struct Record:             # a view of one stored message, valid until the next append, drop or commit
    const char* subject
    const char* body            # headers, then payload
    uint64_t seq
    int64_t ts                  # ns since the epoch
    uint32_t subject_len
    uint32_t header_len
    uint32_t size               # header_len + payload length

cdef class StoreFilter:
    """A set of subject filters bound to one store; no filters match everything. Made by StreamStore.make_filter.

    Decides per subject once and remembers the answer by subject id.
    """
    cdef readonly tuple subjects        # bytes, wildcards allowed
    cdef readonly bint all

cdef class StreamStore:
    """Messages of one stream by sequence. One writer, no threads; the file store's fdatasync runs elsewhere."""
    cdef readonly uint64_t first_seq    # 1 + last_seq when empty after messages; 0 before the first message
    cdef readonly uint64_t last_seq
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes        # nats-server's arithmetic, see reference storage-notes section 2
    cdef readonly int64_t first_ts, last_ts     # 0: none
    cdef readonly bint failed           # a write or sync failed: appends are refused (StoreFailed in `error`)
    cdef readonly object error
    cdef public bint track_drops        # someone drains `take_drops`

    # -- message path ------------------------------------------------------------------------------------------
    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil   # its sequence; 0: refused (failed store)
    cdef uint64_t skip(self) noexcept nogil                         # use up one sequence, store nothing
    cdef int commit(self) noexcept nogil        # all appends are in the file after it; -1: failed, see `error`
    cdef int load(self, uint64_t seq, Record* r) noexcept nogil     # 0, -1: absent, -2: damaged
    cdef int drop(self, uint64_t seq, bint erase) noexcept nogil    # 0, -1: was absent
    cdef uint64_t next_seq(self, uint64_t from_seq, StoreFilter f) noexcept nogil   # first live match >= from_seq, 0
    cdef uint64_t count_from(self, uint64_t from_seq, StoreFilter f) noexcept nogil # live matches >= from_seq
    cdef uint64_t last_seq_of(self, const char* subject, size_t n) noexcept nogil   # of a literal subject; 0
    cdef uint64_t first_seq_of(self, const char* subject, size_t n) noexcept nogil
    cdef uint64_t count_of(self, const char* subject, size_t n) noexcept nogil      # live messages of a subject

"""The pull requests that wait for messages."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef struct Waiting:
    char* reply                 # owned
    uint32_t reply_len
    int64_t left                # messages; may start at 0, which is served as 1
    int64_t bytes_left          # 0: not limited by size
    int64_t delivered
    int64_t expires_at          # ns; 0: never
    int64_t heartbeat_ns        # 0: none
    int64_t heartbeat_at        # ns
    bint no_wait
    bint grouped                # names a priority group
    int64_t min_pending         # overflow: messages or
    int64_t min_ack_pending     # deliveries pending before it is served; both 0: always
    int64_t priority            # prioritized: the smallest is first
    uint64_t pin                # pinned_client: number of the pin that it has; 0: none
    Waiting* next

cdef class WaitingQueue:
    cdef Waiting* head
    cdef Waiting* tail
    cdef readonly int64_t count
    cdef readonly int64_t no_wait       # requests that end when messages run out
    cdef readonly int64_t max
    cdef int64_t wake_at                # ns; no expiry or heartbeat is earlier; 0: none
    cdef public bint by_priority               # the smallest priority is first, not the oldest request
    cdef void insert(self, Waiting* w) noexcept nogil
    cdef void rotate(self) noexcept nogil
    cdef void drop_head(self) noexcept nogil
    cdef void remove(self, Waiting* before, Waiting* w) noexcept nogil
    cdef void note_time(self, Waiting* w) noexcept nogil
    cdef bint served(self, int64_t size, int64_t now) noexcept nogil

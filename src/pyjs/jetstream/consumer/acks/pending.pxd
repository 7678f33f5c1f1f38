"""Deliveries that wait for an acknowledgement."""
cimport cython
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef enum:
    IN_NONE = 0                 # in no list, because the entry is being moved
    IN_REDELIVER = 1            # queued for redelivery, first in, first out
    IN_EXHAUSTED = 2            # due, but already delivered `max_deliver` times
    IN_DELAYED = 3              # due at an individual time (nak with delay): in the heap, in no list
    IN_WAIT = 4                 # number of the first waiting list; there is one list per step of `backoff`

cdef struct Entry:
    uint64_t seq                # stream_seq
    uint64_t cseq               # consumer_seq of the first delivery
    int64_t sent_at             # ns: time of the last delivery or +WPI
    int64_t due_at              # ns: time of the redelivery, if the entry is in a waiting list
    uint32_t count              # number of deliveries so far, >= 1
    uint32_t older, newer       # neighbours by seq; 0: there is none
    uint32_t before, after  # neighbours in its list; 0: there is none. In the heap, `before` is the entry's position
    uint16_t where              # IN_...

cdef struct Ends:
    uint32_t head, tail


@cython.final
cdef class PendingAcks:
    cdef Entry* entries         # entries[0] is not used: index 0 means no entry
    cdef readonly uint32_t capacity     # number of allocated entries
    cdef uint32_t used          # number of entries that were ever in use
    cdef uint32_t free          # first of the free entries, which are linked by `after`
    cdef uint32_t* buckets      # hash table from seq to index
    cdef uint64_t bucket_mask
    cdef int bucket_shift
    cdef readonly uint32_t count            # number of entries in use
    cdef readonly uint32_t redelivered      # number of entries delivered more than once
    cdef uint32_t oldest, newest            # by seq
    cdef readonly uint32_t n_queued         # number of entries queued for redelivery
    cdef readonly uint64_t heap_steps       # number of heap positions written so far, for tests
    cdef uint32_t* heap         # the entries IN_DELAYED; no entry is due before its parent; room for `capacity`
    cdef uint32_t n_heap
    cdef Ends* lists
    cdef int64_t* waits         # ns, one for each step of `backoff`
    cdef uint32_t n_waits

    # Make room for one entry, so that `track` cannot fail; return -1 if out of memory.
    cdef int reserve(self) noexcept nogil
    cdef uint32_t find(self, uint64_t seq) noexcept nogil                       # 0: the sequence is not pending
    cpdef uint32_t track(self, uint64_t seq, uint64_t cseq, int64_t now) noexcept nogil   # 0: out of memory
    cdef void sent_again(self, uint32_t i, int64_t now) noexcept nogil
    cdef void remove(self, uint32_t i) noexcept nogil
    cpdef void remove_to(self, uint64_t seq) noexcept nogil
    cpdef void shrink(self) noexcept nogil  # invalidates the indexes of all entries
    cdef void progress(self, uint32_t i, int64_t now) noexcept nogil
    cdef void requeue(self, uint32_t i) noexcept nogil
    cdef void delay(self, uint32_t i, int64_t due_at) noexcept nogil
    cdef int64_t deadline(self, uint32_t i) noexcept nogil                      # of entry i, if it waits for an ack
    cdef int64_t last_deadline(self) noexcept nogil                             # 0: nothing is pending
    cpdef int64_t next_due(self) noexcept nogil                                  # 0: no entry waits
    cdef uint32_t expire(self, int64_t now, uint32_t max_deliver) noexcept nogil
    cdef void clear(self) noexcept nogil
    cdef uint64_t newest_seq(self) noexcept nogil                               # 0: nothing is pending

    cdef int reorder(self) except -1
    cdef void link(self, uint32_t i, uint32_t where) noexcept nogil
    cdef void unlink(self, uint32_t i) noexcept nogil
    cdef void place(self, uint32_t i, uint32_t at) noexcept nogil
    cdef void rise(self, uint32_t i, uint32_t at) noexcept nogil
    cdef void sink(self, uint32_t i, uint32_t at) noexcept nogil
    cdef void leave_heap(self, uint32_t i) noexcept nogil
    cdef uint32_t first_due(self, int64_t now, uint32_t* where) noexcept nogil
    cdef void await_ack(self, uint32_t i) noexcept nogil
    cdef uint32_t allocate(self) noexcept nogil
    cdef int make_room(self) noexcept nogil
    cdef int rehash(self, int size_log) noexcept nogil
    cdef void take_table(self, uint32_t* buckets, int size_log) noexcept nogil
    cdef void leave_table(self, uint32_t i) noexcept nogil
    cdef void release(self, uint32_t i) noexcept nogil
    cdef uint32_t moved(self, uint32_t i) noexcept nogil
    cdef uint64_t bucket_of(self, uint64_t seq) noexcept nogil

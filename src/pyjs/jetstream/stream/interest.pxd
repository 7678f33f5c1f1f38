"""The consumers of one stream, by subject."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.jetstream.stream.stream_consumer cimport StreamInbox
from pyjs.store.store cimport StreamStore
from pyjs.subjects.routes cimport Route
from pyjs.subjects.sublist cimport Sublist

cdef class Interest:
    cdef StreamStore store
    cdef Sublist subs                   # the sink of each subscription is its StreamConsumer
    cdef dict subs_by_name              # consumer's name -> its subscriptions
    cdef StreamInbox inbox              # lists the waiting consumers
    cdef readonly uint64_t woken_seq    # all messages up to this seq were checked for waiting consumers

    cdef bint wanted(self, const char* subject, size_t n) noexcept nogil        # some filter matches
    cdef bint wants(self, uint64_t seq) noexcept nogil      # of a stored message; checks where consumers begin
    cdef bint needed(self, uint64_t seq) noexcept       # a consumer with a matching filter has not acknowledged it
    cdef int tell(self, list purges) except -1
    cdef void tell_drops(self) noexcept
    cdef void wake(self, uint64_t last_seq) noexcept
    cdef void wake_route(self, Route* r, uint64_t seq) noexcept
    cdef void wake_all(self) noexcept

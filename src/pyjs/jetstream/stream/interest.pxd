"""The consumers of one stream, by subject."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.jetstream.stream.stream_consumer cimport StreamInbox
from pyjs.store.store cimport StreamStore
from pyjs.subjects.routes cimport Route
from pyjs.subjects.sublist cimport Sublist

cdef class Interest:
    cdef StreamStore store
    cdef Sublist subs                   # the sink of each subscription is its StreamConsumer
    cdef dict subs_by_name              # name of a consumer -> its subscriptions
    cdef StreamInbox inbox              # has the list of waiting consumers
    cdef uint64_t lookups               # number of calls of `matching`
    cdef readonly uint64_t woken_seq    # up to this seq, messages were compared with the filters of waiting consumers

    cdef list matching(self, dict subjects)
    cdef bint wanted(self, const char* subject, size_t n) noexcept nogil        # a filter of some consumer matches
    # the same for a stored message; considers where consumers begin
    cdef bint wants(self, uint64_t seq) noexcept nogil
    # a consumer with a matching filter has not acknowledged the message
    cdef bint needed(self, uint64_t seq) noexcept
    cdef int tell(self, list purges) except -1
    cdef void tell_drops(self) noexcept
    cdef void wake(self, uint64_t last_seq) noexcept
    cdef void wake_route(self, Route* r, uint64_t seq) noexcept
    cdef void wake_all(self) noexcept

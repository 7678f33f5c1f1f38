"""A consumer, as its stream sees it, and what it tells the stream."""
from libc.stdint cimport uint64_t

from pyjs.core.sink cimport Sink, Turn

cdef class StreamConsumer(Sink):
    cdef readonly str name              # its key in Stream.consumers
    cdef public object config           # consumer_config.ConsumerConfig
    cdef public tuple filters           # bytes: what it wants; empty: everything
    cdef readonly StreamInbox inbox     # of the stream that it is with; None: of none
    cdef uint64_t told_seq              # the drop it was told of last: several of its filters may match

    cpdef void wake(self, uint64_t seq) noexcept
    cpdef bint needs(self, uint64_t seq) noexcept
    cpdef void dropped(self, uint64_t seq) noexcept
    cpdef list take_settled(self, size_t most)

cdef class StreamInbox:
    cdef Turn turn
    cdef object stream                  # whose it is, None: it has ended
    cdef public bint asks               # the stream wants to know what is settled: interest and workqueue retention
    cdef bint queued                    # the stream is in Turn.inboxes
    cdef readonly dict waiting          # consumers that have caught up, to be woken by the next message for them
    cdef readonly dict settled          # consumers that have settled messages; both in order, the values are None

    cpdef void caught_up(self, StreamConsumer consumer)
    cpdef void has_settled(self, StreamConsumer consumer)
    cdef StreamConsumer next_settled(self)
    cdef int queue(self) except -1

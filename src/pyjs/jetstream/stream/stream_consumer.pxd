"""A consumer, as its stream sees it."""
from libc.stdint cimport uint64_t

from pyjs.core.sink cimport Sink

cdef class StreamConsumer(Sink):
    cdef readonly str name              # its key in Stream.consumers
    cdef public object config           # consumer_config.ConsumerConfig
    cdef public tuple filters           # bytes: what it wants; empty: everything
    cdef readonly list settled          # sequences not needed any more; drained by the stream
    cdef public object settle           # called after `settled` grew; None: the stream does not ask (limits)
    cdef public object wait             # called when caught up: wake me when there are messages
    cdef bint waits                     # `wait` was called, and no wake since
    cdef uint64_t told_seq              # the drop it was told of last: several of its filters may match

    cpdef void wake(self, uint64_t seq) noexcept
    cpdef bint needs(self, uint64_t seq) noexcept
    cpdef void dropped(self, uint64_t seq) noexcept
    cpdef void hand_over(self, size_t most)

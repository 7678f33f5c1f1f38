"""The interface between a stream and its consumers."""
from libc.stdint cimport uint64_t

from pyjs.core.sink cimport Sink, Turn

cdef class StreamConsumer(Sink):
    cdef readonly str name              # its key in Stream.consumers
    cdef public object config           # consumer_config.ConsumerConfig
    cdef public tuple filters           # its filter subjects as bytes; empty: all messages
    cdef readonly StreamInbox inbox     # of its stream; None: not connected
    cdef uint64_t told_seq              # seq of the last removal, reported once even if several filters match

    cpdef void wake(self, uint64_t seq) noexcept
    cpdef bint needs(self, uint64_t seq) noexcept
    cpdef void dropped(self, uint64_t seq) noexcept
    cpdef list take_acknowledged(self, size_t most)

cdef class StreamInbox:
    cdef Turn turn
    cdef object stream                  # None: closed
    cdef public bint asks               # the stream wants acknowledged sequences: interest and workqueue retention
    cdef bint queued                    # the stream is in Turn.inboxes
    cdef readonly dict waiting          # consumers without messages, to be woken by the next match
    cdef readonly dict acknowledged     # consumers with acknowledged sequences; both dicts: in order, values None

    cpdef void caught_up(self, StreamConsumer consumer)
    cpdef void has_acknowledged(self, StreamConsumer consumer)
    cdef StreamConsumer next_acknowledged(self)
    cdef int queue(self) except -1

"""The interface between a stream and its consumers."""
from libc.stdint cimport uint64_t

from pyjs.core.sink cimport Sink, Turn

cdef class StreamConsumer(Sink):
    cdef readonly str name              # its name, which is the key in Stream.consumers
    cdef public object config           # config.consumer.ConsumerConfig
    cdef public tuple filters           # its filter subjects as bytes; empty: all messages
    cdef readonly StreamInbox inbox     # inbox of its stream; None: it is not connected
    cdef uint64_t found_by              # number of the last call of Interest.matching that found it
    cdef uint64_t told_seq  # seq of the last reported removal, which is reported once even if several filters match

    cpdef void wake(self, uint64_t seq) noexcept
    cpdef bint needs(self, uint64_t seq) noexcept
    cpdef void dropped(self, uint64_t seq) noexcept
    cpdef list take_acknowledged(self, size_t most)

cdef class StreamInbox:
    cdef Turn turn
    cdef object stream                  # None: the stream is closed
    cdef public bint asks  # the stream needs the acknowledged sequences, since its retention is interest or workqueue
    cdef bint queued                    # the stream is in Turn.inboxes
    cdef readonly dict waiting          # consumers that have no messages, and are woken by the next match
    cdef readonly dict acknowledged     # consumers with acknowledged sequences; both dicts are ordered sets

    cpdef void caught_up(self, StreamConsumer consumer)
    cpdef void has_acknowledged(self, StreamConsumer consumer)
    cdef StreamConsumer next_acknowledged(self)
    cdef int queue(self) except -1

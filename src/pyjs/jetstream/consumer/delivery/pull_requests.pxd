"""The waiting requests of a pull consumer, and which of them is served next."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.jetstream.consumer.delivery.writer cimport DeliveryWriter
from pyjs.jetstream.consumer.delivery.outcome cimport Outcome
from pyjs.jetstream.consumer.delivery.pin cimport Pin
from pyjs.jetstream.consumer.delivery.waiting cimport Waiting, WaitingQueue
from pyjs.wire.ops cimport Msg

cdef enum Priority:             # which of the waiting requests are served
    PRIORITY_NONE
    PRIORITY_OVERFLOW
    PRIORITY_PINNED
    PRIORITY_PRIORITIZED

cdef class PullRequests:
    cdef readonly WaitingQueue queue
    cdef readonly Pin pin
    cdef Account account
    cdef DeliveryWriter writer
    cdef object rng
    cdef object events                  # consumer_advisories.ConsumerEvents
    cdef Priority priority
    cdef str group                      # the priority group that works, "": none

    cdef Outcome send(self, Msg* m, int64_t size, uint64_t unread, uint64_t ack_pending, int64_t now) noexcept nogil
    cdef bint may_have(self, Waiting* w, uint64_t unread, uint64_t ack_pending) noexcept nogil
    cdef int publish(self, Waiting* w, Msg* m, int64_t now) noexcept nogil
    cdef void assign_pin(self, Waiting* w, int64_t now) noexcept
    cdef void end_head(self, bytes text) noexcept

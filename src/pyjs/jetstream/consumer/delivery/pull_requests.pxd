"""The waiting requests of a pull consumer, and which of them is served next."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.jetstream.consumer.delivery.outcome cimport Outcome
from pyjs.jetstream.consumer.delivery.writer cimport DeliveryWriter
from pyjs.wire.ops cimport Msg

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

cdef enum:
    NO_PIN = 0xffffffff                 # the number of pins that are not there any more

cdef class Pin:
    cdef uint64_t number                # of the pin that a client has; 0: nobody has one
    cdef readonly bytes id              # as the client knows it, b"": nobody has one
    cdef char[22] text                  # the same
    cdef readonly str group             # of that client
    cdef readonly int64_t pinned_at     # ns, 0: nobody has one
    cdef int64_t until                  # when it ends, unless its client asks again
    cdef int64_t wait_ns                # how long a client that does not ask again has it
    cdef uint64_t assigned              # pins so far

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

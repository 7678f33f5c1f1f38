"""The waiting pull requests of a consumer, and the choice of the one that gets the next message."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.jetstream.consumer.delivery.outcome cimport Outcome
from pyjs.jetstream.consumer.delivery.writer cimport DeliveryWriter
from pyjs.wire.ops cimport Msg

cdef struct Waiting:
    char* reply                 # owned by this struct
    uint32_t reply_len
    int64_t left                # messages still to send; a batch of 0 counts as 1
    int64_t bytes_left          # 0: no limit of bytes
    int64_t delivered
    int64_t expires_at          # ns; 0: never
    int64_t heartbeat_ns        # ns between two heartbeats; 0: none
    int64_t heartbeat_at        # ns: time of the next heartbeat
    bint no_wait
    bint grouped                # the request names a priority group
    int64_t min_pending         # policy overflow: served if num_pending is at least this,
    int64_t min_ack_pending     # or num_ack_pending is at least this; if both are 0, always
    int64_t priority            # policy prioritized: the smallest number is served first
    uint64_t pin                # policy pinned_client: number of the client's pin; 0: it has none
    Waiting* next

cdef class WaitingQueue:
    cdef Waiting* head
    cdef Waiting* tail
    cdef readonly int64_t count
    cdef readonly int64_t no_wait       # number of requests that end when no messages are left
    cdef readonly int64_t max
    cdef int64_t wake_at                # ns: no expiry or heartbeat is due before this; 0: none is due at all
    cdef public bint by_priority        # the lowest priority number is served first, instead of the oldest request
    cdef void insert(self, Waiting* w) noexcept nogil
    cdef void rotate(self) noexcept nogil
    cdef void drop_head(self) noexcept nogil
    cdef void remove(self, Waiting* before, Waiting* w) noexcept nogil
    cdef void note_time(self, Waiting* w) noexcept nogil
    cdef bint served(self, int64_t size, int64_t now) noexcept nogil

cdef enum:
    NO_PIN = 0xffffffff                 # number of a pin that is no longer valid

cdef class Pin:
    cdef uint64_t number                # number of the valid pin; 0: none
    cdef readonly bytes id              # the id that clients see; b"": none
    cdef char[22] text                  # the bytes of `id`
    cdef readonly str group             # of the pinned client
    cdef readonly int64_t pinned_at     # ns, 0: no pin
    cdef int64_t until                  # ns: end of the pin, unless its client sends another request
    cdef int64_t wait_ns                # ns that a pin is valid after its client's last request
    cdef uint64_t assigned              # number of pins assigned so far

cdef enum Priority:             # which waiting requests are served
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
    cdef object events                  # advisories.ConsumerEvents
    cdef Priority priority
    cdef str group                      # the consumer's priority group; "": none
    cdef bytes last                     # the status for requests after `end_all`

    cdef Outcome send(self, Msg* m, int64_t size, uint64_t unread, uint64_t ack_pending, int64_t now) noexcept nogil
    cdef bint may_have(self, Waiting* w, uint64_t unread, uint64_t ack_pending) noexcept nogil
    cdef int publish(self, Waiting* w, Msg* m, int64_t now) noexcept nogil
    cdef void assign_pin(self, Waiting* w, int64_t now) noexcept
    cdef void end_head(self, bytes text) noexcept

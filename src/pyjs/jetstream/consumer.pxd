"""One consumer: delivers a stream's messages, takes acks."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.consumer_core cimport ConsumerCore

cdef class Consumer(ConsumerCore):
    cdef readonly str stream_name
    cdef readonly int64_t created_ns
    cdef public object expired          # called when inactive_threshold has passed: remove me
    cdef readonly object timers, events
    cdef public object file             # what keeps the state, None: nothing does
    cdef object metadata                # metadata.MetadataWriter, for whole states; None: they are written at once
    cdef bint keeping                   # a whole state is being written, and the consumer waits for it
    cdef bint kept_badly                # it could not be: the next one is written at once
    cdef readonly bytes flow_id         # reply subject of the outstanding flow control request
    cdef readonly str pin_group         # of the client that has the pin
    cdef readonly int64_t pinned_at
    cdef int64_t pin_until              # when the pin ends, unless its client asks again
    cdef uint64_t pins                  # that were ever given
    cdef bint sync_always               # acks are confirmed after the sync, not after the write
    cdef bytes prefix2
    cdef tuple names                    # of stream and consumer in ack subjects: short, and with domain and account
    cdef str shown_names                # the one of them that deliveries carry
    cdef str domain
    cdef list subscriptions
    cdef int64_t threshold              # inactive_threshold with its jitter; 0: lives for ever
    cdef int64_t heartbeat_ns           # push: how long nothing may be sent; 0: no limit
    cdef int64_t pin_wait_ns            # how long a client that does not ask again has the pin
    cdef int64_t unbound_at             # push: since when nobody listens
    cdef object timer                   # base.timers.Timer
    cdef int64_t timer_at
    cdef bint left                      # stopped; before that it may be closed

    cdef void publish_replies(self, const char* replies, size_t end) noexcept
    cdef bytes head_reply(self)
    cdef void wake_by(self, int64_t* best, int64_t at) noexcept nogil

"""The subscribers of a push consumer, and its flow control."""
from libc.stdint cimport int64_t, uint32_t

from pyjs.core.account cimport Account

cdef enum FlowState:
    FLOW_OFF                    # not configured
    FLOW_OPEN                   # no request is outstanding
    FLOW_ASKED                  # a request is outstanding

cdef class FlowControl:
    cdef FlowState state
    cdef readonly int64_t window        # bytes
    cdef readonly int64_t pending       # bytes sent and not confirmed
    cdef readonly int64_t asked         # bytes that the outstanding request covers; asked <= pending
    cdef readonly bytes reply           # subject of the outstanding request, b"": none

    cdef bint has_room(self) noexcept nogil
    cdef bint note_sent(self, int64_t size) noexcept nogil

cdef class PushSubject:
    cdef readonly bytes subject
    cdef const char* text               # points into the subject
    cdef uint32_t length
    cdef bytes group                    # queue group, b"": none
    cdef readonly bint bound            # a subscription has exactly this subject and group
    cdef bint changed                   # subscriptions changed: call `update_bound`
    cdef int64_t unbound_at             # ns: when it became unbound
    cdef int64_t sent_at                # ns: last message or heartbeat
    cdef int64_t heartbeat_ns           # longest time without a message or heartbeat; 0: unlimited

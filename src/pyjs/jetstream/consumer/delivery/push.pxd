"""The subscribers of a push consumer, and its flow control."""
from libc.stdint cimport int64_t, uint32_t

from pyjs.core.account cimport Account

cdef enum FlowState:
    FLOW_OFF                    # not configured
    FLOW_OPEN                   # no flow control request is outstanding
    FLOW_ASKED                  # a request is outstanding

cdef class FlowControl:
    cdef FlowState state
    cdef readonly int64_t window        # bytes
    cdef readonly int64_t pending       # bytes that were sent and not confirmed yet
    cdef readonly int64_t asked         # bytes covered by the outstanding request; asked <= pending
    cdef readonly bytes reply           # reply subject of the outstanding request; b"": there is none

    cdef bint has_room(self) noexcept nogil
    cdef bint note_sent(self, int64_t size) noexcept nogil

cdef class PushSubject:
    cdef readonly bytes subject
    cdef const char* text               # points into the subject
    cdef uint32_t length
    cdef bytes group                    # queue group; b"": none
    cdef readonly bint bound            # a subscription has exactly this subject and this group
    cdef bint changed                   # subscriptions may have changed: `update_bound` must be called
    cdef int64_t unbound_at             # ns: time since which it is not bound
    cdef int64_t sent_at                # ns: time of the last message or heartbeat
    cdef int64_t heartbeat_ns           # ns: longest time without a message or heartbeat; 0: no limit

"""What a push consumer knows of its subscribers."""
from libc.stdint cimport int64_t, uint32_t

from pyjs.core.account cimport Account

cdef enum FlowState:
    FLOW_OFF                    # the consumer has none
    FLOW_OPEN                   # no request is outstanding
    FLOW_ASKED                  # a request is not answered yet

cdef class FlowControl:
    cdef FlowState state
    cdef readonly int64_t window        # bytes
    cdef readonly int64_t pending       # bytes sent and not confirmed
    cdef readonly int64_t asked         # of them, those that the outstanding request covers
    cdef readonly bytes reply           # subject of the outstanding request, b"": none

    cdef bint has_room(self) noexcept nogil
    cdef bint note_sent(self, int64_t size) noexcept nogil

cdef class PushSubject:
    cdef readonly bytes subject
    cdef const char* text               # of the subject
    cdef uint32_t length
    cdef bytes group                    # queue group, b"": none
    cdef readonly bint bound            # somebody listens
    cdef bint changed                   # subscriptions changed: `look` again
    cdef int64_t unbound_at             # ns: since when nobody listens
    cdef int64_t sent_at                # ns: last message or heartbeat
    cdef int64_t heartbeat_ns           # how long nothing may be sent; 0: no limit

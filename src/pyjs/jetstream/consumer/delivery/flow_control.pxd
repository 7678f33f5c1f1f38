"""Flow control of a push consumer: how many bytes may be on their way."""
from libc.stdint cimport int64_t

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

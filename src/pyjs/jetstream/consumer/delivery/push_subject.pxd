"""The deliver subject of a push consumer, and who listens to it."""
from libc.stdint cimport int64_t, uint32_t

from pyjs.core.account cimport Account

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

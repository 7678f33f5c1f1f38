"""The subscription of a stream import in the exporting account."""
from libc.stdint cimport uint32_t

from pyjs.core.sink cimport Sink
from pyjs.subjects.rewrite cimport Rewrite
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.wire.ops cimport Msg

cdef class Shadow(Sink):
    cdef Subscription real              # the subscription in the importing account
    cdef Rewrite rewrite                # None: `local`, or the subject does not change
    cdef bytes local                    # b"": the subject does not change
    cdef const char* text               # of `local`; NULL: b""
    cdef uint32_t text_len
    cdef str importer                   # the name of the importing account
    cdef bint allow_trace               # a trace continues in the importing account

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1
    cdef int pass_on(self, Msg* m, Target* t, const char* subject, uint32_t n) noexcept nogil

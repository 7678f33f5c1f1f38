"""The subscription of a service import in the importing account."""
from libc.stdint cimport uint32_t

from pyjs.core.account cimport Account
from pyjs.core.exchange.envelope cimport Envelope
from pyjs.core.exchange.infos cimport Infos
from pyjs.core.exchange.pending cimport Pending
from pyjs.core.exchange.responses cimport Hop, Responses, ServiceCalls
from pyjs.core.sink cimport Sink
from pyjs.subjects.rewrite cimport Rewrite
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef class ServiceSink(Sink):
    cdef readonly Account importer, exporter
    cdef readonly ServiceCalls calls
    cdef readonly bint internal
    cdef readonly bint stays_here       # every server handles these requests itself
    cdef Infos infos
    cdef bytes own    # the header's value for a message that the server itself sends (republished messages, PubAcks)
    cdef const char* own_text
    cdef uint32_t own_len
    cdef object extend    # callable(text, importer, add_server) -> text, for a request that passed another import
    cdef Rewrite rewrite                # None: `to`, or the subject does not change
    cdef bytes to                       # b"": the subject does not change
    cdef const char* text               # of `to`; NULL: b""
    cdef uint32_t text_len
    cdef bint share
    cdef object trace                   # of the request being delivered; None: none

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1
    cdef int send_request(self, Msg* m, Envelope* e) noexcept nogil
    cdef int publish_traced(self, Msg* m, Msg* sent) noexcept nogil
    cdef void end_traced(self, Pending* p) noexcept nogil
    cdef int set_subject(self, Msg* m, Envelope* e) noexcept nogil
    cdef int describe(self, Msg* m, Envelope* e) noexcept nogil
    cdef int describe_again(self, Msg* m, Envelope* e, const char* info, uint32_t n) noexcept
    cdef object measure(self, Msg* m)
    cdef Pending* add_measured(self, Msg* m) noexcept

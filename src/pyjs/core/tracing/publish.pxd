"""One publish whose headers request a trace."""
from pyjs.core.account cimport Account
from pyjs.core.sink cimport Turn
from pyjs.wire.ops cimport Msg

cdef class TracedPublish:
    cdef Turn turn
    cdef object session
    cdef Msg sent               # the message to deliver, whose headers may differ from the client's
    cdef bytes body, tail       # own the bytes of `sent`, if its headers differ
    cdef object trace           # None: the message is not traced

    cdef bint begin(self, Msg* m) noexcept          # False: the message must not be delivered
    cdef int deliver(self, Account account) noexcept
    cdef void end(self) noexcept
    cdef void failed(self, object error) noexcept
    cdef void replace_headers(self, Msg* m, bytes headers) except *

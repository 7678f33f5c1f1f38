"""A message forwarded to another account: the changed parts, and the memory they occupy."""
from libc.stdint cimport uint32_t

from pyjs.wire.compose cimport TAIL_SIZE_MAX
from pyjs.wire.ops cimport Msg

cdef struct Envelope:
    Msg m
    char* subject               # owned; NULL: borrowed
    char* body                  # owned; NULL: borrowed
    char* tail

cdef void envelope_open(Envelope* e, Msg* m) noexcept nogil     # start with a copy of `m` that owns nothing
cdef void envelope_free(Envelope* e) noexcept nogil
# These functions return -1 if out of memory.
cdef int set_reply(Envelope* e, const char* reply, uint32_t n) noexcept nogil       # n = 0: no reply
cdef int set_info(Envelope* e, const char* info, uint32_t n) noexcept nogil         # call set_reply after this
# Return the value of Nats-Request-Info in the headers of `m`, or NULL if there is none.
cdef const char* find_info(Msg* m, uint32_t* n) noexcept nogil

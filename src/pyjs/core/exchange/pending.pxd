"""Requests across accounts that wait for their responses."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

cdef enum:
    TOKEN_SIZE_MAX = 64

cdef struct Pending:
    Pending* newer              # neighbours in the import's list
    Pending* older
    PyObject* table             # the Responses object that has this entry; borrowed
    PyObject* calls             # ServiceCalls of the import, borrowed
    PyObject* account           # Account that gets the response, borrowed
    PyObject* tracked           # latency.Tracked, an owned reference; NULL: not measured
    int64_t at_ns               # time of the request, or of the last response if there are several
    uint32_t token_len
    uint32_t reply_len
    uint32_t busy               # deliveries in progress
    bint removed                # to be freed at the end of the last delivery
    bint answered               # a response has arrived
    char token[TOKEN_SIZE_MAX]  # the subject of the response
    char reply[1]               # the subject on which the client waits; reply_len bytes

cdef class PendingList:
    """The pending requests of one service import, oldest first."""
    cdef Pending* oldest
    cdef Pending* newest
    cdef readonly size_t count

    cdef Pending* new(self, const char* reply, uint32_t reply_len) noexcept nogil   # NULL: out of memory; not linked
    cdef void link(self, Pending* p) noexcept nogil             # as the newest
    cdef void unlink(self, Pending* p) noexcept nogil
    # unlink and free; if deliveries use it, `forget` frees it later
    cdef void release(self, Pending* p) noexcept nogil
    cdef void forget(self, Pending* p) noexcept nogil           # free a released entry once no delivery uses it

cdef void pending_free(Pending* p) noexcept nogil

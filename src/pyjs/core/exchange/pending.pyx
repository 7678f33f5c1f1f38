"""The list of requests across accounts that wait for their responses, in the order in which they time out.

A released entry is freed as soon as no delivery uses it.

Compiled, because changed twice for each request across accounts (measured in benchmarks/: request/reply across a
service import).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cpython.ref cimport Py_XDECREF


cdef void pending_free(Pending* p) noexcept nogil:
    if p.tracked != NULL:
        with gil:
            Py_XDECREF(p.tracked)
    free(p)


cdef class PendingList:
    """The pending requests of one service import."""

    def __dealloc__(self):
        while self.oldest != NULL:
            self.release(self.oldest)

    cdef Pending* new(self, const char* reply, uint32_t reply_len) noexcept nogil:
        cdef Pending* p = <Pending*> malloc(sizeof(Pending) + reply_len)
        if p == NULL:
            return NULL
        memset(p, 0, sizeof(Pending))
        memcpy(p.reply, reply, reply_len)
        p.reply_len = reply_len
        return p

    cdef void link(self, Pending* p) noexcept nogil:
        p.newer = NULL
        p.older = self.newest
        if self.newest != NULL:
            self.newest.newer = p
        else:
            self.oldest = p
        self.newest = p
        self.count += 1

    cdef void unlink(self, Pending* p) noexcept nogil:
        if p.older != NULL:
            p.older.newer = p.newer
        else:
            self.oldest = p.newer
        if p.newer != NULL:
            p.newer.older = p.older
        else:
            self.newest = p.older
        self.count -= 1

    cdef void release(self, Pending* p) noexcept nogil:
        self.unlink(p)
        p.removed = True
        self.forget(p)

    cdef void forget(self, Pending* p) noexcept nogil:
        if not p.busy:
            pending_free(p)

"""What was dropped from a store since somebody last asked: the consumers of a stream count by it.

Knows nothing of stores. Without memory a drop is not told of. Compiled because limits drop a message per publish
(benchmarks/: JetStream rows).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free
from libc.string cimport memcpy

from pyjs.base.grow cimport grow


cdef class DropLog:
    def __dealloc__(self):
        free(self.data)

    cdef void add(self, uint64_t seq, const char* subject, uint32_t n) noexcept nogil:
        cdef char* p
        if grow(<void**> &self.data, &self.room, self.size + 12 + n, 1) != 0:
            return
        p = self.data + self.size
        memcpy(p, &seq, 8)
        memcpy(p + 8, &n, 4)
        memcpy(p + 12, subject, n)
        self.size += 12 + n

    def take(self) -> list:
        """Return (sequence, subject) of every message dropped since the last call. For tests."""
        cdef size_t at = 0
        cdef uint64_t seq = 0
        cdef uint32_t n = 0
        drops = []
        while at < self.size:
            memcpy(&seq, self.data + at, 8)
            memcpy(&n, self.data + at + 8, 4)
            drops.append((seq, PyBytes_FromStringAndSize(self.data + at + 12, n)))
            at += 12 + n
        self.size = 0
        return drops

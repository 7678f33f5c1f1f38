"""Sequences that a consumer needs no more, on their way to its stream: taken a part at a time, in order.

Knows nothing of either. Compiled because every ack of an interest or workqueue stream passes here (benchmarks/:
pull with explicit acks).
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from pyjs.base.grow cimport grow

cdef enum:
    ROOM_KEPT = 2048            # sequences: more memory than that is given back


cdef class SettledQueue:
    """The sequences of one consumer."""

    def __dealloc__(self):
        free(self.seqs)

    cdef void add(self, uint64_t seq) noexcept nogil:
        """Queue a sequence; without memory its message stays in the stream."""
        if grow(<void**> &self.seqs, &self.room, self.count + 1, sizeof(uint64_t)) < 0:
            return
        self.seqs[self.count] = seq
        self.count += 1

    cdef list take(self, size_t most):
        """Return the next sequences, up to `most`."""
        cdef size_t n = min(self.count - self.taken, most)
        out = [self.seqs[self.taken + i] for i in range(n)]
        self.taken += n
        if self.taken == self.count:
            self.count = self.taken = 0
            if self.room > ROOM_KEPT:
                free(self.seqs)
                self.seqs = NULL
                self.room = 0
        return out

"""Bytes held by many streams together, against one limit.

One for each account and storage, one for each server and storage. Streams add what they store and subtract what
they drop; nothing else changes `used`. Compiled because ingest compares it for every message (benchmarks/:
JetStream async publish).
"""


cdef class Usage:
    """A sum of bytes and its limit."""

    def __cinit__(self, int64_t limit=-1):
        self.max = limit


cdef class UsageShare:
    """What one stream holds of its account's usage and of the server's."""

    def __cinit__(self, Usage account, Usage server):
        self.account, self.server = account, server

    cdef void count(self, int64_t stored) noexcept nogil:
        """Hold `stored` bytes from now on."""
        cdef int64_t change = stored - self.counted
        self.counted = stored
        self.account.used += change
        self.server.used += change

"""Bytes held by many streams together, against one limit.

One for each account and storage, one for each server and storage. Streams add what they store and subtract what
they drop; nothing else changes `used`. Compiled because ingest compares it for every message (benchmarks/:
JetStream async publish).
"""


cdef class Usage:
    """A sum of bytes and its limit."""

    def __cinit__(self, int64_t limit=-1):
        self.max = limit

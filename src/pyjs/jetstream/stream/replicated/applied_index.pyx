"""The index of the last entry that was applied to a state that may be newer than the store of its replica.

Compiled, because it changes with each entry of a replicated stream (benchmarks/replica.py).
"""
from libc.stdint cimport uint64_t


cdef class AppliedIndex:
    """The index of the last entry that was applied to a state, which is a subclass."""

    cpdef begin(self, uint64_t index):
        """Begin to apply the entry with index `index`."""
        self.has_entry = index <= self.index
        if not self.has_entry:
            self.index = index

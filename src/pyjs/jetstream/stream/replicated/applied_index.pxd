"""The index of the last entry that was applied to a state."""
from libc.stdint cimport uint64_t

cdef class AppliedIndex:
    cdef public uint64_t index
    cdef readonly bint has_entry        # the state already has the entry that is being applied

    cpdef begin(self, uint64_t index)

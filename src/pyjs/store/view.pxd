"""Memory with the plain image of one segment file, filled where it is read."""
from libc.stdint cimport uint64_t

from pyjs.store.index cimport Filled

cdef class View:
    """The image of a segment in memory of our own. Who points into it keeps it."""
    cdef char* memory
    cdef readonly uint64_t size
    cdef Filled filled
    cdef object image               # store/form.PlainImage
    cdef dict torn                  # chunk -> (up to where it was read, places in it that could not be)

    cdef int fill(self, object fd, uint64_t begin, uint64_t end, uint64_t limit) except -1
    cdef void put(self, const char* data, uint64_t at, size_t n) noexcept nogil
    cdef int fill_chunk(self, uint64_t chunk, uint64_t limit) except -1

"""The subject mappings of an account."""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from pyjs.subjects.rewrite cimport Rewrite

cdef class Destinations:
    """The destinations of one subject, smallest weight first, with cumulative weights."""
    cdef Rewrite source                 # source of the first destination, whose `fits` decides for all
    cdef list rewrites
    cdef PyObject* items[101]           # the destinations, borrowed
    cdef uint32_t sums[101]             # cumulative weights, in percent
    cdef uint32_t count

cdef class Mappings:
    cdef readonly list entries          # Destinations, in the order of the declaration
    cdef PyObject** items               # the entries, borrowed
    cdef size_t count
    cdef uint64_t random_state

    # Return the mapped subject of a message published to s[:n], in memory that the caller frees; NULL: it is
    # not mapped. A returned size of 0 means that the message is dropped.
    cdef char* select(self, const char* s, size_t n, uint32_t* size) noexcept nogil
    cdef char* map_to(self, Destinations entry, const char* s, size_t n, uint32_t* size) noexcept nogil

"""Guarded maps: unreadable pages become zeros."""
from libc.stdint cimport uint64_t

cdef uint64_t bad_pages() noexcept nogil                        # number of pages replaced by zeros so far
cdef bint is_readable(const char* p, size_t n) noexcept nogil   # False: a page was unreadable, and now has zeros

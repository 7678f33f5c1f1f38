"""Cached decisions about whether a user may publish to a subject."""
from pyjs.base.table cimport Table

cdef class Decisions:
    cdef Table table                    # literal subject -> MAY or MAY_NOT

    # Return whether the subject is known to be allowed. False means denied, or not decided yet.
    cdef bint allow(self, const char* subject, size_t n) noexcept nogil

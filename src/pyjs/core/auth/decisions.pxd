"""Decisions about publishing, by subject."""
from pyjs.base.table cimport Table

cdef class Decisions:
    cdef Table table                    # literal subject -> MAY or MAY_NOT

    # Whether the subject is known to be allowed; False also for one that has not been decided.
    cdef bint allow(self, const char* subject, size_t n) noexcept nogil

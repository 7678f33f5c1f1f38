"""Deadlines: one heap of (time, callback)."""
from libc.stdint cimport uint64_t

cdef class Timer:
    cdef Timers timers
    cdef readonly object deadline_ns    # an int, which may be beyond 64 bits
    cdef object callback                # None: it has fired, or is cancelled
    cdef readonly object owner          # the object whose state the callback changes

cdef class Timers:
    cdef list heap                      # of (deadline, order, Timer)
    cdef uint64_t order                 # breaks ties: of equal deadlines, the one added first fires first
    cdef Py_ssize_t cancelled           # deadlines in the heap that will never fire

    cdef int note_cancelled(self) except -1
    cpdef next_deadline_ns(self)
    cdef bint is_due(self, now_ns) except -1
    cpdef due(self, now_ns)
    cpdef pop(self)

"""Deadlines: one heap of (time, callback)."""
from libc.stdint cimport uint64_t

cdef class Timer:
    cdef Timers timers
    cdef readonly object deadline_ns    # ns, an int that may be beyond 64 bits
    cdef object callback                # None: the deadline has fired or is cancelled
    cdef readonly object owner          # the object whose state the callback changes

cdef class Timers:
    cdef list heap                      # of (deadline, order, Timer)
    cdef uint64_t order                 # of equal deadlines, the one with the lower number fires first
    cdef Py_ssize_t cancelled           # number of cancelled deadlines still in the heap

    cdef int note_cancelled(self) except -1
    cpdef next_deadline_ns(self)
    cdef bint is_due(self, now_ns) except -1
    cpdef due(self, now_ns)
    cpdef pop(self)

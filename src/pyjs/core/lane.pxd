"""One kind of work of a turn."""
from libc.stdint cimport int64_t, uint64_t

cdef class Lane:
    """The work of one kind: new items, and items left from earlier turns."""
    cdef object clock
    cdef public object do    # called with an item; a true result requests another call later, in fair order
    cdef object owner_of
    cdef object failed
    cdef readonly object waiting        # FairQueue of items left from earlier turns; only the lane changes it
    cdef Py_ssize_t behind              # number of waiting items
    cdef Py_ssize_t items, stride, few  # from the share
    cdef int64_t ns                     # from the share
    cdef uint64_t turn                  # the turn to which `left` and `left_ns` belong
    cdef Py_ssize_t left                # items of the share that are left in this turn
    cdef int64_t left_ns

    cpdef run(self, list fresh, uint64_t turn)
    cdef run_fresh(self, list fresh, int64_t deadline_ns)
    cdef run_waiting(self, int64_t deadline_ns, bint has_turn)
    cdef attempt(self, item)
    cdef bint has_room(self, Py_ssize_t done, int64_t deadline_ns) except -1
    cdef queue(self, list items, Py_ssize_t begin)

"""One turn of the node, and the turns of a node."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.base.timers cimport Timers
from pyjs.core.lane cimport Lane
from pyjs.core.sink cimport Turn
from pyjs.subjects.routes cimport RouteCache

cdef class Scheduler:
    """The runner of one node's turns, with a lane for each kind of work."""
    cdef Turn state
    cdef Timers timers
    cdef object clock
    cdef object faults
    cdef object timers_share
    cdef bint timers_left               # the last turn had no time for all passed deadlines
    cdef bint backlog                   # a lane has work that the last turn did not finish
    cdef readonly uint64_t turns        # number of the current full or partial turn, for the lanes
    cdef Lane jobs, commits, consensus, requests, pumps, inboxes, chores, flushes
    cdef readonly tuple lanes

    cpdef turn(self, int64_t now_ns)
    cpdef relieve(self, int64_t now_ns)
    cdef bint is_busy(self) except -1
    cdef exchange(self, bint with_requests)
    cdef flush(self)
    cdef fire_timers(self, int64_t now_ns)
    cdef resume_inputs(self)
    cdef report(self, kind, item, error)

cdef class Turns:
    """The turns of a node, which is a subclass."""
    cdef readonly Scheduler scheduler
    cdef readonly RouteCache routes     # shared by all accounts
    cdef object trim_timer              # base.timers.Timer for the next `trim`; None: not set
    cdef int64_t skew_due_ns            # time at which the wall clock is read again
    cdef bint in_turn

    cdef end(self, int64_t now_ns)

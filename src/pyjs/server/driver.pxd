"""The turns of the node on the event loop."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.base.timers cimport Timers
from pyjs.core.sink cimport Turn

cdef class Driver:
    """The scheduler of one node's turns, on one event loop."""
    cdef readonly object loop           # asyncio.AbstractEventLoop
    cdef readonly object node           # pyjs.node.Node
    cdef readonly object endings        # endings.Endings
    cdef readonly bytearray buffer      # for the input of any connection; the next read overwrites it
    cdef public list after_turn         # hooks, called after each turn
    cdef public list jobs_queued        # hooks, called after a turn that leaves Turn.jobs
    cdef public list upkeep_queued      # hooks, called after a turn that leaves Turn.upkeep
    cdef list lists                     # (list, hook): the hook is called after a turn if the list is not empty
    cdef list once                      # hooks of `after_next_turn`
    cdef Turn state                     # of the node
    cdef public int64_t waked_ns        # time of the first `wake` since the last turn, ns
    cdef object clock
    cdef Timers deadlines               # of the node
    cdef object timer                   # asyncio.TimerHandle; None: not set
    cdef int64_t armed_ns               # deadline of `timer`
    cdef bint waked                     # a turn is scheduled
    cdef bint has_read                  # a read requested the scheduled turn
    # consecutive reads that were alone in their iteration; negative after an iteration with several reads
    cdef int lone
    cdef bint stopped
    cdef uint64_t turns
    cdef int64_t busy_ns                # time in turns
    cdef uint64_t overruns              # turns longer than OVERRUN_NS
    cdef int64_t longest_ns             # the longest turn since the last `take_loop`

    cpdef wake(self)
    cpdef wake_for_input(self)
    cpdef wake_if_needed(self)
    cpdef turn_now(self)
    cdef call_hooks(self)
    cdef turn(self)
    cdef arm(self)
    cdef bint is_early(self, int64_t deadline_ns) except -1

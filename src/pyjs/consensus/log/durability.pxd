"""The durable writes of the log, and the work that waits for them, in the order of turns."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.core.sink cimport Turn

cdef class Due:
    cdef readonly object kind       # a Waits
    cdef readonly uint64_t token    # for STORED: the engine's token for the writes
    cdef readonly object member     # for the other kinds; another object if the group was reopened meanwhile
    cdef readonly uint64_t index    # for INSTALLED: index of the snapshot
    cdef uint64_t number            # number of the write for which it waits


cdef class Durability:
    cdef readonly bint is_always
    cdef object log                 # log.node_log.NodeLog
    cdef Turn turn
    cdef object timers              # base.timers.Timers
    cdef int64_t interval_ns
    cdef object ended               # called with an error or None when a sync has ended
    cdef readonly object queue      # deque of Dues
    cdef readonly uint64_t written  # number of the last write
    cdef public uint64_t wanted     # number of the last write for which work waits
    cdef uint64_t covered           # the running sync covers writes up to this number
    cdef uint64_t durable
    cdef object running             # LogSync; None: no sync is running
    cdef object timer
    cdef bint is_stopped

    cpdef wrote(self)
    cpdef add(self, Due due, bint needs_sync)
    cpdef uint64_t stored(self, uint64_t token, bint has_vote) except? 0
    cpdef Due take(self)
    cpdef begin(self)
    cdef sync(self)

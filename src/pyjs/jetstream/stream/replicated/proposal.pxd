"""The data that the leader keeps for each proposed payload."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.wire.ops cimport Msg

cdef class Proposal:
    cdef char* replies          # for each message: size u32, reply subject
    cdef size_t used, room, at
    cdef public size_t size     # bytes of the payload
    cdef public object outcome  # Outcome, if a chore waits for it, else None
    cdef readonly list calls    # called when the entry is applied; not if the proposal is lost
    cdef uint64_t messages      # number of messages and copies in the payload while it is in flight
    cdef list subjects          # subjects of these messages, if a limit applies to them
    cdef bint operates          # the payload is an operation whose application has not begun
    cdef bint copies            # the payload has copies of mirrors and sources
    cdef int64_t step_ns        # the payload reports a step of the clock, which is in flight; 0: none
    cdef readonly set changed   # names of the consumers whose changes are in the payload

    cdef int add_reply(self, Msg* m) noexcept nogil         # -1: out of memory
    cdef void next_reply(self, Msg* m) noexcept nogil       # set the reply subject of the next message

"""The pin of a priority group: the one client that is served."""
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    PIN_SIZE = 22                       # characters of a nuid
    NO_PIN = 0xffffffff                 # the number of pins that are not there any more

cdef class Pin:
    cdef uint64_t number                # of the pin that a client has; 0: nobody has one
    cdef readonly bytes id              # as the client knows it, b"": nobody has one
    cdef char[22] text                  # the same
    cdef readonly str group             # of that client
    cdef readonly int64_t pinned_at     # ns, 0: nobody has one
    cdef int64_t until                  # when it ends, unless its client asks again
    cdef int64_t wait_ns                # how long a client that does not ask again has it
    cdef uint64_t assigned              # pins so far

    cdef bint serves(self, uint64_t number) noexcept nogil

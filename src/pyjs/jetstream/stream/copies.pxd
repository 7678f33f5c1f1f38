"""Copies of messages of other streams."""
from libc.stdint cimport uint64_t

from pyjs.jetstream.stream.pub_headers cimport PubHeaders
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.wire.ops cimport Msg

cdef enum:                                  # the result of storing a copy
    REFUSED = 0
    STORED = 1
    SKIPPED = 2                             # the copy is a duplicate, or no consumer needs it

# Store a copy. `applied`: a replica applies its entry; the leader has checked the limits before.
cdef int keep_copy(Stream target, Msg* m, bint mirrors, bint applied) noexcept nogil
# Return whether the value of a copy can be added to the counter of its subject.
cdef bint is_countable(Stream target, Msg* m)

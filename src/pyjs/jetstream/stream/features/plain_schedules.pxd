"""Schedules in their usual form, read without Python objects."""
from libc.stdint cimport int64_t

from pyjs.jetstream.stream.limits cimport StreamLimits
from pyjs.jetstream.stream.pub_headers cimport Value
from pyjs.wire.ops cimport Msg

cdef struct PlainSchedule:
    int64_t at_ns
    Value target
    bint rolls_up               # the block already has Nats-Rollup

# Fill `out` from a whole header block; return False if it is not a schedule of the usual form.
cdef bint read_plain(const char* h, size_t n, PlainSchedule* out) noexcept nogil

# Return whether a stream with these limits accepts `m`, a schedule in the usual form; if not, schedule.py decides.
cdef bint is_valid_plain(StreamLimits limits, Msg* m) noexcept nogil

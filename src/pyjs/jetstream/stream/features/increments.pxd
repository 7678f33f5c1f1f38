"""Counters with small numbers: the sum of an increment and a stored value, without Python objects."""
from libc.stdint cimport int64_t

from pyjs.jetstream.stream.pub_headers cimport PubHeaders, Value
from pyjs.store.store cimport Record

cdef enum:
    PAYLOAD_SIZE_MAX = 32       # of {"val":"-9223372036854775808"}

cdef bint is_only_increment(PubHeaders* h) noexcept nogil
cdef bint small_number(Value v, int64_t* out) noexcept nogil        # False: not a number, or too long
cdef bint small_value(Record* r, int64_t* out) noexcept nogil       # False: the payload has another form
cdef size_t write_payload(char* out, int64_t value) noexcept nogil

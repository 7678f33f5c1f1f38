"""The headers of a publish that a stream handles."""
from libc.stdint cimport int64_t, uint32_t

cdef struct Value:              # points into the header block; p is NULL if the header is absent
    const char* p
    uint32_t n

cdef struct PubHeaders:
    Value msg_id
    Value expected_stream
    Value expected_last_seq
    Value expected_last_subject_seq
    Value expected_last_subject
    Value expected_last_msg_id
    Value rollup
    Value ttl
    Value batch_id
    Value schedule
    Value schedule_next
    Value increment
    uint32_t increments         # number of Nats-Incr lines
    int64_t ttl_ns              # value of `ttl`, if it is a plain number of seconds; otherwise 0
    bint later                  # features/checks.py must check `ttl` or a rare header
    bint rare                   # `later` is set for a reason other than Nats-Incr
    bint conditional            # a header other than msg_id is set
    bint has_status             # the first line contains a status

# Fill `out` from a whole header block; return 0 if no header has an effect.
cdef bint scan_pub_headers(const char* h, size_t n, PubHeaders* out) noexcept nogil
cdef int64_t parse_seq(Value v) noexcept nogil      # -1: not a number
cdef bint value_is(Value v, const char* text, size_t n) noexcept nogil

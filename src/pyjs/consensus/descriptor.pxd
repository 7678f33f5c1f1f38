"""The descriptor of a payload."""
from libc.stdint cimport int64_t

cpdef bytes describe(bytes payload, int64_t time_ns)
cpdef bytes payload_at(bytes data, size_t at, bytes described)

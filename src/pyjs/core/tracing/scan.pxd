"""The search for headers that request a trace."""

# Return whether a header block has a Nats-Trace-Dest or a traceparent.
cdef bint asks_for_trace(const char* h, size_t n) noexcept nogil

"""The values of the header Nats-Request-Info, one for each recent client."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    INFOS = 64                  # clients that are remembered

cdef struct Info:
    uint64_t cid                # 0: empty
    int64_t made_at_ns
    const char* text
    uint32_t size

cdef class Infos:
    cdef object describe                # callable(ClientSession) -> bytes
    cdef list held                      # the texts
    cdef Info infos[INFOS]

    cdef Info* of(self, void* origin, int64_t now_ns) noexcept nogil    # NULL: none
    cdef int fill(self, Info* info, void* origin, int64_t now_ns) noexcept

"""A cache of the header Nats-Request-Info for the recent clients of one service import.

The header includes the client's round-trip time, so a cached header expires after a second.

Compiled, because every request to a service of another account has this header (measured in benchmarks/:
request/reply across a service import).
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from pyjs.core.session cimport ClientSession

cdef int64_t OLD_NS = 1000000000


cdef class Infos:
    """The cached headers of one service import."""

    def __cinit__(self, object describe):
        self.describe = describe
        self.held = [None] * INFOS
        memset(self.infos, 0, sizeof(self.infos))

    cdef Info* of(self, void* origin, int64_t now_ns) noexcept nogil:
        cdef uint64_t cid = (<ClientSession> origin).cid
        cdef Info* info = &self.infos[cid % INFOS]
        if info.cid != cid or now_ns - info.made_at_ns > OLD_NS:
            with gil:
                if self.fill(info, origin, now_ns) < 0:
                    return NULL
        return info

    cdef int fill(self, Info* info, void* origin, int64_t now_ns) noexcept:
        cdef ClientSession session = <ClientSession> <object> <PyObject*> origin
        cdef bytes text
        info.cid = 0
        try:
            text = self.describe(session)
        except Exception as error:
            session.host.log.error(f"{session} - cannot be described to a service: {error!r}")
            return -1
        self.held[session.cid % INFOS] = text
        info.cid, info.made_at_ns = session.cid, now_ns
        info.text, info.size = text, <uint32_t> len(text)
        return 0

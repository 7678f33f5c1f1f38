"""One account at another server."""
from libc.stdint cimport uint32_t

from pyjs.cluster.writer cimport RouteWriter
from pyjs.core.account cimport Account
from pyjs.core.sink cimport RemoteSink
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef class RemoteAccount(RemoteSink):
    cdef readonly Account account
    cdef RouteWriter writer
    cdef uint32_t number                # number of the account in outgoing frames
    cdef readonly dict subscriptions    # (subject, queue) -> Subscription

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1

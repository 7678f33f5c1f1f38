"""One account at another server of the cluster."""
from libc.stdint cimport uint32_t

from pyjs.cluster.writer cimport RouteWriter
from pyjs.core.account cimport Account
from pyjs.core.sink cimport RemoteSink
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef class RemoteAccount(RemoteSink):
    cdef readonly Account account
    cdef RouteWriter writer
    cdef uint32_t number                # number of the account in frames that this server sends
    cdef bint tells_senders             # the other server is a worker: tell it the senders of API requests
    cdef public uint32_t clients        # number of the account's clients at the other server
    cdef readonly dict subscriptions    # (subject, queue) -> Subscription

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int send(self, Msg* m, Target* t) noexcept nogil
    cdef int send_with(self, Msg* m, Target* t, bytes headers) except -1
    cdef int deliver_untraced(self, Msg* m, Target* t) noexcept
    cdef void tell_sender(self, Msg* m) noexcept
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1

"""The responses from services of one account to requests from other accounts."""
from libc.stdint cimport uint32_t

from pyjs.base.table cimport Table
from pyjs.core.account cimport Account
from pyjs.core.exchange.envelope cimport Envelope
from pyjs.core.exchange.pending cimport Pending, PendingList
from pyjs.core.sink cimport Sink
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef struct Hop:                # a service import that a message passed; on the stack of the delivery
    Hop* previous
    void* export                # identity of the export: a message passes no export twice
    uint32_t depth
    bint share

cdef enum:
    HOPS_MAX = 16               # maximum number of service imports that a message may pass

cdef bint is_ack(const char* reply, uint32_t n) noexcept nogil
cdef bint may_hop(Msg* m, void* export) noexcept nogil
cdef void hop_on(Hop* hop, Msg* m, void* export, bint share) noexcept nogil

cdef class Responses(Sink)

cdef class ServiceCalls:
    """The pending requests of one service import."""
    cdef Responses table                # of the exporting account
    cdef readonly object export         # config.exchange.declared.ServiceExport
    cdef readonly object latency        # core.exchange.latency.Meter, None: not measured
    cdef readonly PendingList waiting
    cdef object host                    # core.host.Host
    cdef object timer                   # of the oldest request; None: not set
    cdef bint many                      # a request may get several responses
    cdef bint armed
    cdef void drop(self, Pending* p, int status) noexcept

    # Add a pending request; a response to its token is sent to `reply` in `account`. NULL: out of memory.
    cdef Pending* add(self, Responses table, Account account, const char* reply, uint32_t reply_len,
                      object tracked) noexcept nogil
    cdef void end(self, Pending* p, int status) noexcept nogil    # `status`: one of latency.STATUS, or 0 for success
    cdef void arm(self) noexcept

cdef class Responses(Sink):
    cdef readonly Account account       # of the services
    # ServiceExport -> the one object used for all equal exports, since hops are compared by identity
    cdef readonly dict exports
    cdef readonly bint internal
    cdef bint subscribed
    cdef readonly bytes prefix          # of the tokens: _R_.XXXXXX.
    cdef bytes suffix                   # of the tokens of measured requests
    cdef bytes pool                     # random bytes for tokens
    cdef uint32_t pool_at
    cdef object rng
    cdef Table table                    # token -> Pending*

    cdef int name(self, Pending* p, bint measured) noexcept nogil   # give `p` its token; -1: out of memory
    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1
    cdef void pass_back(self, Msg* m, Pending* p, ServiceCalls calls) noexcept nogil
    cdef int send_back(self, Msg* m, Pending* p, Account account, Hop* hop) noexcept nogil
    cdef int publish_back(self, Envelope* e, Pending* p, Account account) noexcept nogil
    cdef void measured(self, Msg* m, Pending* p) noexcept
    cdef void refill(self) noexcept
    cdef void subscribe_later(self) noexcept

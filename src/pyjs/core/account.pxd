"""One account: its subscriptions, and the delivery of messages to them."""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.sink cimport EVERYWHERE, Sink, Turn
from pyjs.subjects.mappings cimport Mappings
from pyjs.subjects.routes cimport Group, Route, Target
from pyjs.subjects.sublist cimport Sublist, Subscription
from pyjs.wire.ops cimport Msg

cdef class Account:
    cdef readonly str name
    cdef public str tag                 # the display name
    cdef readonly Sublist subs
    cdef readonly Turn turn
    cdef uint64_t random_state
    cdef public object jetstream        # jetstream.manage.engine.JetStream; None: not enabled
    cdef public bytes api_prefix        # the prefix of API subjects with a domain; b"": no domain, or no JetStream
    cdef public Mappings mappings       # mappings of published subjects; None: the account has none
    cdef char* mapped                   # owns the mapped subject of a client's last message; NULL: none
    cdef public object exchange         # core.exchange.account_exchange.AccountExchange; None: no imports
    cdef public object interest         # cluster.interest.Interest, None: the server is in no cluster
    cdef public object responses        # core.exchange.responses.Responses, None: no service is shared
    cdef public object limits           # config.options.AccountLimits
    cdef public object trace_dest       # config.options.TraceDest, None: messages with a traceparent are not traced
    cdef readonly set sessions          # open ClientSessions of this account
    cdef readonly dict watched          # literal subject -> list of callables, see watch_interest

    # Deliver to every subscription that matches m.subject; return the number of receivers.
    cdef int publish(self, Msg* m) noexcept nogil
    # Deliver to the subscriptions that match `dest`; receivers see m.subject (JetStream deliveries).
    cdef int publish_to(self, const char* dest, size_t n, Msg* m) noexcept nogil
    # Change m.subject according to the mappings. Return the memory of the new subject, which the caller frees
    # after use, or NULL if the subject is unchanged.
    cdef char* map_subject(self, Msg* m) noexcept nogil
    # Like map_subject, for a client's publish; the account owns the memory until the next publish.
    cdef void map_published(self, Msg* m) noexcept nogil
    cdef int deliver_route(self, Route* r, Msg* m) noexcept nogil
    cdef int deliver_each(self, Route* r, Msg* m) noexcept nogil
    cdef int deliver_shared(self, Route* r, Msg* m) noexcept nogil
    cdef int deliver_groups(self, Route* r, Msg* m) noexcept nogil
    cdef int deliver_group(self, Group* g, Msg* m) noexcept nogil
    cdef int deliver_away(self, Group* g, Msg* m) noexcept nogil
    # Deliver a message from another server: to plain subscriptions if `plain` is set, and to one local member of
    # each group in `queues`, in which a length of 4 bytes precedes each name. m.told must be EVERYWHERE.
    cdef int deliver_routed(self, Msg* m, bint plain, const char* queues, size_t n) noexcept nogil
    cdef inline uint32_t chance(self, uint32_t n) noexcept nogil:
        """Return a random number below `n`."""
        self.random_state ^= self.random_state << 13
        self.random_state ^= self.random_state >> 7
        self.random_state ^= self.random_state << 17
        return <uint32_t> ((self.random_state >> 32) % n)

    cpdef object add(self, Subscription sub)
    cdef Route* route(self, const char* subject, size_t n) noexcept nogil
    # Return the status 503 line for the publisher `sink`, or b"" if `sink` has not subscribed to the reply
    # subject.
    cdef bytes no_responder(self, Msg* m, PyObject* sink)
    cdef bint may_wait(self, Msg* m, PyObject* sink, bytes line)
    cdef bint interested(self, const char* subject, size_t n) noexcept nogil

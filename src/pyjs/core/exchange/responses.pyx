"""Responses across accounts.

A service import gives each request its own reply subject, `_R_.<account>.<token>`, to which the service answers.
`Responses` subscribes to these subjects in the account of the service, and forwards each answer to the client's reply
subject in the client's account. A token is 20 random characters, and clients cannot use such reply subjects in their
own requests, so no other client can answer. A token is valid for one response, or for several if the export allows
that. It expires when the export's threshold has passed since the request or the last response. A response that itself
has a reply subject is a request in the opposite direction.

Source: nats.docs "Accounts"; nats-server 2.15.1 (tests/conformance/scenarios/exchange). Compiled: runs for every
response across accounts (benchmarks/: request/reply across a service import).
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memcpy

from pyjs.base.table cimport table_free, table_get, table_init, table_put, table_remove
from pyjs.core.account cimport Account
from pyjs.core.exchange.envelope cimport Envelope, envelope_free, envelope_open, set_reply
from pyjs.core.exchange.pending cimport Pending, PendingList
from pyjs.core.sink cimport Request, Sink
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.wire.ops cimport Msg

cdef enum:
    RANDOM_SIZE = 20            # characters of a token: 119 bits
    POOL_SIZE = 5120            # random bytes fetched from the Rng at once
    PENDING_MAX = 262144        # of one import; beyond this, each new request ends the oldest request
    EXPIRED_MAX = 1000          # requests ended in one turn
    ACK_SIZE = 8
cdef const char* ACK = b"$JS.ACK."
cdef const char* DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef bint may_hop(Msg* m, void* export) noexcept nogil:
    """Return whether `m` may pass `export`: it must not have passed `export` already, nor HOPS_MAX other exports."""
    cdef Hop* hop = <Hop*> m.via
    if hop != NULL and hop.depth >= HOPS_MAX:
        return False
    while hop != NULL:
        if hop.export == export:
            return False
        hop = hop.previous
    return True


cdef void hop_on(Hop* hop, Msg* m, void* export, bint share) noexcept nogil:
    """Fill `hop`, and link it to the hops that `m` has already passed."""
    hop.previous = <Hop*> m.via
    hop.export = export
    hop.depth = 1 if hop.previous == NULL else hop.previous.depth + 1
    hop.share = share


cdef bint is_ack(const char* reply, uint32_t n) noexcept nogil:
    """Return whether a reply subject is an ack subject; ack subjects are forwarded unchanged."""
    return n >= ACK_SIZE and memcmp(reply, ACK, ACK_SIZE) == 0


cdef class ServiceCalls:
    """The pending requests of one service import."""

    def __cinit__(self, object host, Responses table not None, object export, object latency):
        self.host = host
        self.table = table
        self.export = export
        self.latency = latency
        self.many = export.response_type != "Singleton"
        self.waiting = PendingList()

    cdef Pending* add(self, Responses table, Account account, const char* reply, uint32_t reply_len,
                      object tracked) noexcept nogil:
        cdef Pending* p = self.waiting.new(reply, reply_len)
        if p == NULL:
            return NULL
        p.table = <PyObject*> table
        p.account = <PyObject*> account
        p.calls = <PyObject*> self
        p.at_ns = table.account.turn.now
        if tracked is not None:
            with gil:
                Py_INCREF(tracked)
                p.tracked = <PyObject*> tracked
        self.waiting.link(p)
        if table.name(p, p.tracked != NULL) < 0:
            self.waiting.release(p)
            return NULL
        if self.waiting.count > PENDING_MAX:
            self.end(self.waiting.oldest, 504)
        if not self.armed:
            with gil:
                self.arm()
        return p

    cdef void end(self, Pending* p, int status) noexcept nogil:
        table_remove(&(<Responses> p.table).table, p.token, p.token_len)
        if p.tracked != NULL:
            with gil:
                self.drop(p, status if not p.answered else 0)
        self.waiting.release(p)

    cdef void drop(self, Pending* p, int status) noexcept:
        """Report the end of a measured request to its meter; `status` is 0 or one of latency.STATUS."""
        try:
            self.latency.ended(<object> p.tracked, status)
        except Exception as error:
            self.host.log.error(f"a latency sample is lost: {error!r}")

    cdef void arm(self) noexcept:
        """Set the timer for the oldest request."""
        try:
            self.host.timers.at(self.waiting.oldest.at_ns + self.export.response_threshold_ns, self.expire)
            self.armed = True
        except MemoryError:
            pass                    # out of memory: the next request tries to set the timer again

    def expire(self) -> None:
        """End the requests whose time has expired, up to EXPIRED_MAX in one call."""
        cdef int64_t before = self.host.turn_state.now - self.export.response_threshold_ns
        cdef int ended = 0
        self.armed = False
        while self.waiting.oldest != NULL and self.waiting.oldest.at_ns <= before and ended < EXPIRED_MAX:
            self.end(self.waiting.oldest, 504)
            ended += 1
        if self.waiting.oldest != NULL:
            self.arm()

    def stop(self) -> None:
        """End all requests, because the import was removed."""
        while self.waiting.oldest != NULL:
            self.end(self.waiting.oldest, 0)

    def lose(self, bytes token) -> None:
        """End a request whose client has stopped waiting, unless a response to it is being delivered."""
        cdef Pending* p = <Pending*> table_get(&self.table.table, token, len(token))
        if p != NULL and not p.busy:
            self.end(p, 408)


cdef class Responses(Sink):
    """A sink that forwards the responses of one account's services to the waiting clients."""

    def __cinit__(self, Account account not None, object rng):
        self.account = account
        self.internal = True
        self.rng = rng
        self.exports = {}
        self.pool = b""
        table_init(&self.table, 2)
        self.prefix = b"_R_.%b." % readable(rng.randbytes(6))
        self.suffix = b".%b.T" % readable(rng.randbytes(8))

    def __dealloc__(self):
        table_free(&self.table)

    cdef int name(self, Pending* p, bint measured) noexcept nogil:
        cdef uint32_t i
        cdef char* at
        if not self.subscribed:
            with gil:
                self.subscribe_later()
        if self.pool_at == 0:
            with gil:
                self.refill()
            if self.pool_at == 0:
                return -1
        with gil:
            memcpy(p.token, <const char*> self.prefix, len(self.prefix))
            at = p.token + len(self.prefix)
            for i in range(RANDOM_SIZE):
                self.pool_at -= 1
                at[i] = DIGITS[(<const unsigned char*> <const char*> self.pool)[self.pool_at] % 62]
            p.token_len = <uint32_t> len(self.prefix) + RANDOM_SIZE
            if measured:
                memcpy(p.token + p.token_len, <const char*> self.suffix, len(self.suffix))
                p.token_len += <uint32_t> len(self.suffix)
            try:
                table_put(&self.table, p.token, p.token_len, p)
            except MemoryError:
                return -1
        return 0

    def subscribe(self, object request=None) -> None:
        """Subscribe to the reply subjects of the tokens; must not be called during a delivery."""
        if not self.subscribed:
            self.subscribed = True
            self.account.add_plain(Subscription(self, self.prefix + b">"))

    cdef void subscribe_later(self) noexcept:
        """Subscribe later in this turn, after the commits.

        That is early enough, since a service answers in a later turn.
        """
        try:
            self.account.turn.requests.append(Request(self.subscribe, self.prefix))
        except MemoryError:
            pass                    # out of memory: the next request tries to subscribe again

    cdef void refill(self) noexcept:
        try:
            self.pool = self.rng.randbytes(POOL_SIZE)
            self.pool_at = POOL_SIZE
        except Exception as error:
            self.account.turn.faulted.append((self, error))

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        # The trace ends here; a trace-only message is not forwarded.
        return 1 if trace.only else self.deliver(m, t)

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        cdef Pending* p
        cdef const char* subject = m.found_by if m.aliased else m.subject
        cdef uint32_t n = m.found_by_len if m.aliased else m.subject_len
        if t.sub.closed:
            return 0
        p = <Pending*> table_get(&self.table, subject, n)
        if p != NULL and may_hop(m, <void*> (<ServiceCalls> p.calls).export):
            p.busy += 1
            self.pass_back(m, p, <ServiceCalls> p.calls)
            p.busy -= 1
            if p.removed:
                (<ServiceCalls> p.calls).waiting.forget(p)
        return 1                    # nats-server counts the message as received even if no client waits for it

    cdef void pass_back(self, Msg* m, Pending* p, ServiceCalls calls) noexcept nogil:
        """Forward a response to the client, and end the request unless more responses may follow."""
        cdef Hop hop
        cdef int receivers
        if p.tracked != NULL and not p.answered:
            with gil:
                self.measured(m, p)
        p.answered = True
        hop_on(&hop, m, <void*> calls.export, False)
        receivers = self.send_back(m, p, <Account> p.account, &hop)
        if p.removed:
            return
        if receivers == 0 or not calls.many or m.size == 0:
            calls.end(p, 503)
        else:
            p.at_ns = self.account.turn.now
            calls.waiting.unlink(p)
            calls.waiting.link(p)

    cdef int send_back(self, Msg* m, Pending* p, Account account, Hop* hop) noexcept nogil:
        """Deliver a response to the client's reply subject in `account`; return the number of receivers."""
        cdef Pending* opposite
        cdef Envelope e
        cdef int receivers = 0
        envelope_open(&e, m)
        e.m.via = hop
        if m.reply_len == 0 or is_ack(m.reply, m.reply_len):
            receivers = self.publish_back(&e, p, account)
            envelope_free(&e)
            return receivers
        opposite = (<ServiceCalls> p.calls).add(<Responses> account.responses, self.account, m.reply, m.reply_len,
                                                None)
        if opposite == NULL:
            return 0
        opposite.busy += 1
        if set_reply(&e, opposite.token, opposite.token_len) == 0:
            receivers = self.publish_back(&e, p, account)
        envelope_free(&e)
        opposite.busy -= 1
        if opposite.removed:
            (<ServiceCalls> opposite.calls).waiting.forget(opposite)
        elif receivers == 0:
            (<ServiceCalls> opposite.calls).end(opposite, 503)
        return receivers

    cdef int publish_back(self, Envelope* e, Pending* p, Account account) noexcept nogil:
        """Publish a response in `account`; return the number of receivers."""
        if e.m.aliased:
            return account.publish_to(p.reply, p.reply_len, &e.m)
        e.m.subject, e.m.subject_len = p.reply, p.reply_len
        e.subject = account.map_subject(&e.m)
        return account.publish(&e.m)

    cdef void measured(self, Msg* m, Pending* p) noexcept:
        """Report the first response to a measured request."""
        cdef object responder = None if m.origin == NULL else <object> <PyObject*> m.origin
        try:
            (<ServiceCalls> p.calls).latency.answered(<object> p.tracked, responder)
        except Exception as error:
            (<ServiceCalls> p.calls).host.log.error(f"a latency sample is lost: {error!r}")

    @property
    def num_waiting(self) -> int:
        """The number of tokens that may be answered."""
        return self.table.used


def readable(bytes random) -> bytes:
    """Return a letter or digit for each byte of `random`."""
    return bytes([DIGITS[byte % 62] for byte in random])

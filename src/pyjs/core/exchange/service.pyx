"""A service import: messages to its local subject become requests in the exporting account.

In the exporting account, the request gets the subject of the service, a reply subject for responses (see
responses), and the header Nats-Request-Info, which identifies the client. If there is no receiver, the client
gets status 503, as it would without an import.

Source: nats.docs "Accounts"; nats-server 2.15.1 (tests/conformance/scenarios/exchange). Compiled: runs for every
request across accounts (benchmarks/: request/reply across a service import).
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

from pyjs.core.account cimport EVERYWHERE, Account
from pyjs.core.exchange.envelope cimport Envelope, envelope_free, envelope_open, find_info, set_info, set_reply
from pyjs.core.exchange.infos cimport Info, Infos
from pyjs.core.exchange.pending cimport Pending
from pyjs.core.exchange.responses cimport Hop, Responses, ServiceCalls, hop_on, is_ack, may_hop
from pyjs.core.sink cimport Sink
from pyjs.core.tracing.fan_out cimport fan_out
from pyjs.subjects.rewrite cimport Rewrite
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

cdef enum:
    REQUEST_WORK = 4
    COPIED_BITS = 8             # 256 copied bytes count as one unit of work


cdef class ServiceSink(Sink):
    """A sink that forwards requests to a service of another account."""

    def __cinit__(self, Account importer not None, Account exporter not None, ServiceCalls calls not None,
                  Rewrite rewrite, bytes to not None, bint share, object describe, bytes own not None, object extend):
        self.importer, self.exporter, self.calls = importer, exporter, calls
        self.internal = self.stays_here = True
        self.rewrite = rewrite
        self.to = to
        self.text = <const char*> to if to else NULL
        self.text_len = <uint32_t> len(to)
        self.share = share
        self.infos = Infos(describe)
        self.own, self.own_text, self.own_len = own, <const char*> own, <uint32_t> len(own)
        self.extend = extend

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        cdef int taken
        self.trace = trace
        try:
            taken = self.deliver(m, t)
        finally:
            self.trace = None
        return taken

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        cdef Envelope e
        cdef Hop hop
        cdef int64_t work
        cdef uint64_t visited
        cdef int receivers = 0
        if t.sub.closed or m.aliased or m.told == EVERYWHERE or not may_hop(m, <void*> self.calls.export):
            return 0
        envelope_open(&e, m)
        hop_on(&hop, m, <void*> self.calls.export, self.share)
        e.m.via = &hop
        visited = self.exporter.subs.found.visited
        if self.set_subject(m, &e) == 0 and self.describe(m, &e) == 0:
            receivers = self.send_request(m, &e)
        work = <int64_t> (self.exporter.subs.found.visited - visited) + (e.m.size >> COPIED_BITS) + REQUEST_WORK
        self.importer.turn.extra_work += work + receivers * <int64_t> (1 + (e.m.size >> COPIED_BITS))
        envelope_free(&e)
        t.sub.delivered += receivers > 0
        return receivers > 0

    cdef int set_subject(self, Msg* m, Envelope* e) noexcept nogil:
        """Set the subject in the exporting account; return -1 if the import's rewrite yields no subject."""
        cdef uint32_t n = 0
        if self.rewrite is not None:
            e.subject = self.rewrite.apply(m.subject, m.subject_len, &n)
            if e.subject == NULL:
                return -1
            e.m.subject, e.m.subject_len = e.subject, n
        elif self.text != NULL:
            e.m.subject, e.m.subject_len = self.text, self.text_len
        return 0

    cdef int describe(self, Msg* m, Envelope* e) noexcept nogil:
        """Add the header that describes the client; return -1 on failure."""
        cdef uint32_t n = 0
        cdef const char* before = NULL
        cdef Info* info
        if m.via != NULL:
            before = find_info(m, &n)
        if before != NULL:
            with gil:
                return self.describe_again(m, e, before, n)
        if m.origin == NULL:        # from a stream: the header of the original publisher must not be trusted
            return set_info(e, self.own_text, self.own_len)
        info = self.infos.of(m.origin, self.importer.turn.now)
        return -1 if info == NULL else set_info(e, info.text, info.size)

    cdef int describe_again(self, Msg* m, Envelope* e, const char* info, uint32_t n) noexcept:
        """Add the header for a request that has passed another import; return -1 on failure."""
        cdef bytes text
        try:
            text = self.extend(info[:n], self.importer, self.share and not (<Hop*> m.via).share)
        except Exception as error:
            self.calls.host.log.error(f"a request cannot be described: {error!r}")
            return -1
        return set_info(e, text, <uint32_t> len(text))

    cdef int send_request(self, Msg* m, Envelope* e) noexcept nogil:
        """Publish the request; return the number of receivers."""
        cdef Pending* p = NULL
        cdef int receivers
        cdef char* mapped
        cdef const char* reply = m.reply
        cdef uint32_t reply_len = m.reply_len
        if self.calls.latency is not None:
            with gil:
                p = self.add_measured(m)
        if p == NULL and m.reply_len and not is_ack(m.reply, m.reply_len):
            p = self.calls.add(<Responses> self.exporter.responses, self.importer, m.reply, m.reply_len, None)
            if p == NULL:
                return 0
        if p != NULL:
            reply, reply_len = p.token, p.token_len
            p.busy += 1
        if (p != NULL or e.body != NULL) and set_reply(e, reply, reply_len) < 0:
            receivers = 0
        else:
            mapped = self.exporter.map_subject(&e.m)
            receivers = self.exporter.publish(&e.m) if self.trace is None else self.publish_traced(m, &e.m)
            if mapped != NULL:
                e.m.subject = NULL
                free(mapped)
        if p != NULL:
            p.busy -= 1
            if p.removed:
                self.calls.waiting.forget(p)
            elif receivers == 0:
                self.calls.end(p, 503)
            elif self.trace is not None:
                self.end_traced(p)
        return receivers

    cdef int publish_traced(self, Msg* m, Msg* sent) noexcept nogil:
        """Publish a traced message, and return the number of receivers.

        End the trace if the export does not allow traces.
        """
        with gil:
            try:
                self.trace.imported(self.exporter.name, m.subject[:m.subject_len], sent.subject[:sent.subject_len])
                if self.calls.export.allow_trace:
                    return fan_out(self.exporter, sent, self.trace)
                return 1 if self.trace.only else self.exporter.publish(sent)
            except Exception as error:
                self.calls.host.log.error(f"trace failed: {error!r}")
                return 0

    cdef void end_traced(self, Pending* p) noexcept nogil:
        """End the request if it is trace-only, since such a request gets no answer."""
        with gil:
            if self.trace.only:
                self.calls.end(p, 0)

    cdef Pending* add_measured(self, Msg* m) noexcept:
        """Add a pending request with its latency sample, as ServiceCalls.add does.

        Return NULL if the request is not measured or needs no response, or after an error.
        """
        cdef object tracked
        try:
            tracked = self.measure(m)
        except Exception as error:
            self.calls.host.log.error(f"a latency sample is lost: {error!r}")
            return NULL
        if tracked is None or not m.reply_len or is_ack(m.reply, m.reply_len):
            return NULL
        cdef Pending* p = self.calls.add(<Responses> self.exporter.responses, self.importer, m.reply, m.reply_len,
                                         tracked)
        if p != NULL:
            self.importer.exchange.note_measured(m.reply[:m.reply_len], self.calls, p.token[:p.token_len], tracked)
        return p

    cdef object measure(self, Msg* m):
        """Return the latency sample of a request, or None if the request is not measured."""
        cdef object session = None if m.origin == NULL else <object> <PyObject*> m.origin
        return self.calls.latency.begin(session, m.body[:m.header_len], self.share, m.reply_len > 0)

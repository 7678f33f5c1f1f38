"""One account at another server: the receiver for all subscriptions that the account has there.

Compiled, because it runs for every message to another server (measured in benchmarks/: 1-1 over a route).
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp

from pyjs.cluster.writer cimport RouteWriter
from pyjs.core.account cimport EVERYWHERE, Account
from pyjs.core.sink cimport RemoteSink
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.wire.ops cimport Msg
from pyjs.wire.route_frames cimport FRAME_SENDER

import orjson

from pyjs.core.auth.identity import public_client_info
from pyjs.core.tracing.request import with_hop, without_trace

cdef enum:
    PREFIX_SIZE = 4             # "$JS."
    ACK_SIZE = 8                # "$JS.ACK."

cdef bytes AUDIT = b"$JS.EVENT.ADVISORY.API"    # jetstream.api.audit.SUBJECT


cdef inline bint is_request(Msg* m) noexcept nogil:
    """Return whether a message may be an API request, which has the same number at all servers."""
    return (m.subject[0] == c'$' and m.subject_len > ACK_SIZE and memcmp(m.subject, b"$JS.", PREFIX_SIZE) == 0
            and memcmp(m.subject, b"$JS.ACK.", ACK_SIZE) != 0)


cdef class RemoteAccount(RemoteSink):
    """The receiver of messages for the subscriptions that one account has at another server."""

    def __cinit__(self, RouteWriter writer not None, Account account not None, uint32_t number, bint silent):
        self.writer = writer
        self.account = account
        self.number = number
        self.doubts = silent
        self.tells_senders = writer.cluster.options.local
        self.subscriptions = {}

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        if m.header_len and self.account.turn.trace is not None:
            with gil:
                return self.deliver_untraced(m, t)
        return self.send(m, t)

    cdef int send(self, Msg* m, Target* t) noexcept nogil:
        """Send `m` for a subscription, unless the other server already has it; return 1 if `m` is sent, else 0."""
        if t.sub.closed or m.told == EVERYWHERE or not self.writer.is_open:
            return 0
        if m.told & self.writer.bit:
            if t.sub.queue_id == 0:
                return 0                # the other server already has the message
            if self.writer.add_queue_to(m, t) == 0:
                t.sub.delivered += 1
                return 1
        if self.tells_senders and m.subject[0] == c'$' and m.origin != NULL:
            with gil:
                self.tell_sender(m)
        if is_request(m):
            self.account.turn.number_of(m)
        if self.writer.send_msg(m, self.number, t) < 0:
            return 0
        m.told |= self.writer.bit
        t.sub.delivered += 1
        return 1

    cdef int send_with(self, Msg* m, Target* t, bytes headers) except -1:
        """Send a message as `send` does, with `headers` in place of its own."""
        cdef Msg sent = m[0]
        cdef bytes body = headers + m.body[m.header_len:m.size]
        cdef bytes tail = (m.reply[:m.reply_len] + b" " if m.reply_len else b"") + b"%d %d\r\n" % (
            len(headers), len(body))
        sent.body, sent.header_len, sent.size = body, <uint32_t> len(headers), <uint32_t> len(body)
        sent.tail, sent.tail_len, sent.split, sent.whole = tail, <size_t> len(tail), True, NULL
        if self.send(&sent, t) == 0:
            return 0
        m.told, m.number = sent.told, sent.number
        self.writer.take_over(&sent, m)
        return 1

    cdef int deliver_untraced(self, Msg* m, Target* t) noexcept:
        """Deliver a message as `deliver` does. The message's trace ended before the message reached this account."""
        try:
            if m.told & self.writer.bit:
                return self.send(m, t)
            return self.send_with(m, t, without_trace(m.body[:m.header_len]))
        except Exception as error:
            self.account.turn.faulted.append((self.writer.route, error))
            return 0

    cdef void tell_sender(self, Msg* m) noexcept:
        """If an advisory will describe the client of an API request, send the client's description first."""
        cdef bytes subject = m.subject[:m.subject_len]
        if not subject.startswith(b"$JS.") or subject.startswith(b"$JS.ACK.") or not self.account.has_interest(AUDIT):
            return
        try:
            session = <object> <PyObject*> m.origin
            fields = public_client_info(session, self.account.name, session.host.server_name)
            way = self.writer.bulk if self.writer.goes_aside(m) else self.writer
            way.send_frame(FRAME_SENDER, orjson.dumps(fields))
        except Exception as error:
            self.account.turn.faulted.append((self.writer.route, error))

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        if t.sub.closed or m.told == EVERYWHERE or not self.writer.is_open or m.told & self.writer.bit:
            return self.send(m, t)    # another queue group may be added, even if the server already has the message
        route = self.writer.route
        origin = "" if trace.account is self.account else trace.account.name
        hop = trace.leave(route.rid, route.info.server_name)
        return self.send_with(m, t, with_hop(m.body[:m.header_len], hop, origin))

    def set_weight(self, bytes subject, bytes queue, int64_t weight) -> None:
        """Add or change the other server's subscriptions of `subject` and `queue`; weight 0 removes them."""
        cdef Subscription sub = self.subscriptions.get((subject, queue))
        if weight == 0:
            if sub is not None:
                del self.subscriptions[subject, queue]
                self.account.remove_plain(sub)
            return
        if sub is None:
            sub = Subscription(self, subject, queue)
            sub.state.weight = <uint32_t> weight
            self.account.add_plain(sub)
            self.subscriptions[subject, queue] = sub
        else:
            sub.state.weight = <uint32_t> weight

    def set_silent(self, bint silent) -> None:
        """Record whether the other server has been silent for a while."""
        self.doubts = silent

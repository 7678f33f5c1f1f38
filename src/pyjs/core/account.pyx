"""One account: its subscriptions, and the delivery of messages to them.

Messages stay in their account. `publish` finds the route of the subject. It delivers the message to each plain
subscription, and to one member of each queue group, chosen at random among the members that accept the message.

This module knows nothing of sockets. Of JetStream it knows only whether the account has it.
Compiled, because `publish` runs for every message (measured in benchmarks/: core publish, 1-1, 1-10).
"""
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from pyjs.core.sink cimport PySink, RemoteSink, Sink, Turn
from pyjs.subjects.routes cimport Group, Route, RouteCache
from pyjs.subjects.sublist cimport Sublist, Subscription
from pyjs.subjects.trie cimport SubState
from pyjs.subjects.tokens cimport has_wildcard, matches
from pyjs.wire.compose cimport compose
from pyjs.wire.ops cimport Msg

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* p, Py_ssize_t n)
    void release "Py_XDECREF"(PyObject* p)

cdef enum:
    MANY = 256                  # more subscriptions than this are removed in steps
    STEP = 200                  # subscriptions removed in one step: half a millisecond
    WHOLE_MIN = 65536           # bytes; a larger body is passed to the transport without a copy
    SHARED_BY = 3    # a large body is copied once for all receivers if there are at least this many


cdef inline bint is_named(Group* g, const char* queue, uint32_t n) noexcept nogil:
    cdef SubState* first = g.targets[0].sub
    return first.queue_len == n and memcmp(first.queue, queue, n) == 0


cdef class Account:
    """A namespace of subjects with its subscriptions."""

    def __cinit__(self, str name, Turn turn, uint64_t seed=0x9E3779B97F4A7C15,
                  RouteCache routes=None):
        self.name = self.tag = name
        self.subs = Sublist(routes)
        self.turn = turn
        self.random_state = seed | 1
        self.sessions = set()
        self.watched = {}
        self.api_prefix = b""

    def __dealloc__(self):
        free(self.mapped)

    cdef int publish(self, Msg* m) noexcept nogil:
        if m.subject_len == 0:
            return 0                # dropped by a mapping
        if m.subject[0] == c'_' or m.subject[0] == c'$':
            return self.deliver_route(self.subs.find_prefixed(m.subject, m.subject_len), m)
        return self.deliver_route(self.subs.find(m.subject, m.subject_len), m)

    cdef int publish_to(self, const char* dest, size_t n, Msg* m) noexcept nogil:
        m.aliased = True
        m.found_by, m.found_by_len = dest, <uint32_t> n
        m.told = 0
        if dest[0] == c'_' or dest[0] == c'$':
            return self.deliver_route(self.subs.find_prefixed(dest, n), m)
        return self.deliver_route(self.subs.find(dest, n), m)

    cdef char* map_subject(self, Msg* m) noexcept nogil:
        cdef uint32_t n = 0
        cdef char* made
        if self.mappings is None:
            return NULL
        made = self.mappings.select(m.subject, m.subject_len, &n)
        if made != NULL:
            m.subject, m.subject_len = made, n
        return made

    cdef void map_published(self, Msg* m) noexcept nogil:
        if self.mappings is not None:
            free(self.mapped)
            self.mapped = self.map_subject(m)

    cdef int deliver_route(self, Route* r, Msg* m) noexcept nogil:
        if m.size >= WHOLE_MIN and r.n >= SHARED_BY and m.whole == NULL and self.interest is None:
            return self.deliver_shared(r, m)
        return self.deliver_each(r, m)

    cdef int deliver_each(self, Route* r, Msg* m) noexcept nogil:
        cdef uint32_t i
        cdef int receivers = 0
        if r.scratch:
            r.busy += 1         # a nested publish must not overwrite this route
        for i in range(r.n):
            receivers += (<Sink> r.targets[i].sink).deliver(m, &r.targets[i])
        if receivers < <int> r.n:
            self.subs.found.visited += r.n - <uint32_t> receivers    # count each refused delivery as work
        if r.n_groups:
            receivers += self.deliver_groups(r, m)
        if r.scratch:
            r.busy -= 1
        return receivers

    cdef int deliver_shared(self, Route* r, Msg* m) noexcept nogil:
        """Deliver a large message as one object that the output buffers of all its receivers share."""
        cdef Msg shared = m[0]
        cdef int receivers
        if not m.split:
            shared.split = True
            shared.tail_len -= m.size + 2       # the body, and CRLF
        with gil:
            shared.whole = new_bytes(m.body, m.size)
            if shared.whole == NULL:
                PyErr_Clear()    # no memory for the shared object: try a separate copy for each receiver
        receivers = self.deliver_each(r, &shared)
        with gil:
            release(<PyObject*> shared.whole)
        return receivers

    cdef int deliver_groups(self, Route* r, Msg* m) noexcept nogil:
        cdef uint32_t i
        cdef int receivers = 0
        for i in range(r.n_groups):
            receivers += self.deliver_group(&r.groups[i], m)
        return receivers

    cdef int deliver_group(self, Group* g, Msg* m) noexcept nogil:
        """Deliver to one member of the group: to one at this server if any accepts it, else to one at another server.

        Return the number of receivers, which is 0 or 1.
        """
        cdef uint32_t at, tried = 0
        if g.n_here:
            at = self.chance(g.n_here)
            while tried < g.n_here:
                tried += 1
                if (<Sink> g.targets[at].sink).deliver(m, &g.targets[at]):
                    self.subs.found.visited += tried - 1
                    return 1
                at = at + 1 if at + 1 < g.n_here else 0
            self.subs.found.visited += tried - 1        # count each refused delivery as work
        return self.deliver_away(g, m) if g.n > g.n_here and m.told != EVERYWHERE else 0

    cdef int deliver_away(self, Group* g, Msg* m) noexcept nogil:
        """Deliver to one member at another server, chosen by weight; servers that may lose messages are tried last.

        Return the number of receivers, which is 0 or 1.
        """
        cdef uint32_t at, tried, first
        cdef uint64_t weights = 0, chosen
        cdef int doubts
        for at in range(g.n_here, g.n):
            weights += g.targets[at].sub.weight
        chosen = self.chance(<uint32_t> min(weights, <uint64_t> 0xffffffff))
        first = g.n_here
        while chosen >= g.targets[first].sub.weight:
            chosen -= g.targets[first].sub.weight
            first += 1
        for doubts in range(2):
            at, tried = first, g.n_here
            while tried < g.n:
                tried += 1
                if ((<RemoteSink> g.targets[at].sink).doubts == doubts
                        and (<Sink> g.targets[at].sink).deliver(m, &g.targets[at])):
                    return 1
                at = at + 1 if at + 1 < g.n else g.n_here
        return 0

    cdef int deliver_routed(self, Msg* m, bint plain, const char* queues, size_t n) noexcept nogil:
        cdef Route* r = self.route(m.found_by, m.found_by_len) if m.aliased else self.route(m.subject, m.subject_len)
        cdef uint32_t i, length = 0
        cdef int receivers = 0
        cdef const char* end = queues + n
        if r.scratch:
            r.busy += 1
        if plain:
            for i in range(r.n):
                receivers += (<Sink> r.targets[i].sink).deliver(m, &r.targets[i])
        while queues < end:
            memcpy(&length, queues, sizeof(length))
            queues += sizeof(length)
            for i in range(r.n_groups):
                if is_named(&r.groups[i], queues, length):
                    receivers += self.deliver_group(&r.groups[i], m)
                    break
            queues += length
        if r.scratch:
            r.busy -= 1
        return receivers

    cdef bint interested(self, const char* subject, size_t n) noexcept nogil:
        cdef Route* r = self.route(subject, n)
        return r.n > 0 or r.n_groups > 0

    cdef Route* route(self, const char* subject, size_t n) noexcept nogil:
        """Return the route of `subject`; Sublist.find documents how long a route is valid."""
        if subject[0] == c'_' or subject[0] == c'$':
            return self.subs.find_prefixed(subject, n)
        return self.subs.find(subject, n)

    cdef bytes no_responder(self, Msg* m, PyObject* sink):
        cdef bytes subject = m.subject[:m.subject_len]
        cdef bytes status
        cdef Route* r = self.route(m.reply, m.reply_len)
        cdef uint32_t i
        for i in range(r.n):
            if r.targets[i].sink == sink and not r.targets[i].sub.closed:
                if self.api_prefix and subject.startswith(self.api_prefix):
                    subject = b"$JS.API." + subject[len(self.api_prefix):]
                status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
                line = b"HMSG %b %b %d %d\r\n%b\r\n" % (
                    m.reply[:m.reply_len], r.targets[i].sub.sid[:r.targets[i].sub.sid_len], len(status), len(status),
                    status)
                return b"" if self.may_wait(m, sink, line) else line
        return b""

    cdef bint may_wait(self, Msg* m, PyObject* sink, bytes line):
        """Hold a message that has no receiver, if a receiver may soon appear in the cluster.

        Return whether the message is held.
        """
        awaited = None if self.interest is None else self.interest.awaited
        return awaited is not None and not m.aliased and awaited.take(
            self, <object> sink, m.subject[:m.subject_len], m.reply[:m.reply_len], m.body[:m.header_len],
            m.body[m.header_len:m.size], line)

    # -- for Python code -----------------------------------------------------------------------------------

    def send(self, bytes subject, bytes payload, bytes headers=b"", bytes reply=b"") -> int:
        """Publish a message from the server itself, and return the number of receivers."""
        cdef Msg m
        cdef bytes body = headers + payload if headers else payload
        cdef bytes tail = b"%b %b%d\r\n" % (reply, b"%d " % len(headers) if headers else b"", len(body))
        if not reply:
            tail = tail[1:]
        if not subject:
            return 0
        compose(&m, subject, len(subject), body, len(headers), len(body))
        m.reply, m.reply_len = reply, <uint32_t> len(reply)
        m.tail, m.tail_len = tail, len(tail)
        m.whole = <PyObject*> body if len(body) >= WHOLE_MIN else NULL
        return self.publish(&m)

    def has_interest(self, bytes subject) -> bool:
        """Return whether a subscription matches the literal `subject`."""
        return len(subject) > 0 and self.interested(subject, len(subject))

    def subscribe(self, bytes subject, Sink sink, bytes queue=b"", bytes sid=b"") -> Subscription:
        """Subscribe `sink` to a valid subject, and return the subscription; must not be called during a delivery."""
        cdef Subscription sub = Subscription(sink, subject, queue, sid)
        self.add(sub)
        return sub

    def subscribe_handler(self, bytes subject, object handler, bytes service=None,
                          bint stays_here=False) -> Subscription:
        """Call `handler` with a Request, in the turn, for each message that matches `subject`.

        Return the subscription. `service` is the subject at which the system account offers the handler to all
        accounts, or None if the handler is not offered. If `stays_here` is true, other servers do not send their
        requests to the handler.
        """
        cdef PySink sink = PySink(self.turn, handler)
        sink.service = service
        sink.stays_here = stays_here
        return self.subscribe(subject, sink)

    cpdef object add(self, Subscription sub):
        """Insert a subscription, and apply the account's stream imports to it."""
        self.add_plain(sub)
        if self.exchange is not None:
            self.exchange.subscribed(sub)

    def unsubscribe(self, Subscription sub) -> None:
        """Remove a subscription; it gets no more messages."""
        self.remove_plain(sub)
        if self.exchange is not None:
            self.exchange.unsubscribed(sub)

    def add_plain(self, Subscription sub) -> None:
        """Insert a subscription without applying the account's stream imports to it."""
        self.subs.insert(sub)
        if self.interest is not None and sub.state.weight == 0:
            self.interest.subscribed(sub)
        if self.watched:
            self.interest_changed(sub.subject)

    def remove_plain(self, Subscription sub) -> None:
        """Remove a subscription that `add_plain` inserted."""
        if not self.subs.remove(sub):
            return
        if self.interest is not None and sub.state.weight == 0:
            self.interest.unsubscribed(sub)
        if self.watched:
            self.interest_changed(sub.subject)

    def unsubscribe_all(self, list subs) -> None:
        """Deliver no more messages to `subs`, and remove them; if there are many, this takes several turns.

        The caller must not use the list `subs` afterwards.
        """
        cdef Subscription sub
        for sub in subs:
            sub.state.closed = True
        if len(subs) > MANY:
            self.turn.go_on(self.unsubscribe_steps(subs))
        else:
            for sub in subs:
                self.unsubscribe(sub)

    def unsubscribe_steps(self, list subs):
        """Unsubscribe `subs` in steps; each step removes its subscriptions from the list, to free their memory."""
        while subs:
            for sub in subs[-STEP:]:
                self.unsubscribe(sub)
            del subs[-STEP:]
            yield
        self.subs.cache.expire()    # a route to thousands of subscriptions takes megabytes

    def watch_interest(self, bytes subject, object changed) -> None:
        """Call `changed` when a subscription that matches the literal `subject` is added or removed.

        `changed` is called while SUB or UNSUB is processed, so it may only record work.
        """
        self.watched.setdefault(subject, []).append(changed)

    def unwatch_interest(self, bytes subject, object changed) -> None:
        """Stop calling `changed` for changes of the interest in the literal `subject`."""
        watchers = self.watched.get(subject, [])
        if changed in watchers:
            watchers.remove(changed)
        if not watchers:
            self.watched.pop(subject, None)

    def interest_changed(self, bytes subject) -> None:
        """Call the watchers of all subjects that `subject` matches."""
        if not has_wildcard(subject, len(subject)):
            for changed in list(self.watched.get(subject, ())):
                changed()
            return
        for watched in [key for key in self.watched if matches(key, len(key), subject, len(subject))]:
            for changed in list(self.watched.get(watched, ())):
                changed()

"""One client connection, without its socket: bytes in, operations on its account, bytes out.

The read side loops over the parser; a publish goes to the account without touching Python, everything else (SUB,
CONNECT, ...) is ordinary Python below. The write side is a Sink: deliveries are written to the output buffer, and
leave when the node's turn calls `flush_output`, after the stores have committed. Nothing is closed or unsubscribed
inside a delivery: a used-up subscription or a full buffer is noted and dealt with in the turn.

Behaviour, texts and their order as nats-server 2.15: tests/conformance/scenarios/{protocol,auth}. Compiled:
benchmarks/, core publish, 1-1, 1-10.
Long because the verbs of one connection share its state.
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH, write_digits
from pyjs.core.account cimport Account
from pyjs.core.outbuf cimport OutBuf
from pyjs.core.sink cimport Sink
from pyjs.subjects.sublist cimport Subscription, Target
from pyjs.subjects.tokens cimport valid_literal, valid_subject
from pyjs.wire.ops cimport (
    OP_BAD, OP_BAD_ARGS, OP_CONNECT, OP_ERR, OP_LINE_TOO_LONG, OP_MSG, OP_NEED, OP_NO_HEADERS, OP_PING, OP_PONG,
    OP_SUB, OP_TOO_BIG, OP_UNSUB, Msg,
)
from pyjs.wire.parser cimport Parser

from pyjs.core.handshake import BadConnect, ConnectOptions, info_line, parse_connect

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    FLUSH_AT = 262144           # queued bytes that force a turn: later the buffer leaves the L2 cache
    REPLIES_MAX = 4096          # reply permissions remembered before old ones are looked through
cdef int64_t NS_PER_MS = 1000000
cdef int64_t NS_PER_S = 1000000000
cdef int64_t FIRST_PING_NS = 2 * NS_PER_S
cdef int64_t RTT_EVERY_NS = 3600 * NS_PER_S
cdef int64_t STALL_NS = 5 * NS_PER_MS
cdef bytes SYSTEM_QUEUE = b"_sys_"

cdef dict LINE_ERRORS = {
    OP_BAD: ("Unknown Protocol Operation", "Protocol Violation"),
    OP_BAD_ARGS: ("", "Protocol Violation"),
    OP_NO_HEADERS: ("", "Protocol Violation"),
    OP_LINE_TOO_LONG: ("maximum control line exceeded", "Maximum Control Line Exceeded"),
    OP_TOO_BIG: ("Maximum Payload Violation", "Maximum Message Payload Exceeded"),
}


cdef inline size_t queued(OutBuf out) noexcept nogil:
    """Bytes that wait for the transport."""
    return out.pieces_len + out.len


cdef inline bint reserved_reply(const char* p, size_t n) noexcept nogil:
    """Reply subjects that only the server may use."""
    if n < 5 or (p[0] != c'$' and p[0] != c'_'):
        return False
    return ((n > 8 and memcmp(p, b"$JS.ACK.", 8) == 0) or memcmp(p, b"_R_.", 4) == 0
            or memcmp(p, b"_GR_.", 5) == 0)


cdef inline bint reserved_subject(const char* p, size_t n) noexcept nogil:
    """Publish subjects that only servers may use among themselves."""
    if n < 5 or (p[0] != c'$' and p[0] != c'_'):
        return False
    return memcmp(p, b"$NRG.", 5) == 0 or memcmp(p, b"_GR_.", 5) == 0


def quoted(value) -> str:
    """Return `value` as nats-server quotes it in its errors."""
    text = value.decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


cdef class ClientSession(Sink):
    """One client."""

    def __cinit__(self, object host, Account account, object peer, object link, uint64_t cid):
        self.host = host
        self.turn = host.turn_state
        self.account = account
        self.peer = peer
        self.link = link
        self.cid = cid
        self.parser = Parser()
        self.out = OutBuf()
        self.options = ConnectOptions()
        self.subscriptions = {}
        self.replies = {}
        self.timers = [None, None]          # authentication or ping, write deadline
        self.closed_reason = ""
        self.started_at_ns = self.last_activity_ns = host.clock.now_ns()
        self.awaiting_auth = host.authenticator.required
        self.apply_options()
        self.apply_settings()

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Greet the client and start its timers; it may be refused and closed right away."""
        settings = self.host.settings
        refusal = self.host.refusal(self)
        self.send_info()
        if refusal is not None:
            self.close(refusal[1], refusal[0])
            return
        if self.awaiting_auth:
            deadline_ns = self.started_at_ns + settings.auth_timeout_ns
            self.timers[0] = self.host.timers.at(deadline_ns, self.auth_timeout, self)
        else:
            self.account.sessions.add(self)
            self.schedule_first_ping()

    def apply_options(self) -> None:
        """Copy what CONNECT said into the flags that the message path reads."""
        options = self.options
        self.echo = options.echo
        self.verbose = options.verbose
        self.pedantic = options.pedantic
        self.headers = options.headers and self.host.settings.headers
        self.no_responders = options.no_responders and self.headers
        self.parser.headers = self.headers

    def apply_settings(self) -> None:
        """Take over the node's limits; called again after a reload."""
        settings = self.host.settings
        self.parser.max_payload = settings.max_payload
        self.parser.max_control_line = settings.max_control_line
        limits = self.account.limits
        if limits is not None and limits.max_payload >= 0:
            self.parser.max_payload = min(settings.max_payload, limits.max_payload)
        self.out.limit = settings.max_pending
        self.stall_at = settings.max_pending // 4 * 3

    def send_info(self, bint connected=False) -> None:
        """Queue an INFO line with the present facts; `connected`: the one after the first PONG."""
        self.send_line(info_line(self.host.info_fields(self, connected)))

    def send_line(self, bytes line) -> None:
        """Queue a protocol line, CRLF included."""
        self.out.add(line, len(line))
        self.mark_dirty()

    def send_error(self, str text) -> None:
        """Queue -ERR 'text'."""
        self.send_line(f"-ERR '{text}'\r\n".encode())

    def close(self, str reason, str error="") -> None:
        """End the session: queued output (and -ERR `error`) is sent, its subscriptions are gone at once."""
        if self.closed_reason:
            return
        if error:
            self.send_error(error)
        self.closed_reason = reason
        self.closing = True
        self.closed_at_ns = self.host.clock.now_ns()
        self.cancel_timers()
        for sub in self.subscriptions.values():
            self.account.unsubscribe(sub)
        self.account.sessions.discard(self)
        if self.out.overflow or reason == "Slow Consumer (Write Deadline)":
            self.link.abort()
        else:
            if queued(self.out):
                self.write_out()
            self.link.close()
        self.host.session_closed(self)      # monitoring remembers what it was subscribed to
        self.subscriptions.clear()

    def connection_lost(self) -> None:
        """Take note that the transport is gone."""
        self.out.clear()
        self.close("Client Closed")

    def cancel_timers(self) -> None:
        """Cancel what is scheduled for this session."""
        for timer in self.timers:
            if timer is not None:
                timer.cancel()

    def drop_subscriptions(self) -> None:
        """Take all subscriptions out of the account."""
        for sub in self.subscriptions.values():
            self.account.unsubscribe(sub)
        self.subscriptions.clear()

    def auth_timeout(self) -> None:
        """Close a client that did not say who it is."""
        if self.awaiting_auth:
            self.close("Authentication Timeout", "Authentication Timeout")

    # -- reading -------------------------------------------------------------------------------------------

    def receive_data(self, bytes data) -> bool:
        """Take one read. False: the session is over, stop reading."""
        cdef int op
        if self.closing:
            return False
        self.turn.now = self.last_activity_ns = self.host.clock.now_ns()
        self.parser.begin(data, len(data))
        while True:
            op = self.parser.next()
            if op == OP_MSG:
                self.publish(&self.parser.msg)
                if self.turn.pressure:
                    self.host.relieve(self.turn.now)
            elif op == OP_NEED:
                break
            else:
                self.control(op)
            if self.closing:
                return False
        self.parser.finish()
        if self.stalled:
            self.stall()
        return True

    cdef int publish(self, Msg* m) noexcept nogil:
        self.in_msgs += 1
        self.in_bytes += m.size
        m.origin = <PyObject*> self
        if self.guarded or self.awaiting_auth or self.verbose or self.pedantic \
                or m.subject[0] == c'$' or m.subject[0] == c'_' \
                or (m.reply_len and (m.reply[0] != c'_' or m.reply[1] != c'I')):
            return self.publish_checked(m)
        if self.account.publish(m) == 0 and m.reply_len and self.no_responders:
            with gil:
                self.no_responder(m)
        return 0

    cdef int publish_checked(self, Msg* m) noexcept nogil:
        """As publish, for clients and subjects that need a closer look."""
        if self.awaiting_auth:
            with gil:
                self.awaited_connect()
                if self.awaiting_auth:
                    return -1
        if self.pedantic and not valid_literal(m.subject, m.subject_len):
            with gil:
                self.send_error("Invalid Publish Subject")
        if reserved_subject(m.subject, m.subject_len) and m.subject[1] != c'N':
            with gil:
                self.deny_publish(m.subject[:m.subject_len])
                return -1
        if self.guarded:
            with gil:
                if not self.may_publish(m):
                    self.deny_publish(m.subject[:m.subject_len])
                    return -1
        if reserved_subject(m.subject, m.subject_len):
            with gil:
                if self.account is not self.host.system_account:
                    self.deny_publish(m.subject[:m.subject_len])
                    return -1
        if reserved_reply(m.reply, m.reply_len):
            with gil:
                self.send_error(f"Permissions Violation for Publish with Reply of {quoted(m.reply[:m.reply_len])}")
                return -1
        if self.verbose:
            self.out.add(b"+OK\r\n", 5)
            self.mark_dirty()
        if self.account.publish(m) == 0 and m.reply_len and self.no_responders:
            with gil:
                self.no_responder(m)
        return 0

    cdef bint may_publish(self, Msg* m) noexcept:
        cdef bytes subject = m.subject[:m.subject_len]
        try:
            return self.permissions.may_publish(subject) or self.take_reply_permission(subject)
        except Exception as error:
            self.host.log.error(f"cid:{self.cid} - permission check failed: {error!r}")
            return False

    cdef void no_responder(self, Msg* m) noexcept:
        """Tell the publisher itself, if it listens for the reply, that nobody got the request."""
        cdef bytes reply = m.reply[:m.reply_len]
        cdef bytes subject = m.subject[:m.subject_len]
        cdef bytes status
        if self.account.jetstream is not None:
            subject = self.account.jetstream.plain_subject(subject)
        status = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
        for sub in self.account.subs.match(reply):
            if (<Subscription> sub).sink is self and not (<Subscription> sub).queue \
                    and not (<Subscription> sub).state.closed:
                self.send_line(b"HMSG %b %b %d %d\r\n%b\r\n" % (
                    reply, (<Subscription> sub).sid, len(status), len(status), status))
                self.out_msgs += 1          # not counted for UNSUB max, see scenarios/headers
                return

    def deny_publish(self, bytes subject) -> None:
        """Tell the client that it may not publish to `subject`."""
        self.send_error(f"Permissions Violation for Publish to {quoted(subject)}")
        self.host.log.error(f"{self} - Publish Violation - Subject {quoted(subject)}")

    def take_reply_permission(self, bytes subject) -> bool:
        """Use up one leave to answer a request that was received (allow_responses)."""
        leave = self.replies.get(subject) if self.tracks_replies else None
        if leave is None:
            return False
        limits = self.permissions.responses
        if limits.expires_ns > 0 and leave[1] < self.turn.now:
            del self.replies[subject]
            return False
        leave[0] += 1
        if 0 < limits.messages_max <= leave[0]:
            del self.replies[subject]
        return True

    cdef void note_reply(self, Msg* m) noexcept:
        """Remember that the receiver of a request may answer it."""
        cdef bytes reply = m.reply[:m.reply_len]
        try:
            expires_ns = self.permissions.responses.expires_ns
            if len(self.replies) >= REPLIES_MAX and expires_ns > 0:
                for old in [key for key, leave in self.replies.items() if leave[1] < self.turn.now]:
                    del self.replies[old]
            self.replies[reply] = [0, self.turn.now + expires_ns]
        except Exception as error:
            self.host.log.error(f"cid:{self.cid} - reply permission lost: {error!r}")

    # -- control operations --------------------------------------------------------------------------------

    cdef int control(self, int op) except -1:
        cdef bytes line
        if op == OP_CONNECT:
            self._connect(self.parser.line[:self.parser.line_len])
            return 0
        if self.awaiting_auth:
            self.awaited_connect()
            if self.closing:
                return 0
        if op == OP_PING:
            self._ping()
        elif op == OP_PONG:
            self._pong()
        elif op == OP_SUB:
            self._sub(self.parser.line[:self.parser.line_len])
        elif op == OP_UNSUB:
            self._unsub(self.parser.line[:self.parser.line_len])
        elif op == OP_ERR:
            line = self.parser.line[:self.parser.line_len]
            self.host.log.error(f"{self} - Client Error {line.decode('utf-8', 'replace')}")
            self.close("Parse Error")
        elif op in LINE_ERRORS:
            self.fail(op)
        return 0

    cdef int fail(self, int op) except -1:
        error, reason = LINE_ERRORS[op]
        if op == OP_NO_HEADERS:
            self.host.log.error(f"{self} - message headers not supported")
        self.close(reason, error)
        return 0

    def awaited_connect(self) -> None:
        """Take an operation before CONNECT: fine with a no_auth_user, else the end."""
        user = self.host.authenticator.no_auth_user
        if user is None:
            self.close("Authentication Failure", "Authorization Violation")
            return
        self.connected = True
        self.bind(user)

    def bind(self, object user) -> None:
        """Become `user`: join its account under its permissions."""
        account = self.host.accounts[user.account]
        refusal = self.host.account_refusal(self, account)
        if refusal is not None:
            self.close(refusal[1], refusal[0])
            return
        self.cancel_timers()
        self.account.sessions.discard(self)
        self.account = account
        self.account.sessions.add(self)
        self.awaiting_auth = False
        self.take_permissions(user)
        self.apply_settings()
        self.schedule_first_ping()

    def reauthorize(self) -> None:
        """Apply changed users: the end for a client that may not be here any more, new permissions for the others."""
        authenticator = self.host.authenticator
        if not self.connected:
            if self.user is None:
                self.awaiting_auth = authenticator.required
            return
        user = authenticator.users.get(self.user.name) if self.user is not None else None
        if user is None or user.secret != self.user.secret:
            user = authenticator.authenticate(self.options)
        if user is None or user.account != self.account.name:
            self.close("Authentication Failure", "Authorization Violation")
            return
        self.take_permissions(user)
        self.drop_forbidden()

    def drop_forbidden(self) -> None:
        """Take out the subscriptions that the permissions of now do not allow, and say so; filter the others anew."""
        permissions = self.permissions
        for sub in list(self.subscriptions.values()):
            allowed = permissions is None or permissions.may_subscribe(sub.subject, sub.queue)
            filtered = allowed and permissions is not None and permissions.filters_messages(sub.subject, sub.queue)
            if allowed and not filtered and not sub.filtered:
                continue
            self.account.unsubscribe(sub)
            if allowed:
                sub.closed = False
                sub.filtered = filtered
                self.account.add(sub)
            else:
                del self.subscriptions[sub.sid]
                self.send_error(f"Permissions Violation for Subscription to {quoted(sub.subject)}"
                                f" (sid {quoted(sub.sid)})")

    def take_permissions(self, object user) -> None:
        """Be `user` from now on."""
        self.user = user
        self.permissions = user.permissions
        self.guarded = user.permissions is not None and user.permissions.limits_publishing
        self.tracks_replies = user.permissions is not None and user.permissions.responses is not None

    def _connect(self, bytes line) -> None:
        try:
            self.options = parse_connect(line, self.options)
        except BadConnect as error:
            self.host.log.error(f"{self} - {error}")
            self.close("Protocol Violation")
            return
        if self.connected:
            self.drop_subscriptions()
        user = self.host.authenticator.authenticate(self.options)
        if user is None or self.options.account or self.options.new_account:
            self.host.log.error(f"{self} - authentication error - User {quoted(self.options.user.encode())}")
            self.close("Authentication Failure", "Authorization Violation")
            return
        self.connected = True
        self.bind(user)
        if self.closing:
            return
        self.apply_options()
        if self.options.protocol not in (0, 1):
            self.close("Bad Client Protocol Version", "invalid client protocol")
        elif self.options.no_responders and not self.headers:
            self.close("No Responders Requires Headers", "no responders requires headers support")
        elif self.verbose:
            self.send_line(b"+OK\r\n")
        if not self.rtt_ns:
            self.rtt_ns = max(1, self.turn.now - self.started_at_ns)

    def _ping(self) -> None:
        self.send_line(b"PONG\r\n")
        if self.connected and not self.pong_sent:
            self.pong_sent = True
            if self.options.protocol >= 1:
                self.send_info(connected=True)

    def _pong(self) -> None:
        if self.pings_out:
            self.rtt_ns = max(1, self.turn.now - self.ping_sent_ns)
        self.pings_out = 0

    def _sub(self, bytes line) -> None:
        args = line.split()
        if len(args) not in (2, 3):
            self.close("Protocol Violation")
            return
        if self.retiring:
            self.retire()               # a sid is free again as soon as its UNSUB max was reached
        subject, queue, sid = args[0], args[1] if len(args) == 3 else b"", args[-1]
        permissions = self.permissions
        settings = self.host.settings
        if queue == SYSTEM_QUEUE or (permissions is not None and not permissions.may_subscribe(subject, queue)):
            group = f" using queue {quoted(queue)}" if queue else ""
            self.send_error(f"Permissions Violation for Subscription to {quoted(subject)}{group}")
            self.host.log.error(f"{self} - Subscription Violation - Subject {quoted(subject)}, SID {sid.decode()}")
            return
        if settings.max_sub_tokens and subject.count(b".") + 1 > settings.max_sub_tokens:
            self.send_error(f"Permissions Violation for Subscription to {quoted(subject)}, too many tokens")
            return
        if self.at_subscription_limit():
            self.send_error("maximum subscriptions exceeded")
            return
        if sid not in self.subscriptions:
            if not valid_subject(subject, len(subject)):
                self.send_error("Invalid Subject")
                return
            sub = Subscription(self, subject, queue, sid)
            sub.filtered = permissions is not None and permissions.filters_messages(subject, queue)
            self.subscriptions[sid] = sub
            self.account.add(sub)
        if self.verbose:
            self.send_line(b"+OK\r\n")

    def at_subscription_limit(self) -> bool:
        """Tell whether one more subscription is too many for the connection or its account."""
        limit = self.host.settings.max_subscriptions
        if limit and len(self.subscriptions) >= limit:
            return True
        limits = self.account.limits
        return limits is not None and 0 <= limits.max_subscriptions <= len(self.account.subs)

    def _unsub(self, bytes line) -> None:
        args = line.split()
        if len(args) not in (1, 2):
            self.close("Protocol Violation")
            return
        sub = self.subscriptions.get(args[0])
        limit = int(args[1]) if len(args) == 2 and args[1].isdigit() and len(args[1]) <= 9 else 0
        if sub is not None:
            if limit > sub.delivered:
                sub.max = limit
            else:
                del self.subscriptions[args[0]]
                self.account.unsubscribe(sub)
        if self.verbose:
            self.send_line(b"+OK\r\n")

    # -- pings ---------------------------------------------------------------------------------------------

    def schedule_first_ping(self) -> None:
        """Ping early once, for the round-trip time, at a moment that differs between clients."""
        interval = min(self.host.settings.ping_interval_ns, FIRST_PING_NS)
        self.schedule_ping(interval + self.host.rng.below(max(1, interval // 5)))

    def schedule_ping(self, object after_ns) -> None:
        """Look after the connection in `after_ns`."""
        if self.timers[0] is not None:
            self.timers[0].cancel()
        self.timers[0] = self.host.timers.at(self.host.clock.now_ns() + after_ns, self.ping_due, self)

    def ping_due(self) -> None:
        """Send a PING unless the client was heard lately; close it when too many went unanswered."""
        settings = self.host.settings
        now_ns = self.host.clock.now_ns()
        if now_ns - self.last_activity_ns >= settings.ping_interval_ns or now_ns - self.ping_sent_ns > RTT_EVERY_NS:
            if self.pings_out + 1 > settings.ping_max:
                self.host.stale_connections += 1
                self.close("Stale Connection", "Stale Connection")
                return
            self.pings_out += 1
            self.ping_sent_ns = now_ns
            self.send_line(b"PING\r\n")
        self.schedule_ping(settings.ping_interval_ns)

    # -- writing -------------------------------------------------------------------------------------------

    cdef int write_out(self) except -1:
        """Hand everything queued to the transport."""
        if self.out.pieces_len:
            self.link.write_all(self.out.take_all())
        else:
            self.link.write(self.out.take())
        return 0

    cdef void mark_dirty(self) noexcept nogil:
        if not self.dirty:
            self.dirty = True
            with gil:
                self.turn.sessions.append(self)

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        cdef char* out
        cdef size_t n
        cdef bint hmsg = m.header_len != 0
        if t.head == NULL or m.aliased or m.split or (hmsg and not self.headers):
            return self.deliver_composed(m, t)
        if t.sub.closed or self.closing or (m.origin == <void*> self and not self.echo):
            return 0
        n = t.head_len + m.tail_len
        out = self.out.reserve(n)
        if out == NULL:
            self.mark_dirty()
            return 0
        memcpy(out, t.head + (not hmsg), t.head_len - (not hmsg))
        memcpy(out + t.head_len - (not hmsg), m.tail, m.tail_len)
        self.out.len += n - (not hmsg)
        t.sub.delivered += 1
        self.out_msgs += 1
        self.out_bytes += m.size
        if not self.dirty:
            self.mark_dirty()
        if t.sub.max and t.sub.delivered >= t.sub.max:
            t.sub.closed = True
            self.retiring = True
        if queued(self.out) > FLUSH_AT:
            self.turn.pressure = True
            if queued(self.out) + self.unsent > self.stall_at:
                self.stall_origin(m)
        if self.tracks_replies and m.reply_len:
            with gil:
                self.note_reply(m)
        return 1

    cdef int deliver_composed(self, Msg* m, Target* t) noexcept nogil:
        """As deliver, when the line has to be written from its parts."""
        cdef bint hmsg = m.header_len != 0 and self.headers
        cdef bint strip = m.header_len != 0 and not self.headers
        cdef bint whole = m.whole != NULL and not strip
        cdef size_t body = m.size - (m.header_len if strip else 0)
        cdef char* start
        cdef char* out
        if t.sub.closed or self.closing or (m.origin == <void*> self and not self.echo):
            return 0
        start = self.out.reserve(m.subject_len + t.sub.sid_len + m.tail_len + m.reply_len + 64
                                 + (0 if whole else body))
        if start == NULL:
            self.mark_dirty()
            return 0
        out = start
        memcpy(out, b"HMSG " if hmsg else b"MSG ", 5)
        out += 5 if hmsg else 4
        memcpy(out, m.subject, m.subject_len)
        out += m.subject_len
        out[0] = c' '
        memcpy(out + 1, t.sub.sid, t.sub.sid_len)
        out += 1 + t.sub.sid_len
        out[0] = c' '
        out += 1
        if strip:
            if m.reply_len:
                memcpy(out, m.reply, m.reply_len)
                out[m.reply_len] = c' '
                out += m.reply_len + 1
            out += write_digits(out, body)
            out[0] = c'\r'
            out[1] = c'\n'
            out += 2
        else:
            memcpy(out, m.tail, m.tail_len)
            out += m.tail_len
        if whole:
            self.out.len += out - start
            if self.deliver_whole(m) != 0:
                self.mark_dirty()
                return 0
            start = out = self.out.data + self.out.len
        elif strip or m.split:
            memcpy(out, m.body + (m.size - body), body)
            out[body] = c'\r'
            out[body + 1] = c'\n'
            out += body + 2
        self.out.len += out - start
        t.sub.delivered += 1
        self.out_msgs += 1
        self.out_bytes += body
        if not self.dirty:
            self.mark_dirty()
        if t.sub.max and t.sub.delivered >= t.sub.max:
            t.sub.closed = True
            self.retiring = True
        if queued(self.out) > FLUSH_AT:
            self.turn.pressure = True
            if queued(self.out) + self.unsent > self.stall_at:
                self.stall_origin(m)
        if self.tracks_replies and m.reply_len:
            with gil:
                self.note_reply(m)
        return 1

    cdef int deliver_whole(self, Msg* m) noexcept nogil:
        """Queue a body that is an object as it is, and the end of its line; 1: there is no room."""
        with gil:
            try:
                self.out.add_whole(<bytes> <object> m.whole)
            except MemoryError:
                self.out.overflow = True
        return self.out.overflow or self.out.add(b"\r\n", 2) != 0

    cdef void stall_origin(self, Msg* m) noexcept nogil:
        """Slow down the publisher of `m`: this receiver is nearly full."""
        if m.origin != NULL:
            (<ClientSession> m.origin).slow_down()

    cdef void slow_down(self) noexcept nogil:
        self.stalled = True

    def stall(self) -> None:
        """Read on in a few milliseconds, so that a receiver can catch up."""
        self.stalled = False
        if not self.host.settings.stall_producers:
            return
        self.stalls += 1
        self.host.stalled_clients += 1
        self.link.pause_reading()
        self.host.timers.at(self.turn.now + STALL_NS, self.link.resume_reading)

    def accepts(self, bytes subject) -> bool:
        """Tell whether the deny list lets a message of `subject` through to this client."""
        return self.permissions is None or self.permissions.may_receive(subject)

    def flush_output(self) -> None:
        """Hand the queued output to the transport; called by the node's turn."""
        self.dirty = False
        if self.retiring:
            self.retire()
        if self.closing:
            return
        if self.out.overflow:
            self.host.slow_consumers += 1
            self.host.log.info(f"{self} - Slow Consumer Detected: MaxPending of {self.out.limit} Exceeded")
            self.close("Slow Consumer (Pending Bytes)")
            return
        if self.paused or not queued(self.out):
            return
        self.write_out()
        self.unsent = self.link.pending_size()

    def retire(self) -> None:
        """Take out the subscriptions that reached their UNSUB max."""
        self.retiring = False
        for sub in [sub for sub in self.subscriptions.values() if sub.closed]:
            del self.subscriptions[sub.sid]
            self.account.unsubscribe(sub)

    def output_paused(self) -> None:
        """Keep output here until the transport takes more; close when it does not within write_deadline."""
        self.paused = True
        self.unsent = self.link.pending_size()
        self.paused_at_ns = self.host.clock.now_ns()
        self.timers[1] = self.host.timers.at(
            self.paused_at_ns + self.host.settings.write_deadline_ns, self.write_deadline_passed)

    def output_resumed(self) -> None:
        """Go on writing."""
        self.paused = False
        self.unsent = self.link.pending_size()
        if self.timers[1] is not None:
            self.timers[1].cancel()
        if queued(self.out):
            self.mark_dirty()

    def write_deadline_passed(self) -> None:
        """Close a client that takes nothing."""
        if self.paused and not self.closing:
            self.host.slow_consumers += 1
            self.host.log.info(f"{self} - Slow Consumer Detected: WriteDeadline of "
                               f"{self.host.settings.write_deadline_ns / 1e9:g}s exceeded with "
                               f"{self.pending_size()} bytes queued")
            self.close("Slow Consumer (Write Deadline)")

    def pending_size(self) -> int:
        """Return how many bytes wait for this client, here and in the transport."""
        return queued(self.out) + self.link.pending_size()

    def room(self) -> int:
        """Return how many bytes more may wait for this client before it counts as slow."""
        return max(0, self.out.limit - self.pending_size())

    def __str__(self) -> str:
        return f"{self.peer.ip}:{self.peer.port} - cid:{self.cid}"

"""One client connection, without its socket: bytes in, operations on its account, bytes out.

A publish is passed to the account without a Python call; the other verbs are ordinary Python. Deliveries are written
to the output buffer, which is sent when the node's turn calls `flush_output`, after the stores have committed. A
delivery never closes a session or removes a subscription: the turn does that later.

Behaviour, texts and their order follow nats-server 2.15: tests/conformance/scenarios/{core,auth}. Compiled, because
it runs for every message (measured in benchmarks/: core publish, 1-1, 1-10).
Long because the verbs of one connection share its state.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from pyjs.base.fast cimport write_digits
from pyjs.core.account cimport Account
from pyjs.core.intake cimport HELD, REST, VERDICT, Intake
from pyjs.core.outbuf cimport FLUSH_AT, OutBuf
from pyjs.core.reserved cimport reserved_reply, reserved_subject
from pyjs.core.sink cimport Sink
from pyjs.core.tracing.publish cimport TracedPublish
from pyjs.core.tracing.scan cimport asks_for_trace
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.subjects.trie cimport SubState
from pyjs.subjects.tokens cimport valid_literal, valid_subject
from pyjs.wire.ops cimport (
    OP_CONNECT, OP_ERR, OP_MSG, OP_NEED, OP_NO_HEADERS, OP_PING, OP_PONG, OP_SUB, OP_UNSUB, Msg,
)
from pyjs.wire.parser cimport Parser

from pyjs.base.gotext import printable
from pyjs.core.auth.handshake import ConnectOptions, connect_refusal, info_line
from pyjs.core.auth.limits import limits_of
from pyjs.core.auth.login import FAILURE, VIOLATION, Login
from pyjs.wire.nkeys import make_nonce
from pyjs.core.pings import Pings
from pyjs.core.deadlines import Deadlines
from pyjs.core.auth.replies import Replies
from pyjs.core.intake import LINE_ERRORS
from pyjs.core.auth.violations import publish_violation, reply_violation, subscription_violation, too_many_tokens
from pyjs.core.tracing.publish import DENIED, NO_ECHO

cdef enum:
    WORK_MAX = 32768    # units of work of a session in one turn: about 2 ms
    WORK_MIN = 1024             # units that each read may use at least
    COPIED_BITS = 8             # one unit: a message, a receiver, 2^8 copied bytes, or a visited node of the trie
    PILED_UP_BITS = 5           # copying bytes beyond FLUSH_AT takes ten times as long, since their memory is new
    CONTROL_WORK = 48           # SUB, UNSUB, PING, ...
    CONNECT_WORK = 512
    PERMISSION_WORK = 64        # a check of permissions, or the note of a reply subject
    RELIEF_NS = 250    # ns of a partial turn that count as one unit: at most about 8 ms of a turn in total
cdef int64_t STALL_NS = 5000000
cdef bytes SYSTEM_QUEUE = b"_sys_"


cdef inline int count_delivery(ClientSession session, Msg* m, Target* t, size_t size, size_t copied) noexcept nogil:
    """Count a message of `size` bytes, of which `copied` bytes were copied into the output buffer; return 1."""
    t.sub.delivered += 1
    session.out_msgs += 1
    session.out_bytes += size
    if not session.dirty:
        session.mark_dirty()
    if t.sub.max and t.sub.delivered >= t.sub.max:
        session.retire_later(t.sub)
    if session.out.queued() > session.out.relief_at:
        session.turn.pressure = True
    if session.out.queued() > FLUSH_AT:
        session.turn.extra_work += <int64_t> (copied >> PILED_UP_BITS)
        session.turn.crowded |= session.is_behind() or session.out.unwritten() > session.out.stall_at // 4
        if m.origin != NULL and (session.is_behind() or session.out.unwritten() > session.out.stall_at):
            (<ClientSession> m.origin).slow_down()
    if session.replies is not None and m.reply_len:
        with gil:
            session.note_reply(m)
    return 1


cdef class ClientSession(Sink):
    """The server's end of one client connection."""

    def __cinit__(self, object host, Account account, object peer, object link, uint64_t cid):
        self.host = host
        self.turn = host.turn_state
        self.account = account
        self.peer = peer
        self.link = link
        self.cid = cid
        self.nonce = make_nonce(host.rng) if host.authenticator.wants_nonce else ""
        self.parser = Parser()
        self.out = OutBuf()
        self.out.portion = link.portion
        self.options = ConnectOptions()
        self.subscriptions, self.used_up = {}, []
        self.login, self.pings, self.deadlines = Login(self), Pings(self), Deadlines(self)
        self.input = Intake(link)
        self.closed_reason = ""
        self.started_at_ns = self.last_activity_ns = host.clock.now_ns()
        self.entry = NEEDS_CONNECT if host.entrance(peer).authenticator.required else MAY_CONNECT
        self.apply_options()
        self.apply_settings()

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Send INFO and start the timers. The server may refuse the client and close the session at once."""
        refusal = self.host.refusal(self)
        self.send_info()
        if refusal is not None:
            self.close(refusal[1], refusal[0])
            return
        if self.entry == NEEDS_CONNECT:
            self.deadlines.await_login()
        else:
            self.account.sessions.add(self)
            self.pings.begin()

    def apply_options(self) -> None:
        """Set the flags for those options of CONNECT that the message path needs."""
        options = self.options
        cdef bint headers = options.headers and self.host.settings.headers
        self.set_feature(ECHO, options.echo)
        self.set_feature(VERBOSE, options.verbose)
        self.set_feature(PEDANTIC, options.pedantic)
        self.set_feature(HEADERS, headers)
        self.set_feature(NO_RESPONDERS, headers and options.no_responders)
        self.parser.headers = headers

    cdef void set_feature(self, unsigned int feature, bint on):
        self.features = self.features | feature if on else self.features & ~feature

    def apply_settings(self) -> None:
        """Apply the limits of the node, the account and the user; called again after a reload."""
        settings = self.host.settings
        self.parser.max_control_line = settings.max_control_line
        self.parser.max_payload, self.subscriptions_max = limits_of(settings, self.account.limits, self.user)
        self.out.set_limit(settings.max_pending)

    def send_info(self, bint connected=False) -> None:
        """Queue an INFO line with the current fields; `connected` marks the INFO that follows the first PONG."""
        self.send_line(info_line(self.host.info_fields(self, connected)))

    def send_line(self, bytes line) -> None:
        """Queue a protocol line; `line` must include the CRLF."""
        self.out.add(line, len(line))
        self.mark_dirty()

    def send_error(self, str text) -> None:
        """Queue -ERR 'text'."""
        self.send_line(f"-ERR '{text}'\r\n".encode())

    def close(self, str reason, str error="") -> None:
        """End the session for `reason`: send queued output, and remove all subscriptions.

        If `error` is not empty, the output ends with -ERR and this text. The queued output of a slow consumer is
        dropped. A session that has ended is not changed.
        """
        if self.closed_reason:
            return
        if error:
            self.send_error(error)
        self.closed_reason = self.link.closed_reason = reason
        self.closing = True
        self.closed_at_ns = self.host.clock.now_ns()
        self.pings.cancel()
        self.deadlines.cancel()
        self.account.sessions.discard(self)
        self.login.cancel(self.input.reads)
        if self.output == LOST:
            self.out.clear()
        elif self.out.overflow or reason == "Slow Consumer (Write Deadline)":
            self.link.abort()
        else:
            if self.out.queued():
                self.out.portion = 0
                self.write_out()
            self.link.close()
        self.host.session_closed(self)      # before the subscriptions are removed: monitoring copies them
        self.drop_subscriptions()
        self.login = self.pings = self.deadlines = None     # break the cycle: they refer to this session

    def lose_link(self) -> None:
        """Discard all output, because nothing more can be sent; the caller must call `end_input` later."""
        self.output = LOST
        self.out.clear()
        if not self.closing:
            self.deadlines.reader_caught_up()

    def connection_lost(self) -> None:
        """Handle the loss of the transport; input that arrived before the loss is still parsed."""
        self.lose_link()
        self.end_input()

    def drop_subscriptions(self) -> None:
        """End all subscriptions."""
        subs, self.subscriptions = self.subscriptions, {}
        self.account.unsubscribe_all(list(subs.values()))

    # -- reading -------------------------------------------------------------------------------------------

    def receive_data(self, bytes data) -> bool:
        """Parse one read. Return False if the session has ended; the caller must then stop reading.

        Input beyond the session's share of a turn waits for later turns. If more arrives meanwhile, reading pauses.
        """
        if self.closing:
            return False
        self.turn.now = self.last_activity_ns = self.host.clock.now_ns()
        self.input.reads.append(data)
        if len(self.input.reads) > 1 or self.input.waits & VERDICT:
            self.input.hold()
            return True
        if self.turn.input_left <= 0 and (self.entry < CONNECTED or self.turn.pressure):
            self.queue_input()
            return True
        return self.parse(max(WORK_MIN, min(self.turn.input_left, WORK_MAX)))

    def receive_buffer(self, bytearray buffer not None, size_t n) -> None:
        """Parse the first `n` bytes of `buffer` as `receive_data` does; copy only input that must wait."""
        if self.closing or self.input.reads or self.entry < CONNECTED or self.input.waits & VERDICT \
                or self.turn.input_left <= 0:
            self.receive_data(PyByteArray_AS_STRING(buffer)[:n])
            return
        self.turn.now = self.last_activity_ns = self.host.clock.now_ns()
        self.input.begun = True
        self.parser.begin(PyByteArray_AS_STRING(buffer), n)
        self.parse(max(WORK_MIN, min(self.turn.input_left, WORK_MAX)))

    def resume_input(self) -> None:
        """Parse input that earlier turns left unparsed; called by the node's turn."""
        self.input.queued = False
        if not self.closing and not self.input.waits & (VERDICT | REST):
            self.parse(max(WORK_MIN, min(self.turn.input_left, WORK_MAX)))

    cdef bint parse(self, int64_t work) except -1:
        """Parse operations until `work` units are used up; return False if the session has ended."""
        cdef int64_t left = work
        cdef bytes data = b""
        while self.input.begun or self.input.reads:
            if self.input.reads:
                data = self.input.reads[0]  # keep a reference: closing clears `reads` while the parser uses the data
            if not self.input.begun:
                self.input.begun = True
                self.parser.begin(data, len(data))
                if self.entry == NEEDS_CONNECT and self.parser.kept_len == 0 and data[:1] not in (b"C", b"c"):
                    self.awaited_connect()    # before the login, an incomplete publish must not use memory
            left = self.parse_read(left)
            if self.closing:
                return False
            if self.input.begun:
                if not self.input.reads:
                    self.input.reads.append(self.parser.take_rest())
                self.turn.input_left -= work - left
                self.leave_input()
                return True
            if self.input.reads:
                self.input.reads.popleft()
        self.turn.input_left -= work - left
        self.input_used_up()
        return not self.closing

    cdef int64_t parse_read(self, int64_t left) except? -1:
        """Parse one read within `left` units of work, and return the unused units."""
        cdef uint64_t visited
        cdef int op, receivers
        while not self.closing:
            visited = self.account.subs.found.visited
            self.turn.extra_work = 0
            op = self.parser.next()
            if op == OP_MSG:
                if self.account.mappings is not None:
                    self.account.map_published(&self.parser.msg)
                receivers = self.publish(&self.parser.msg)
                left -= 1 + (receivers > 0) * receivers * <int64_t> (1 + (self.parser.msg.size >> COPIED_BITS))
                if self.turn.pressure:
                    left = self.relieve(left) if self.turn.input_left > 0 else 0
            elif op == OP_NEED:
                self.parser.finish()
                self.input.begun = False
                return left
            else:
                left -= CONNECT_WORK if op == OP_CONNECT else CONTROL_WORK
                self.control(op)
            left -= <int64_t> (self.account.subs.found.visited - visited) + self.turn.extra_work
            if left <= 0 or self.input.waits & VERDICT:
                return left
        return left

    cdef int64_t relieve(self, int64_t left) except? -1:
        """Write output in a partial turn; return `left` minus the work done, or 0 if a buffer is still too full."""
        cdef int64_t began = self.host.clock.now_ns()
        self.host.relieve(self.turn.now)
        left -= max(0, self.host.clock.now_ns() - began) // RELIEF_NS
        return 0 if self.turn.pressure else left

    def leave_input(self) -> None:
        """Stop parsing inside a read. Parsing continues in the next turn, after the login, or after a pause."""
        if self.input.stalled:
            self.stall()
        if self.input.waits & VERDICT:
            self.input.hold()
        elif not self.input.waits & REST:
            self.queue_input()

    def queue_input(self) -> None:
        """Queue the session for parsing in the next turn, if it has unparsed input."""
        if self.input.reads and not self.input.queued:
            self.input.queued = True
            self.turn.inputs.append(self)

    def input_used_up(self) -> None:
        """Resume reading after all input was parsed; close the session if the client sends no more."""
        if self.input.stalled:
            self.stall()
        if self.input.over:
            self.close(self.link.end_reason)
        else:
            self.input.go_on(HELD)

    def end_input(self) -> None:
        """Close the session after its remaining input was parsed, since the client sends no more."""
        if self.input.reads and not self.closing:
            self.input.over = True
        else:
            self.close(self.link.end_reason)

    cdef int publish(self, Msg* m) noexcept nogil:
        cdef int receivers
        self.in_msgs += 1
        self.in_bytes += m.size
        m.origin = <PyObject*> self
        if self.features & (GUARDED | VERBOSE | PEDANTIC) or self.entry == NEEDS_CONNECT \
                or m.subject[0] == c'$' or m.subject[0] == c'_' \
                or (m.reply_len and (m.reply[0] != c'_' or m.reply[1] != c'I')) \
                or (m.header_len and asks_for_trace(m.body, m.header_len)):
            return self.publish_checked(m)
        receivers = self.account.publish(m)
        if receivers == 0 and m.reply_len and self.features & NO_RESPONDERS:
            with gil:
                self.no_responder(m)
        return receivers

    cdef int publish_checked(self, Msg* m) noexcept nogil:
        """Publish `m` with the checks that few clients need; return the receivers, or -1 if `m` is refused."""
        cdef int receivers
        if self.entry == NEEDS_CONNECT:
            with gil:
                self.awaited_connect()
                if self.entry == NEEDS_CONNECT or self.closing:
                    return -1
        if self.features & PEDANTIC and not valid_literal(m.subject, m.subject_len):
            with gil:
                self.send_error("Invalid Publish Subject")
        if m.header_len and asks_for_trace(m.body, m.header_len):
            with gil:
                return self.publish_traced(m)
        if self.refused(m):
            return -1
        receivers = self.account.publish(m)
        if receivers == 0 and m.reply_len and self.features & NO_RESPONDERS:
            with gil:
                self.no_responder(m)
        return receivers

    cdef bint refused(self, Msg* m) noexcept nogil:
        """Return whether publishing `m` is refused. Send -ERR if it is, otherwise +OK if the client wants it."""
        cdef bint reserved = reserved_subject(m.subject, m.subject_len)
        cdef bint guarded = self.features & GUARDED and not self.decisions.allow(m.subject, m.subject_len)
        if guarded or reserved:
            with gil:
                if (reserved and m.subject[1] != c'N') or (guarded and not self.may_publish(m)) \
                        or (reserved and self.account is not self.host.system_account):
                    self.report(publish_violation(m.subject[:m.subject_len]))
                    return True
        if reserved_reply(m.reply, m.reply_len):
            with gil:
                self.report(reply_violation(m.reply[:m.reply_len]))
                return True
        if self.features & VERBOSE:
            self.out.add(b"+OK\r\n", 5)
            self.mark_dirty()
        return False

    cdef int publish_traced(self, Msg* m) noexcept:
        """Publish a message whose headers request a trace; return the number of receivers, or -1 if refused."""
        cdef TracedPublish traced = TracedPublish(self, self.turn)
        cdef int receivers = -1
        if not traced.begin(m):
            self.in_msgs -= 1
            self.in_bytes -= m.size
            return -1
        if not self.refused(m):
            receivers = traced.deliver(self.account)
            if receivers == 0 and m.reply_len and self.features & NO_RESPONDERS:
                self.no_responder(m)
        traced.end()
        return receivers

    cdef bint may_publish(self, Msg* m) noexcept:
        cdef bytes subject = m.subject[:m.subject_len]
        self.turn.extra_work += PERMISSION_WORK
        try:
            return self.permissions.may_publish(subject) or self.replies and self.replies.take(subject, self.turn.now)
        except Exception as error:
            self.host.log.error(f"cid:{self.cid} - permission check failed: {error!r}")
            return False

    cdef void no_responder(self, Msg* m) noexcept:
        """Send status 503 for a request without a receiver, if the publisher subscribed to the reply subject."""
        cdef bytes line = self.account.no_responder(m, <PyObject*> self)
        if line:
            self.send_line(line)
            self.out_msgs += 1              # this line does not count for UNSUB max, see scenarios/headers

    def report(self, violation) -> None:
        """Send the client -ERR for a violation, log it, and add it to the trace of the message."""
        self.send_error(violation.error)
        self.host.log.error(f"{self} - {violation.logged}")
        if self.turn.trace is not None:
            self.turn.trace.fail(violation.error)

    cdef void note_reply(self, Msg* m) noexcept:
        """Permit this client to answer a request that it received (allow_responses)."""
        self.turn.extra_work += PERMISSION_WORK
        try:
            self.replies.note(m.reply[:m.reply_len], self.turn.now)
        except Exception as error:
            self.host.log.error(f"cid:{self.cid} - reply permission lost: {error!r}")

    # -- control operations --------------------------------------------------------------------------------

    cdef int control(self, int op) except -1:
        cdef bytes line
        if op == OP_CONNECT:
            self.login.connect(self.parser.line[:self.parser.line_len])
            return 0
        if self.entry == NEEDS_CONNECT and op not in LINE_ERRORS:
            self.awaited_connect()
            if self.closing:
                return 0
        if op == OP_PING:
            self._ping()
        elif op == OP_PONG:
            self.pings.pong()
        elif op == OP_SUB:
            self._sub(self.parser.line[:self.parser.line_len])
        elif op == OP_UNSUB:
            self._unsub(self.parser.line[:self.parser.line_len])
        elif op == OP_ERR:
            line = self.parser.line[:self.parser.line_len]
            self.host.log.error(f"{self} - Client Error {printable(line.decode('utf-8', 'surrogateescape'))}")
            self.close("Parse Error")
        elif op in LINE_ERRORS:
            if op == OP_NO_HEADERS:
                self.host.log.error(f"{self} - message headers not supported")
            error, reason = LINE_ERRORS[op]
            self.close(reason, error)
        return 0

    def awaited_connect(self) -> None:
        """Handle an operation other than CONNECT before the login: log in as no_auth_user, or close the session."""
        user = self.login.default_user()
        if user is None:
            self.close(FAILURE, VIOLATION)
            return
        self.entry = CONNECTED
        self.bind(user)

    def bind(self, object user) -> None:
        """Bind the session to the account and permissions of `user`, or close it if the account is full."""
        account = self.host.accounts[user.account]
        refusal = self.host.account_refusal(self, account)
        if refusal is not None:
            self.close(refusal[1], refusal[0])
            return
        self.deadlines.logged_in()
        previous, self.account = self.account, account
        previous.sessions.discard(self)
        account.sessions.add(self)
        self.take_permissions(user)
        self.apply_settings()
        self.pings.begin()
        self.host.session_entered(self, previous)

    def reauthorize(self) -> None:
        """Apply changed users; called after a reload."""
        if not self.closing:
            self.login.reauthorize()

    def enter(self) -> None:
        """Accept the client without CONNECT, because a reload has turned authorization off."""
        self.entry = MAY_CONNECT
        self.deadlines.logged_in()
        self.account.sessions.add(self)
        self.pings.begin()

    def change_permissions(self, object permissions) -> None:
        """Replace the permissions of a connected client, and remove subscriptions that the new ones do not allow."""
        self.login.change_permissions(permissions)

    def take_permissions(self, object user) -> None:
        """Apply the permissions of `user`."""
        cdef object permissions = user.permissions
        limits = None if permissions is None else permissions.responses
        if limits is None:
            self.replies = None
        elif self.replies is None or not permissions.same_as(self.permissions):
            self.replies = Replies(limits)      # like nats-server, forget earlier permissions to reply
        self.user = user
        self.permissions = permissions
        self.decisions = None if permissions is None else permissions.decisions
        self.set_feature(GUARDED, permissions is not None and permissions.limits_publishing)

    def await_verdict(self) -> None:
        """Stop parsing until `have_verdict` is called: a job or a service decides about the login."""
        self.input.waits |= VERDICT

    def have_verdict(self) -> None:
        """Queue the waiting input for parsing, after the decision about the login."""
        self.input.waits &= ~VERDICT
        self.queue_input()

    def log_in(self, object user) -> None:
        """Log in as `user` after CONNECT; close the session if the account or the options are refused."""
        self.entry = max(self.entry, CONNECTED)
        self.bind(user)
        if self.closing:
            return
        self.apply_options()
        refusal = connect_refusal(self.options, self.features & HEADERS != 0)
        if refusal is not None:
            self.close(*refusal)
        elif self.features & VERBOSE:
            self.send_line(b"+OK\r\n")
        if not self.closing:
            self.pings.connected()

    def _ping(self) -> None:
        self.send_line(b"PONG\r\n")
        if self.entry == CONNECTED:
            self.entry = GREETED
            if self.options.protocol >= 1:
                self.send_info(connected=True)

    def _sub(self, bytes line) -> None:
        args = line.split()
        if len(args) not in (2, 3):
            self.close("Protocol Violation")
            return
        if self.used_up:
            self.retire()               # now: a client may reuse a sid as soon as its UNSUB max is reached
        subject, queue, sid = args[0], args[1] if len(args) == 3 else b"", args[-1]
        permissions = self.permissions
        settings = self.host.settings
        if queue == SYSTEM_QUEUE or (permissions is not None and not permissions.may_subscribe(subject, queue)):
            self.report(subscription_violation(subject, queue, sid))
            return
        if settings.max_sub_tokens and subject.count(b".") + 1 > settings.max_sub_tokens:
            self.report(too_many_tokens(subject, sid))
            return
        if len(self.subscriptions) >= self.subscriptions_max:
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
        if self.features & VERBOSE:
            self.send_line(b"+OK\r\n")

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
        if self.features & VERBOSE:
            self.send_line(b"+OK\r\n")

    # -- writing -------------------------------------------------------------------------------------------

    cdef int write_out(self) except -1:
        """Write queued output to the transport: all output, or as much as the transport accepts at once."""
        if self.out.portion and self.out.queued() > self.out.portion:
            self.link.write_all(self.out.take_portion())
        elif self.out.pieces_len:
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
        if t.head == NULL or m.aliased or m.split or (hmsg and not self.features & HEADERS):
            return self.deliver_composed(m, t)
        if t.sub.closed or self.closing or (m.origin == <void*> self and not self.features & ECHO):
            return 0
        n = t.head_len + m.tail_len
        out = self.out.reserve(n)
        if out == NULL:
            self.mark_dirty()
            return 0
        memcpy(out, t.head + (not hmsg), t.head_len - (not hmsg))
        memcpy(out + t.head_len - (not hmsg), m.tail, m.tail_len)
        self.out.len += n - (not hmsg)
        return count_delivery(self, m, t, m.size, m.size)

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        if t.sub.closed or self.closing:
            return 0
        echoed = m.origin == <void*> self and not self.features & ECHO
        trace.egress(self, <object> t.sub.owner, NO_ECHO if echoed else "")
        return not echoed and (trace.only or self.deliver(m, t))

    def trace_refusal(self, trace, sub, bytes subject) -> None:
        """Add to the trace of a message: the deny list forbids the delivery to `sub`."""
        trace.egress(self, sub, DENIED)

    cdef int deliver_composed(self, Msg* m, Target* t) noexcept nogil:
        """Deliver as `deliver` does, for a message whose line must be composed."""
        cdef bint hmsg = m.header_len != 0 and self.features & HEADERS != 0
        cdef bint strip = m.header_len != 0 and not self.features & HEADERS
        cdef bint whole = m.whole != NULL and not strip
        cdef size_t body = m.size - (m.header_len if strip else 0)
        cdef char* start
        cdef char* out
        if t.sub.closed or self.closing or (m.origin == <void*> self and not self.features & ECHO):
            return 0
        start = self.out.reserve(m.subject_len + t.sub.sid_len + m.reply_len + 64 + (0 if strip else m.tail_len)
                                 + (body if (strip or m.split) and not whole else 0))
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
            out[0], out[1] = c'\r', c'\n'
            out += 2
        else:
            memcpy(out, m.tail, m.tail_len)
            out += m.tail_len
        if whole:
            self.out.len += out - start
            if self.out.add_body(<PyObject*> m.whole):
                self.mark_dirty()
                return 0
            start = out = self.out.data + self.out.len
        elif strip or m.split:
            memcpy(out, m.body + (m.size - body), body)
            out[body] = c'\r'
            out[body + 1] = c'\n'
            out += body + 2
        self.out.len += out - start
        return count_delivery(self, m, t, body, 0 if whole else body)

    cdef void slow_down(self) noexcept nogil:
        """Request a stall of this session after the current read, because a receiver is nearly full."""
        self.input.stalled = True

    def stall(self) -> None:
        """Pause reading for 5 ms, so that a slow receiver can catch up, unless the settings disable this."""
        self.input.stalled = False
        if not self.host.settings.stall_producers:
            return
        self.stalls += 1
        self.host.stalled_clients += 1
        self.input.rest()
        self.host.timers.at(self.turn.now + STALL_NS, self.end_rest)

    def end_rest(self) -> None:
        """Resume reading and parsing after a stall."""
        if self.closing:
            return
        self.input.go_on(REST)
        self.queue_input()

    def accepts(self, bytes subject, bytes queue) -> bool:
        """Return whether the deny list permits this client to receive `subject` in group `queue` (b"" for none)."""
        return self.permissions is None or self.permissions.may_receive(subject, queue)

    def flush_output(self) -> bool:
        """Write queued output, or close the session if the buffer overflowed. Return True if output is left."""
        self.dirty = False
        if self.used_up:
            self.retire()
        if self.closing:
            return False
        if self.out.overflow:
            self.host.slow_consumers += 1
            self.host.log.info(f"{self} - Slow Consumer Detected: MaxPending of {self.out.limit} Exceeded")
            self.close("Slow Consumer (Pending Bytes)")
            return False
        if self.output == LOST:
            self.out.clear()
            return False
        if self.output == FLOWS and self.out.queued():
            self.write_out()
            self.out.unsent = self.link.pending_size()
        self.out.note_flush()
        self.dirty = self.out.queued() > 0 and self.output == FLOWS
        return self.dirty

    def retire(self) -> None:
        """Remove the subscriptions that reached their UNSUB max."""
        cdef Subscription sub
        used_up, self.used_up = self.used_up, []
        for sub in used_up:
            if self.subscriptions.get(sub.sid) is sub:
                del self.subscriptions[sub.sid]
        self.account.unsubscribe_all(used_up)

    cdef void retire_later(self, SubState* sub) noexcept nogil:
        """Stop deliveries to a subscription that has reached its UNSUB max, and queue its removal."""
        sub.closed = True
        with gil:
            try:
                self.used_up.append(<object> sub.owner)
            except MemoryError:
                pass                # `close` removes the closed subscription at the latest

    def output_paused(self) -> None:
        """Keep output in the session until the transport's buffer drains; after write_deadline, close the client."""
        self.output = PAUSED
        self.out.unsent = self.link.pending_size()
        if not self.closing:
            self.deadlines.await_reader()

    def output_resumed(self) -> None:
        """Resume writing to the transport, since its buffer has drained."""
        self.output = FLOWS
        self.out.unsent = self.link.pending_size()
        if not self.closing:
            self.deadlines.reader_caught_up()
        if self.out.queued():
            self.mark_dirty()

    def pending_size(self) -> int:
        """Return the number of bytes that wait for this client, in the session and in the transport."""
        return self.out.queued() + self.link.pending_size()

    def room(self) -> int:
        """Return the number of bytes that may still be queued before this client counts as a slow consumer."""
        return max(0, self.out.limit - self.pending_size())

    @property
    def connected(self) -> bool:
        """Whether CONNECT was accepted."""
        return self.entry >= CONNECTED

    @property
    def awaiting_auth(self) -> bool:
        """Whether the session is still waiting for its CONNECT."""
        return self.entry == NEEDS_CONNECT

    @property
    def num_subscriptions(self) -> int:
        """The number of subscriptions of this session."""
        return len(self.subscriptions)

    @property
    def rtt_ns(self) -> int:
        """The round-trip time in nanoseconds, or 0 if it is not known."""
        return 0 if self.pings is None else self.pings.rtt_ns

    def __str__(self) -> str:
        return self.peer.name_of(self.cid) + ("" if self.login is None else self.login.label)

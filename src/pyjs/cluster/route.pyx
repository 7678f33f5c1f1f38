"""One route: a connection to another server of the cluster, without its socket. Reads and writes frames.

A subscription of the other server is added to the account at this server. Its receiver is the RemoteAccount
(remote.pyx), and a publish finds it like any other subscription. A message is sent to each server only once, however
many subscriptions match there: `Msg.told` has one bit for each route. For a queue group, one server is chosen, and
the frame names the group. A message from a route is delivered only to subscriptions at this server, since every
server has a route to every other server. The output is in writer.pyx. Long because it reads and checks every kind of
frame.

Compiled, because it runs for every message between servers (measured in benchmarks/: 1-1 over a route).
"""
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from pyjs.base.fast cimport write_digits
from pyjs.cluster.remote cimport RemoteAccount
from pyjs.cluster.writer cimport RouteWriter
from pyjs.core.account cimport EVERYWHERE, Account
from pyjs.core.intake cimport HELD, Intake
from pyjs.core.tracing.fan_out cimport TRACE_WORK, fan_out_to
from pyjs.core.tracing.scan cimport asks_for_trace
from pyjs.subjects.tokens cimport valid_subject
from pyjs.wire.ops cimport Msg
from pyjs.wire.route_frames cimport (
    FLAG_ALIASED, FLAG_NUMBERED, FLAG_PLAIN, FRAME_ACCOUNT, FRAME_AFTER, FRAME_CLIENTS, FRAME_CONSENSUS, FRAME_ERROR,
    FRAME_INFO, FRAME_INTEREST, FRAME_MAX, FRAME_MSG, FRAME_PING, FRAME_PONG, FRAME_REQUEST, FRAME_SENDER,
    FRAME_SYNCED, INTEREST_FIXED_SIZE, MSG_FIXED_SIZE, NUMBER_SIZE, FrameReader, InterestFixed, MsgFixed,
)

from pyjs.cluster.greeting import Greeting
from pyjs.cluster.hello import LINE_MAX, BadHello, read_sender, shown
from pyjs.core.tracing.trace import ROUTER, decide_routed

cdef enum:
    WORK_MAX = 32768
    WORK_MIN = 1024
    FRAME_WORK = 48             # units of work of a frame other than a message
    COPIED_BITS = 8
    PING_MAX = 64               # maximum bytes of a PING's body, which is sent back
    CLIENTS_SIZE = 4
    ACCOUNTS_MAX = 1048576      # maximum number of account numbers per server

BATCH_OF_FRAMES = b"\x01\x01"     # the version and the kind of a batch with frames, see consensus/batch.pyx
SLOW = "Slow Consumer (Pending Bytes)"
PROTOCOL = "Protocol Violation"


class Unknown:
    """An account of the other side that does not exist at this server.

    Its interest is stored, and applied when the account is created.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.weights = {}       # (subject, queue) -> weight
        self.clients = 0


cdef class Route:
    """One connection to another server."""

    def __cinit__(self, object cluster, object peer, object link, uint64_t rid, object dial=None):
        self.cluster, self.host = cluster, cluster.host
        self.turn = self.host.turn_state
        self.peer, self.link, self.dial, self.rid = peer, link, dial, rid
        self.reader, self.input = FrameReader(), Intake(link)
        self.writer = RouteWriter(self, cluster, link, self.turn, self.host.settings.max_pending)
        self.line = b""
        self.remote, self.numbered = {}, []
        self.closed_reason = ""
        self.started_at_ns = self.last_activity_ns = self.host.clock.now_ns()

    # -- life ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the greeting; the route ends if the greeting takes too long."""
        self.greeting = Greeting(self)
        self.greeting.begin()

    def open(self, info, uint64_t bit) -> None:
        """Exchange frames from now on; `bit` is the bit of the route in Msg.told."""
        self.info = info
        self.writer.open(bit)
        self.greeting = None
        self.state = OPEN

    def serve(self, Route main not None) -> None:
        """Use this connection only for the large messages of the route `main`."""
        self.main, main.aside = main, self
        self.numbered = main.numbered
        main.writer.use_bulk(self.writer)

    def close(self, str reason, str error="") -> None:
        """End the route, and remove its subscriptions at once. If `error` is given, send it to the other side."""
        if self.state == CLOSED:
            return
        self.needs_turn = True
        if error:
            self.send_error(error)
        self.state = CLOSED
        self.closed_reason = self.link.closed_reason = reason
        if self.greeting is not None:
            self.greeting.cancel()
        self.input.reads.clear()
        if self.writer.lost or self.writer.overflow:
            self.link.abort()
        else:
            self.writer.finish()
            self.link.close()
        for remote in self.remote.values():
            subs = list(remote.subscriptions.values())
            remote.subscriptions.clear()
            remote.account.unsubscribe_all(subs)
        self.cluster.route_closed(self)
        self.remote, self.numbered = {}, []
        self.main = self.aside = None
        self.writer.end()               # break the cycle: the writer refers to this route

    def lose_link(self) -> None:
        """Stop writing, because the transport is closed."""
        self.writer.lose()

    def connection_lost(self) -> None:
        """Handle the loss of the transport."""
        self.lose_link()
        self.end_input()

    def end_input(self) -> None:
        """Close the route after the last input was parsed, since the other side sends no more."""
        if self.input.reads and self.state != CLOSED:
            self.input.over = True
        else:
            self.close("Client Closed")

    # -- reading -------------------------------------------------------------------------------------------

    cpdef bint receive_data(self, bytes data) except -1:
        """Handle the bytes of one read; input beyond the share of a turn waits.

        Return False if the route has ended.
        """
        if self.state == CLOSED:
            return False
        self.turn.now = self.last_activity_ns = self.host.clock.now_ns()
        self.needs_turn = self.state == GREETING
        self.input.reads.append(data)
        if len(self.input.reads) > 1:
            self.input.hold()
            return True
        return self.parse(max(WORK_MIN, min(self.turn.input_left, WORK_MAX)))

    cpdef receive_buffer(self, bytearray buffer, size_t n):
        """Handle a read of `n` bytes into `buffer`."""
        self.receive_data(PyByteArray_AS_STRING(buffer)[:n])

    def resume_input(self) -> None:
        """Continue with input that earlier turns left unparsed."""
        self.input.queued = False
        if self.state != CLOSED:
            self.parse(max(WORK_MIN, min(self.turn.input_left, WORK_MAX)))

    cdef bint parse(self, int64_t work) except -1:
        cdef int64_t left = work
        cdef bytes data
        if self.must_wait():
            self.input.hold()
            return True
        while self.input.reads:
            data = self.input.reads[0]
            if self.state == GREETING:
                data = self.greet(data)
                if self.state == CLOSED:
                    return False
                self.input.reads[0] = data
            if not self.input.begun and self.state == OPEN:
                self.input.begun = True
                self.reader.begin(data, len(data))
            if self.input.begun:
                left = self.parse_read(left)
            if self.state == CLOSED:
                return False
            if self.aside is not None:
                self.wake_aside()
            if self.input.begun:
                self.turn.input_left -= work - left
                if self.must_wait():
                    self.input.hold()
                else:
                    self.go_on_later()
                return True
            self.input.reads.popleft()
            if self.must_wait():
                self.input.hold()
                return True
        self.turn.input_left -= work - left
        if self.input.over:
            self.close("Client Closed")
            return False
        self.input.go_on(HELD)
        return True

    cdef int wake_aside(self) except -1:
        """Resume the connection for large messages if it is waiting for frames of this route."""
        if self.aside is not None and self.aside.input.waits and not self.aside.must_wait():
            self.aside.go_on_later()
        return 0

    cdef bint must_wait(self) noexcept:
        """Return whether this connection must wait until its route has handled earlier frames."""
        return self.main is not None and self.awaited > self.main.frames

    cdef int go_on_later(self) except -1:
        """Parse the remaining input in this turn or the next one."""
        if not self.input.queued:
            self.input.queued = True
            self.turn.inputs.append(self)
        return 0

    def greet(self, bytes data) -> bytes:
        """Handle the lines of the greeting; return the bytes after them, which are frames."""
        line, found, rest = (self.line + data).partition(b"\n")
        if not found:
            self.line = line
            if len(line) > LINE_MAX:
                self.close(PROTOCOL, "the first line is too long")
            return b""
        self.line = b""
        try:
            self.greeting.take(line.rstrip(b"\r"))
        except BadHello as error:
            self.host.log.error(f"{self} - {error}")
            self.close(PROTOCOL, str(error))
        if self.state == GREETING and rest:
            return self.greet(rest)
        return rest

    cdef int64_t parse_read(self, int64_t left) except? -1:
        """Parse frames of one read within `left` units of work; return the unused units.

        If `input.begun` is true afterwards, a part of the read is left.
        """
        cdef int found
        while left > 0:
            found = self.reader.next()
            if found == 0:
                self.input.begun = False
                return left
            if found < 0:
                self.host.log.error(f"{self} - a frame that is none")
                self.close(PROTOCOL, "a frame has a wrong header")
                return left
            self.frames += 1
            if self.reader.header.kind == FRAME_MSG:
                self.turn.extra_work = 0
                left -= self.take_msg() + self.turn.extra_work
                if self.turn.pressure:
                    self.needs_turn = True      # the partial turn may have left jobs for threads
                    self.host.relieve(self.turn.now)
                    if self.turn.pressure:
                        left = 0
            else:
                left -= FRAME_WORK + (self.reader.header.size >> COPIED_BITS)
                self.take_frame()
            if self.state == CLOSED or self.must_wait():
                return left
        return left

    cdef int64_t take_msg(self) except -1:
        """Deliver one message frame to this server's subscriptions; return the cost in units of work.

        If the frame is invalid, the route is closed.
        """
        cdef MsgFixed fixed
        cdef Msg m
        cdef size_t size = self.reader.header.size, ends
        cdef size_t number_len = NUMBER_SIZE if self.reader.header.flags & FLAG_NUMBERED else 0
        cdef const char* at = self.reader.body + MSG_FIXED_SIZE
        cdef const char* queues
        cdef int receivers
        if size < MSG_FIXED_SIZE:
            return self.refuse_msg()
        memcpy(&fixed, self.reader.body, MSG_FIXED_SIZE)
        ends = <size_t> fixed.subject_len + fixed.found_by_len + fixed.queues_len + MSG_FIXED_SIZE + number_len
        if fixed.subject_len == 0 or ends > size or fixed.header_len > fixed.size:
            return self.refuse_msg()
        memset(&m, 0, sizeof(Msg))
        memcpy(&m.number, at, number_len)
        at += number_len
        m.subject, m.subject_len = at, fixed.subject_len
        at += fixed.subject_len
        if self.reader.header.flags & FLAG_ALIASED:
            m.aliased = True
            m.found_by, m.found_by_len = at, fixed.found_by_len
            if fixed.found_by_len == 0:
                return self.refuse_msg()
        at += fixed.found_by_len
        m.tail, m.tail_len = at, size - ends
        m.reply, m.reply_len, m.header_len, m.size = at, fixed.reply_len, fixed.header_len, fixed.size
        m.told = EVERYWHERE
        queues = at + m.tail_len
        if (not is_tail(&m) or not are_queues(queues, fixed.queues_len) or not is_word(m.subject, m.subject_len)
                or not is_word(m.reply, m.reply_len)):
            return self.refuse_msg()
        m.body = m.tail + m.tail_len - 2 - m.size
        self.in_msgs += 1
        self.in_bytes += m.size
        if self.main is not None:
            self.main.in_msgs += 1
            self.main.in_bytes += m.size
        if self.sender is not None:
            self.turn.sender, self.sender = self.sender, None
        try:
            receivers = self.deliver_here(&m, queues, fixed.queues_len)
        finally:
            self.turn.sender = None
        return 1 + receivers * <int64_t> (1 + (m.size >> COPIED_BITS))

    cdef int deliver_here(self, Msg* m, const char* queues, size_t n) except -1:
        """Deliver to the account that the frame names, if this server has it; return the number of receivers."""
        cdef uint32_t number = self.reader.header.account
        cdef object remote = self.numbered[number] if number < <uint32_t> len(self.numbered) else None
        if not isinstance(remote, RemoteAccount):
            return 0
        if m.header_len and asks_for_trace(m.body, m.header_len):
            decision = decide_routed(self.host, (<RemoteAccount> remote).account, m.body[:m.header_len], m.size)
            if decision.dropped:
                return 0
            if decision.trace is not None:
                return self.deliver_traced(m, (<RemoteAccount> remote).account, names_of(queues, n), decision.trace)
        return (<RemoteAccount> remote).account.deliver_routed(
            m, self.reader.header.flags & FLAG_PLAIN != 0, queues, n)

    cdef int deliver_traced(self, Msg* m, Account account, set queues, object trace) except -1:
        """Deliver as `deliver_here` does, and publish this server's part of the trace."""
        cdef int receivers
        self.turn.extra_work += TRACE_WORK
        trace.arrive(m.subject[:m.subject_len], ROUTER, self.rid, self.info.server_name)
        self.turn.trace = trace
        try:
            receivers = fan_out_to(account, m, trace, self.reader.header.flags & FLAG_PLAIN != 0, queues)
        finally:
            self.turn.trace = None
        self.host.send_trace(trace)
        return receivers

    cdef int64_t refuse_msg(self) except -1:
        self.host.log.error(f"{self} - a message with wrong lengths, or an invalid subject")
        self.close(PROTOCOL, "a message has wrong lengths or an invalid subject")
        return FRAME_WORK

    cdef int take_frame(self) except -1:
        """Handle a frame other than a message."""
        cdef int kind = self.reader.header.kind
        cdef bytes body = self.reader.body[:self.reader.header.size]
        self.needs_turn = self.needs_turn or (kind != FRAME_CONSENSUS and kind != FRAME_PONG)
        try:
            if kind == FRAME_INTEREST:
                self.take_interest(self.reader.header.account, body)
            elif kind == FRAME_ACCOUNT:
                self.take_account(self.reader.header.account, body)
            elif kind == FRAME_PING:
                self.writer.send_frame(FRAME_PONG, body[:PING_MAX])
            elif kind == FRAME_PONG and self.main is not None:
                self.main.writer.note_taken(number_of(body))
            elif kind == FRAME_PONG:
                self.cluster.pong(self, body)
            elif kind == FRAME_CONSENSUS:
                self.take_batch(body)
            elif kind == FRAME_REQUEST:
                if not self.cluster.options.local or self.cluster.replication is None:
                    raise BadHello("a request of another worker, and this server has no workers that share streams")
                self.cluster.replication.receive_request(self, body)
            elif kind == FRAME_AFTER:
                self.awaited = number_of(body)
            elif kind == FRAME_INFO:
                self.cluster.peer_says(self, body)
            elif kind == FRAME_SENDER:
                self.sender = read_sender(body) if self.cluster.options.local else None
            elif kind == FRAME_CLIENTS:
                self.take_clients(self.reader.header.account, body)
            elif kind == FRAME_SYNCED:
                self.synced = True
                self.cluster.route_synced(self)
            else:
                self.host.log.error(f"{self} - the other side closes: {shown(body)}")
                self.close("Server Error")
        except BadHello as error:
            self.host.log.error(f"{self} - {error}")
            self.close(PROTOCOL, str(error))
        return 0

    cdef int take_batch(self, bytes body) except -1:
        """Pass a batch to its receiver.

        Raises:
            BadHello: the batch is damaged, or this connection or server has another purpose.
        """
        if self.consensus is not None and body.startswith(BATCH_OF_FRAMES):
            try:
                self.consensus.receive(self.node, body)
            except ValueError as error:
                raise BadHello(f"a batch of replicated groups: {error}") from None
        elif self.cluster.replication is None:
            raise BadHello("a batch of replicated groups, which this server does not have")
        else:
            self.cluster.replication.receive(self, body)
        return 0

    def take_account(self, uint32_t number, bytes name) -> None:
        """Store the number that the other side uses for an account.

        Raises:
            BadHello: the number is not the next one, or is too high.
        """
        if number != <uint32_t> len(self.numbered) or number >= ACCOUNTS_MAX:
            raise BadHello(f"account number {number} follows {len(self.numbered) - 1}")
        text = name.decode("utf-8", "replace")
        account = self.host.accounts.get(text)
        self.numbered.append(Unknown(text) if account is None else self.remote_account(account))

    def take_interest(self, uint32_t number, bytes body) -> None:
        """Change the interest of an account at the other side.

        Raises:
            BadHello: the account number is unknown, or the body is invalid.
        """
        cdef InterestFixed fixed
        if number >= <uint32_t> len(self.numbered):
            raise BadHello(f"interest of account number {number}, which has no name")
        if len(body) < INTEREST_FIXED_SIZE:
            raise BadHello("interest without a subject")
        memcpy(&fixed, <const char*> body, INTEREST_FIXED_SIZE)
        if fixed.subject_len > len(body) - INTEREST_FIXED_SIZE:
            raise BadHello("interest with a subject longer than its frame")
        subject = body[INTEREST_FIXED_SIZE:INTEREST_FIXED_SIZE + fixed.subject_len]
        queue = body[INTEREST_FIXED_SIZE + fixed.subject_len:]
        if not valid_subject(subject, len(subject)):
            raise BadHello(f"interest in the invalid subject {shown(subject)}")
        remote = self.numbered[number]
        if isinstance(remote, RemoteAccount):
            remote.set_weight(subject, queue, fixed.weight)
            if fixed.weight and self.cluster.awaited is not None:
                self.cluster.awaited.subscribed(remote.account.name, subject)
        elif fixed.weight:
            remote.weights[subject, queue] = fixed.weight
        else:
            remote.weights.pop((subject, queue), None)

    def take_clients(self, uint32_t number, bytes body) -> None:
        """Record the number of clients that an account has at the other side.

        Raises:
            BadHello: the account number is unknown, or the body has the wrong size.
        """
        if number >= <uint32_t> len(self.numbered) or len(body) != CLIENTS_SIZE:
            raise BadHello(f"clients of account number {number}, which has no name, or no number of them")
        remote = self.numbered[number]
        before, remote.clients = remote.clients, int.from_bytes(body, "little")
        if isinstance(remote, RemoteAccount) and remote.clients > before:
            self.host.clients_came_elsewhere(remote.account)

    def account_added(self, Account account) -> None:
        """Apply interest that the other side sent before the account existed at this server."""
        for number, each in enumerate(self.numbered):
            if isinstance(each, Unknown) and each.name == account.name:
                remote = self.numbered[number] = self.remote_account(account)
                remote.clients = each.clients
                for (subject, queue), weight in each.weights.items():
                    remote.set_weight(subject, queue, weight)

    def remote_account(self, Account account) -> RemoteAccount:
        """Return an account at the other side; the first call for an account sends the number that identifies it."""
        remote = self.remote.get(account.name)
        if remote is None:
            remote = self.remote[account.name] = RemoteAccount(
                self.writer, account, len(self.remote), self.silent)
            self.writer.send_frame(FRAME_ACCOUNT, account.name.encode(), len(self.remote) - 1)
        return remote

    # -- writing -------------------------------------------------------------------------------------------

    def send_interest(self, Account account, bytes subject, bytes queue, uint32_t weight) -> None:
        """Send the other side the weight that a subject and queue group has at this server."""
        cdef RemoteAccount remote = self.remote_account(account)
        cdef InterestFixed fixed
        fixed.weight, fixed.subject_len = weight, <uint32_t> len(subject)
        body = (<char*> &fixed)[:INTEREST_FIXED_SIZE] + subject + queue
        self.writer.send_frame(FRAME_INTEREST, body, remote.number)

    def send_clients(self, Account account) -> None:
        """Send the number of clients that an account has at this server."""
        cdef RemoteAccount remote = self.remote_account(account)
        self.writer.send_frame(FRAME_CLIENTS, len(account.sessions).to_bytes(CLIENTS_SIZE, "little"), remote.number)

    def send_line(self, bytes line) -> None:
        """Queue a line of the greeting."""
        self.writer.send_line(line)

    def send_error(self, str text) -> None:
        """Send the reason why the route ends: as -ERR during the greeting, later as a frame."""
        if self.state == GREETING:
            self.send_line(f"-ERR '{text}'\r\n".encode())
        else:
            self.writer.send_frame(FRAME_ERROR, text.encode())

    def send_info(self, bytes text) -> None:
        """Send the description of this server and its peers, as JSON."""
        self.writer.send_frame(FRAME_INFO, text)

    def send_ping(self, bytes body) -> None:
        """Send PING with a body of at most PING_MAX bytes, which the other side sends back."""
        self.writer.send_frame(FRAME_PING, body)

    def send_beat(self, bytes body) -> None:
        """Send a heartbeat, which is a PONG without a PING, since a PONG needs no answer."""
        self.writer.send_now(FRAME_PONG, (body,))

    def carry(self, node, consensus) -> None:
        """Pass batches with frames of the engine to `consensus`, unless it is None, as batches of the node `node`."""
        self.node, self.consensus = node, consensus

    cpdef send_batch(self, parts):
        """Send a batch for the replicated groups."""
        self.writer.send_now(FRAME_CONSENSUS, parts)

    def send_request(self, bytes body, session) -> bool:
        """Send a request of the client `session`, which the other side handles after all messages sent so far.

        `session` is None if the server itself sends the request. Return False if the route is closed, or the request
        is too large.
        """
        if self.state != OPEN or len(body) > <Py_ssize_t> FRAME_MAX:
            return False
        if self.turn.news:
            self.cluster.tell_interest()
        self.writer.send_request(body, session)
        return True

    def allow(self, size_t pending_max) -> None:
        """Set the maximum number of bytes that may wait for the other side."""
        self.writer.allow(pending_max)

    def send_synced(self) -> None:
        """Send the frame that marks the end of the initial interest."""
        self.writer.send_frame(FRAME_SYNCED, b"")

    def flush_output(self) -> None:
        """Write queued output, or close the route if too much output is waiting; called by the node's turn."""
        self.writer.dirty = False
        if self.state == CLOSED:
            return
        if self.turn.news:
            self.cluster.tell_interest()
        if self.writer.overflow:
            self.host.slow_consumers += 1
            limit = self.host.settings.max_pending
            self.host.log.error(f"{self} - Slow Consumer Detected: MaxPending of {limit} Exceeded")
            self.close(SLOW)
            return
        self.writer.flush()

    def output_paused(self) -> None:
        """Keep output in the route until the transport's buffer drains."""
        self.writer.pause(True)

    def output_resumed(self) -> None:
        """Resume writing to the transport, since its buffer has drained."""
        self.writer.pause(False)

    # -- queries -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Request that this turn flushes the output."""
        self.writer.mark_dirty()

    @property
    def told_bit(self) -> int:
        """The bit of the route in Msg.told, or 0 if the route is not open yet."""
        return self.writer.bit

    @property
    def awaiting_auth(self) -> bool:
        """Whether the other server has not logged in yet."""
        return self.state == GREETING

    @property
    def is_open(self) -> bool:
        """Whether the greeting is complete, so that frames are exchanged."""
        return self.state == OPEN

    @property
    def pending_size(self) -> int:
        """The number of bytes that wait for the other side, here and in the transport."""
        return self.unsent()

    cdef size_t unsent(self) except? 0:
        return self.writer.unsent() + (0 if self.aside is None else self.aside.unsent())

    @property
    def out_msgs(self) -> int:
        """The number of messages sent."""
        return self.writer.out_msgs + (0 if self.aside is None else self.aside.out_msgs)

    @property
    def out_bytes(self) -> int:
        """The number of bytes of headers and payloads that were sent."""
        return self.writer.out_bytes + (0 if self.aside is None else self.aside.out_bytes)

    @property
    def frame_count(self) -> int:
        """The number of frames sent and received."""
        return self.frames + self.writer.frames + (0 if self.aside is None else self.aside.frame_count)

    @property
    def num_subscriptions(self) -> int:
        """The number of subscriptions of the other server."""
        count = 0
        for remote in self.remote.values():
            count += len(remote.subscriptions)
        return count

    def set_silent(self, bint silent) -> None:
        """Record whether the other server has been silent for a while. Queue groups then prefer other servers."""
        self.silent = silent
        for remote in self.remote.values():
            remote.set_silent(silent)

    def heard_at(self, int64_t now_ns) -> None:
        """Set the time from which silence of the other side is counted."""
        self.last_activity_ns = now_ns

    def note_rtt(self, int64_t rtt_ns) -> None:
        """Store the measured round-trip time."""
        self.rtt_ns = rtt_ns

    def __str__(self) -> str:
        host = f"[{self.peer.ip}]" if ":" in self.peer.ip else self.peer.ip
        return f"{host}:{self.peer.port} - rid:{self.rid}"


cdef bint is_word(const char* text, size_t n) noexcept nogil:
    """Return whether the string can be one word of a protocol line."""
    cdef size_t i
    for i in range(n):
        if <unsigned char> text[i] <= c' ':
            return False
    return True


cdef bint is_tail(Msg* m) noexcept nogil:
    """Return whether the tail has the form "[reply ][hlen ]size CRLF", body, CRLF, and its sizes agree with `m`."""
    cdef char digits[64]
    cdef char* end = digits
    cdef size_t at = 0, n
    if m.tail_len < <size_t> m.size + m.reply_len + 2:
        return False
    if m.reply_len:
        if m.tail[m.reply_len] != c' ':
            return False
        at = <size_t> m.reply_len + 1
    if m.header_len:
        end += write_digits(end, m.header_len)
        end[0] = c' '
        end += 1
    end += write_digits(end, m.size)
    end[0], end[1] = c'\r', c'\n'
    n = end + 2 - digits
    return (m.tail_len == at + n + m.size + 2 and memcmp(m.tail + at, digits, n) == 0
            and m.tail[m.tail_len - 2] == c'\r' and m.tail[m.tail_len - 1] == c'\n')


cdef object number_of(bytes body):
    """Return the number in the body of a frame.

    Raises:
        BadHello: the body does not have 8 bytes.
    """
    if len(body) != 8:
        raise BadHello(f"a number of {len(body)} bytes")
    return int.from_bytes(body, "little")


cdef set names_of(const char* at, size_t left):
    """Return the names of queue groups in a frame; `are_queues` must have checked the bytes."""
    cdef set names = set()
    cdef uint32_t n = 0
    while left:
        memcpy(&n, at, 4)
        names.add(at[4:4 + n])
        at += 4 + <size_t> n
        left -= 4 + <size_t> n
    return names


cdef bint are_queues(const char* at, size_t left) noexcept nogil:
    cdef uint32_t n = 0
    while left:
        if left < 4:
            return False
        memcpy(&n, at, 4)
        if n > left - 4:
            return False
        at += 4 + <size_t> n
        left -= 4 + <size_t> n
    return True

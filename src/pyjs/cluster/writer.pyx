"""The output of one route: frames, in the order of their creation.

A message is written once. The names of the queue groups that get it are added to its frame as long as no other frame
follows. Invariant: a message is sent after all interest that existed before it, so that the other side can
deliver an answer.

Large messages have a separate connection, so that small messages do not wait for them. The order of a publisher's
messages does not change. After a large message, all messages of the publisher use that connection until the other
side has handled them. FRAME_AFTER makes the reader of that connection wait for earlier frames of the route.
Publishers are distinguished by a few bits of their address; publishers with equal bits change connections together.

Compiled, because it runs for every message to another server (measured in benchmarks/: 1-1 over a route).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.core.outbuf cimport FLUSH_AT, OutBuf
from pyjs.core.session cimport ClientSession
from pyjs.core.sink cimport Turn
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg
from pyjs.wire.route_frames cimport (
    FLAG_ALIASED, FLAG_NUMBERED, FLAG_PLAIN, FRAME_AFTER, FRAME_MSG, FRAME_PING, FRAME_REQUEST, HEADER_SIZE,
    MSG_FIXED_SIZE, NUMBER_SIZE, FrameHeader, MsgFixed,
)

cdef enum:
    JOINED_MAX = 4096           # bytes of a frame that is copied into one piece, which costs less than several pieces
    JAMMED_PART = 8             # consumers pause when more than 1 / JAMMED_PART of `stall_at` bytes wait


cdef inline void write_queue(char* out, Target* t) noexcept nogil:
    memcpy(out, &t.sub.queue_len, 4)
    memcpy(out + 4, t.sub.queue, t.sub.queue_len)


cdef class RouteWriter:
    """The output of one route."""

    def __cinit__(self, object route, object cluster, object link, Turn turn, size_t pending_max):
        self.route, self.cluster, self.link, self.turn = route, cluster, link, turn
        self.out = OutBuf()
        self.out.set_limit(pending_max)

    def open(self, uint64_t bit) -> None:
        """Accept messages from now on; `bit` is the bit of the route in Msg.told."""
        self.bit = bit
        self.is_open = True

    def use_bulk(self, RouteWriter bulk not None) -> None:
        """Send large messages over the connection of `bulk`."""
        bulk.is_bulk = True
        self.bulk = bulk

    def note_taken(self, uint64_t count) -> None:
        """Store the number of messages of the bulk connection that the other side has handled."""
        self.aside_done = count

    def end(self) -> None:
        """Accept no more output, and drop the references to other objects."""
        self.bulk = None
        self.is_open = False
        self.route = None

    cdef int send_msg(self, Msg* m, uint32_t account, Target* t) noexcept nogil:
        """Write `m` for the queue group of `t`, or for the plain subscriptions if `t` has no group.

        Return 0, or -1 if there is no room.
        """
        cdef FrameHeader header
        cdef MsgFixed fixed
        cdef bint plain = t.sub.queue_id == 0
        cdef uint32_t found_by_len = m.found_by_len if m.aliased else 0
        cdef size_t tail_len = m.tail_len + (<size_t> m.size + 2 if m.split else 0)
        cdef size_t queues_len = 0 if plain else <size_t> t.sub.queue_len + 4
        cdef size_t number_len = NUMBER_SIZE if m.number else 0
        cdef size_t size = (MSG_FIXED_SIZE + number_len + <size_t> m.subject_len + found_by_len + tail_len
                            + queues_len)
        cdef char* out
        if self.turn.news:
            with gil:
                self.tell_news()
        if self.goes_aside(m):
            return self.send_aside(m, account, t)
        out = self.out.reserve(HEADER_SIZE + size)
        if out == NULL:
            self.mark_dirty()
            return -1
        header.size, header.account, header.kind, header.reserved = <uint32_t> size, account, FRAME_MSG, 0
        header.flags = (FLAG_PLAIN if plain else 0) | (FLAG_ALIASED if m.aliased else 0)
        header.flags |= FLAG_NUMBERED if number_len else 0
        fixed.subject_len, fixed.reply_len, fixed.header_len = m.subject_len, m.reply_len, m.header_len
        fixed.size, fixed.found_by_len, fixed.queues_len = m.size, found_by_len, <uint32_t> queues_len
        self.frame_start = self.out.len
        memcpy(out, &header, HEADER_SIZE)
        memcpy(out + HEADER_SIZE, &fixed, MSG_FIXED_SIZE)
        out += HEADER_SIZE + MSG_FIXED_SIZE
        memcpy(out, &m.number, number_len)
        out += number_len
        memcpy(out, m.subject, m.subject_len)
        out += m.subject_len
        memcpy(out, m.found_by, found_by_len)
        out += found_by_len
        memcpy(out, m.tail, m.tail_len)
        out += m.tail_len
        if m.split:
            memcpy(out, m.body, m.size)
            out += m.size
            out[0], out[1] = c'\r', c'\n'
            out += 2
        if not plain:
            write_queue(out, t)
        self.out.len += HEADER_SIZE + size
        self.frame_size = HEADER_SIZE + size
        self.last = m
        if self.bulk is not None:
            self.bulk.last = NULL  # `last` points to an earlier message, and a new one may have the same address
        self.frames += 1
        self.out_msgs += 1
        self.out_bytes += m.size
        if not self.dirty:
            self.mark_dirty()
        if self.out.queued() > self.out.relief_at:
            self.turn.pressure = True
        if self.out.queued() > FLUSH_AT:
            self.turn.jammed = self.turn.jammed or self.out.unwritten() > self.out.stall_at // JAMMED_PART
            if self.out.unwritten() > self.out.stall_at and m.origin != NULL:
                (<ClientSession> m.origin).slow_down()
        return 0

    cdef int send_aside(self, Msg* m, uint32_t account, Target* t) noexcept nogil:
        """Write a message to the connection for large messages; return 0, or -1 if out of memory."""
        self.last = NULL
        if self.bulk.after != self.frames:
            self.bulk.send_after(self.frames)
        if self.bulk.send_msg(m, account, t) < 0:
            return -1
        self.aside_until[class_of(m)] = self.bulk.out_msgs
        return 0

    cdef void send_after(self, uint64_t frames) noexcept nogil:
        """Send a frame that makes the other side wait until it has handled the first `frames` frames of the route."""
        cdef FrameHeader header
        header.size, header.account, header.kind, header.flags, header.reserved = 8, 0, FRAME_AFTER, 0, 0
        self.after = frames
        self.last = NULL
        self.out.add(<const char*> &header, HEADER_SIZE)
        self.out.add(<const char*> &frames, 8)

    cdef int add_queue_to(self, Msg* m, Target* t) noexcept nogil:
        """Add the queue group of `t` to the frame of `m`; return 0, or -1 if another frame has followed."""
        if self.last == m:
            return self.add_queue(t)
        return self.bulk.add_queue(t) if self.bulk is not None and self.bulk.last == m else -1

    cdef void take_over(self, Msg* sent, Msg* m) noexcept nogil:
        """Allow queue groups of `m` to be added to the frame of `sent`, which was written in place of `m`."""
        if self.last == sent:
            self.last = m
        elif self.bulk is not None and self.bulk.last == sent:
            self.bulk.last = m

    cdef int add_queue(self, Target* t) noexcept nogil:
        """Add the queue group of `t` to the last frame.

        Return 0, or -1 if the frame can no longer be extended.
        """
        cdef uint32_t more = t.sub.queue_len + 4
        cdef FrameHeader header
        cdef MsgFixed fixed
        cdef char* out
        cdef char* begin
        if self.out.len != self.frame_start + self.frame_size:
            return -1
        out = self.out.reserve(more)
        if out == NULL or out != self.out.data + self.frame_start + self.frame_size:
            return -1
        write_queue(out, t)
        begin = self.out.data + self.frame_start        # the address may be unaligned
        memcpy(&header, begin, HEADER_SIZE)
        memcpy(&fixed, begin + HEADER_SIZE, MSG_FIXED_SIZE)
        header.size += more
        fixed.queues_len += more
        memcpy(begin, &header, HEADER_SIZE)
        memcpy(begin + HEADER_SIZE, &fixed, MSG_FIXED_SIZE)
        self.out.len += more
        self.frame_size += more
        return 0

    def send_frame(self, int kind, bytes body, uint32_t account=0) -> None:
        """Queue a frame other than a message."""
        cdef FrameHeader header
        header.size, header.account, header.kind = <uint32_t> len(body), account, kind
        header.flags = header.reserved = 0
        self.last = NULL
        self.frames += 1
        self.out.add(<const char*> &header, HEADER_SIZE)
        self.out.add(body, len(body))
        self.mark_dirty()

    def send_request(self, bytes body, session) -> None:
        """Queue a request that the other side handles after all messages that were sent to it so far.

        While large messages are on their way, the request follows them on their connection. If much output is
        waiting, slow down the client `session`, unless it is None.
        """
        cdef RouteWriter way = self
        if self.bulk is not None and self.bulk.out_msgs > self.aside_done:
            way = self.bulk
            if way.after != self.frames:
                way.send_after(self.frames)
        way.send_frame(FRAME_REQUEST, body)
        if way.is_bulk:
            way.out_msgs += 1       # count it as a message, so that later requests follow it
        if isinstance(session, ClientSession) and way.out.unwritten() > way.out.stall_at:
            (<ClientSession> session).slow_down()

    cpdef send_now(self, int kind, parts):
        """Write a frame, whose body is a list of parts, at once; a large one is not copied.

        If other frames are queued, the frame is queued after them.
        """
        cdef FrameHeader header
        cdef bytes part
        cdef size_t size = 0
        for part in parts:
            size += len(part)
        header.size, header.account, header.kind = <uint32_t> size, 0, kind
        header.flags = header.reserved = 0
        self.last = NULL
        self.frames += 1
        if not (self.lost or self.paused or self.out.queued()):
            pieces = [(<const char*> &header)[:HEADER_SIZE], *parts]
            if size <= JOINED_MAX:
                self.link.write(b"".join(pieces))
            else:
                self.link.write_all(pieces)
            self.out.unsent = self.link.pending_size()
            return
        self.out.add(<const char*> &header, HEADER_SIZE)
        for part in parts:
            self.out.add(part, len(part))
        self.mark_dirty()

    def allow(self, size_t pending_max) -> None:
        """Set the limit on bytes that may wait for the other side to `pending_max`."""
        self.out.set_limit(pending_max)

    def send_line(self, bytes line) -> None:
        """Queue a line of the greeting."""
        self.out.add(line, len(line))
        self.mark_dirty()

    cdef void tell_news(self) noexcept:
        try:
            self.cluster.tell_interest()
        except Exception as error:
            self.turn.faulted.append((self.route, error))

    cdef void mark_dirty(self) noexcept nogil:
        if not self.dirty:
            self.dirty = True
            with gil:
                self.turn.sessions.append(self.route)

    cdef int write_out(self) except -1:
        self.last = NULL
        if self.out.pieces_len:
            self.link.write_all(self.out.take_all())
        else:
            self.link.write(self.out.take())
        return 0

    def flush(self) -> None:
        """Write all queued frames, unless the transport is closed or its buffer is full."""
        if self.is_bulk and self.asked < self.out_msgs:
            self.asked = self.out_msgs
            self.send_frame(FRAME_PING, self.asked.to_bytes(8, "little"))
            self.dirty = False
        if self.lost:
            self.out.clear()
        elif not self.paused and self.out.queued():
            self.write_out()
            self.out.unsent = self.link.pending_size()
        self.out.note_flush()

    def finish(self) -> None:
        """Write all queued frames, even if the transport's buffer is full."""
        if self.out.queued():
            self.write_out()

    def lose(self) -> None:
        """Stop writing, because the transport is closed."""
        self.lost = True
        self.out.clear()

    def pause(self, bint paused) -> None:
        """Pause the output if `paused` is true, since the transport's buffer is full; otherwise resume the output."""
        self.paused = paused
        self.out.unsent = self.link.pending_size()
        if not paused and self.out.queued():
            self.mark_dirty()

    @property
    def overflow(self) -> bool:
        """Whether more bytes than the limit allows were queued."""
        return self.out.overflow

    @property
    def pending_size(self) -> int:
        """The number of bytes that wait for the other side, here and in the transport."""
        return self.unsent()

    cdef size_t unsent(self) except? 0:
        # the transport has less and less of what was unsent after the last write
        return self.out.queued() + (self.link.pending_size() if self.out.unsent else 0)

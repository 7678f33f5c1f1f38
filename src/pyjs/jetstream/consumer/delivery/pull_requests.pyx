"""The waiting pull requests of a consumer, and the choice of the one that gets the next message.

`WaitingQueue` is served round robin: a request that got a message and wants more goes to the end, or after the others
of its priority. `Pin` belongs to a priority group: as long as the pinned client sends requests in time, no other
client is served. A pin has an id, which the client repeats in its requests, and a number, which identifies the pin in
waiting requests. `PullRequests` skips or ends requests because of expiry, pin or priority policy. A request that ends
before it got all its messages gets a status.

This module knows nothing of cursors and acks: the consumer passes the numbers that the priority policy needs.

Compiled, because it runs for every message of a pull consumer (measured in benchmarks/: pull 500).
Source: nats.docs "Pull consumers", ADR-13, ADR-42; order of checks and of service probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from pyjs.core.account cimport Account
from pyjs.jetstream.consumer.delivery.outcome cimport DECLINED, NOT_TAKEN, SENT, Outcome
from pyjs.jetstream.consumer.delivery.writer cimport PIN_SIZE, DeliveryWriter
from pyjs.wire.ops cimport Msg

from pyjs.base.nuid import nuid
from pyjs.jetstream.consumer.delivery.status import NO_MESSAGES, ended, status

PRIORITIES = {
    "none": PRIORITY_NONE,
    "overflow": PRIORITY_OVERFLOW,
    "pinned_client": PRIORITY_PINNED,
    "prioritized": PRIORITY_PRIORITIZED,
}
LAST = {"deleted": status("409 Consumer Deleted"), "leadership": status("409 Leadership Change")}


cdef class WaitingQueue:
    """A bounded queue of pull requests."""

    def __cinit__(self, int64_t limit):
        self.max = limit

    def __dealloc__(self):
        while self.head != NULL:
            self.drop_head()

    def add(self, bytes reply, int64_t batch, int64_t max_bytes, bint no_wait, int64_t now, int64_t expires_ns,
            int64_t heartbeat_ns, int64_t priority=0) -> bool:
        """Queue a request; return False if the queue already has `max` requests."""
        cdef Waiting* w
        if self.count >= self.max:
            return False
        w = <Waiting*> calloc(1, sizeof(Waiting))
        if w == NULL:
            raise MemoryError
        w.reply = <char*> malloc(len(reply) + 1)
        if w.reply == NULL:
            free(w)
            raise MemoryError
        memcpy(w.reply, <const char*> reply, len(reply))
        w.reply_len = <uint32_t> len(reply)
        w.left = batch
        w.bytes_left = max_bytes
        w.no_wait = no_wait
        w.expires_at = now + expires_ns if expires_ns else 0
        w.heartbeat_ns = heartbeat_ns
        w.heartbeat_at = now + heartbeat_ns if heartbeat_ns else 0
        w.priority = priority
        self.insert(w)
        self.count += 1
        self.no_wait += no_wait
        self.note_time(w)
        return True

    cdef void insert(self, Waiting* w) noexcept nogil:
        """Insert `w` at the end or, with priorities, after the last request of its priority."""
        cdef Waiting* before = self.tail
        if self.by_priority and before != NULL and before.priority > w.priority:
            before = NULL
            while (self.head if before == NULL else before.next).priority <= w.priority:
                before = self.head if before == NULL else before.next
        if before == NULL:
            w.next = self.head
            self.head = w
        else:
            w.next = before.next
            before.next = w
        if w.next == NULL:
            self.tail = w

    cdef void note_time(self, Waiting* w) noexcept nogil:
        """Lower `wake_at` to the next expiry or heartbeat of `w`."""
        if w.expires_at and (self.wake_at == 0 or w.expires_at < self.wake_at):
            self.wake_at = w.expires_at
        if w.heartbeat_at and (self.wake_at == 0 or w.heartbeat_at < self.wake_at):
            self.wake_at = w.heartbeat_at

    cdef void rotate(self) noexcept nogil:
        """Move the first request to the end or, with priorities, after the last request of its priority."""
        cdef Waiting* w = self.head
        if w == self.tail:
            return
        self.head = w.next
        self.insert(w)

    cdef void drop_head(self) noexcept nogil:
        self.remove(NULL, self.head)

    cdef void remove(self, Waiting* before, Waiting* w) noexcept nogil:
        """Remove and free the request `w`, which follows `before` or, if `before` is NULL, is the first request."""
        if before == NULL:
            self.head = w.next
        else:
            before.next = w.next
        if self.tail == w:
            self.tail = before
        self.count -= 1
        self.no_wait -= w.no_wait
        free(w.reply)
        free(w)

    cdef bint served(self, int64_t size, int64_t now) noexcept nogil:
        """Count a message of `size` bytes for the first request, then move on to the next request.

        Return True if the first request got all its messages but has bytes left; the caller must then end it.
        """
        cdef Waiting* w = self.head
        w.delivered += 1
        w.left -= 1
        if w.bytes_left > 0:
            w.bytes_left -= size
            if w.bytes_left == 0:
                w.left = 0
        if w.left > 0:
            if w.heartbeat_ns:
                w.heartbeat_at = now + w.heartbeat_ns
            self.rotate()
        elif w.bytes_left > 0:
            return True
        else:
            self.drop_head()
        return False

    def replies(self) -> list:
        """Return the reply subjects in the order in which the requests are served."""
        cdef list out = []
        cdef Waiting* w = self.head
        while w != NULL:
            out.append(w.reply[:w.reply_len])
            w = w.next
        return out

    def first_replies(self, int64_t limit) -> list:
        """Return the first `limit` reply subjects in the order of service."""
        cdef list out = []
        cdef Waiting* w = self.head
        while w != NULL and limit > 0:
            out.append(w.reply[:w.reply_len])
            limit -= 1
            w = w.next
        return out

    def wanted(self) -> int:
        """Return the total number of messages that the requests may still get."""
        cdef int64_t total = 0
        cdef Waiting* w = self.head
        while w != NULL:
            total += w.left
            w = w.next
        return total

    def __len__(self) -> int:
        return self.count


cdef class Pin:
    """The pin of one consumer: an id that is assigned to the client that gets the messages."""

    def __cinit__(self):
        self.id = b""
        self.group = ""

    def assign(self, bytes pin_id, str group, int64_t now) -> None:
        """Assign a new pin to a client of `group`."""
        assert len(pin_id) == PIN_SIZE
        self.assigned += 1
        self.number = self.assigned
        self.id, self.group = pin_id, group
        memcpy(self.text, <const char*> pin_id, PIN_SIZE)
        self.pinned_at = now
        self.extend(now)

    def extend(self, int64_t now) -> None:
        """Extend the pin, because its client sent another request."""
        self.until = now + self.wait_ns

    def clear(self) -> None:
        """Remove the pin."""
        self.number, self.id, self.pinned_at = 0, b"", 0


cdef class PullRequests:
    """The pull requests of one consumer; at most `max_waiting` may wait."""

    def __cinit__(self, Account account not None, DeliveryWriter writer not None, rng, events, int64_t max_waiting):
        self.account = account
        self.writer = writer
        self.rng = rng
        self.events = events
        self.queue = WaitingQueue(max_waiting)
        self.pin = Pin()
        self.group = ""
        self.last = LAST["deleted"]

    def configure(self, str policy, groups, int64_t pin_wait_ns) -> None:
        """Set the priority policy, the priority group (the first in `groups`), and the validity of a pin in ns."""
        self.priority = PRIORITIES[policy]
        self.group = groups[0] if groups else ""
        self.pin.wait_ns = pin_wait_ns
        self.queue.by_priority = self.priority == PRIORITY_PRIORITIZED
        if self.priority != PRIORITY_PINNED:
            self.pin.clear()

    def names_wrong_pin(self, request, int64_t now) -> bool:
        """Return whether a request has the id of another pin; if it has the right id, extend the pin."""
        if not self.pin.number or not request.pin_id:
            return False
        if request.pin_id != self.pin.id.decode():
            return True
        self.pin.extend(now)
        return False

    def add(self, bytes reply, request, int64_t now) -> bool:
        """Queue a request; return False if the queue is full."""
        cdef Waiting* w
        if not self.queue.add(reply, request.batch, request.max_bytes, request.no_wait, now, request.expires_ns,
                              request.heartbeat_ns, request.priority):
            return False
        if self.priority == PRIORITY_OVERFLOW or self.priority == PRIORITY_PINNED:
            w = self.queue.tail
            w.grouped = bool(request.group)
            w.min_pending, w.min_ack_pending = request.min_pending, request.min_ack_pending
            if request.pin_id:
                w.pin = self.pin.number if self.pin.number else NO_PIN
        return True

    # -- messages --------------------------------------------------------------------------------------------------

    cdef Outcome send(self, Msg* m, int64_t size, uint64_t unread, uint64_t ack_pending, int64_t now) noexcept nogil:
        """Send a message of `size` bytes to the first eligible request, and end requests that cannot be served.

        `unread` is num_pending after the delivery. Return SENT if a request got the message, DECLINED if the priority
        policy excludes all requests, and NOT_TAKEN if no request is left.
        """
        cdef Waiting* w
        cdef int64_t passed = 0
        while self.queue.head != NULL:
            w = self.queue.head
            if w.expires_at and w.expires_at <= now:
                with gil:
                    self.end_head(b"408 Request Timeout")
            elif self.priority == PRIORITY_PINNED and w.pin and w.pin != self.pin.number:
                with gil:
                    self.end_head(b"423 Nats-Wrong-Pin-Id")
            elif self.priority != PRIORITY_NONE and not self.may_have(w, unread, ack_pending):
                self.queue.rotate()
                passed += 1
                if passed >= self.queue.count:
                    return DECLINED
            elif 0 < w.bytes_left < size:
                with gil:
                    self.end_head(b"409 Message Size Exceeds MaxBytes")
            elif self.publish(w, m, now):
                if self.queue.served(size, now):
                    with gil:
                        self.end_head(b"409 Batch Completed")
                return SENT
            else:
                self.queue.drop_head()
        return NOT_TAKEN

    cdef bint may_have(self, Waiting* w, uint64_t unread, uint64_t ack_pending) noexcept nogil:
        """Return whether the priority policy lets the request get the next message."""
        if self.priority == PRIORITY_PINNED:
            return self.pin.number == 0 or w.pin == self.pin.number
        if self.priority == PRIORITY_PRIORITIZED or (w.min_pending <= 0 and w.min_ack_pending <= 0):
            return True
        if w.min_pending > 0 and <uint64_t> w.min_pending <= unread + 1:
            return True
        return w.min_ack_pending > 0 and w.min_ack_pending <= <int64_t> ack_pending

    cdef int publish(self, Waiting* w, Msg* m, int64_t now) noexcept nogil:
        """Send a message to the client that sent the request `w`; return 0 if no client has received it.

        Messages to a pinned client have a header with the id of the pin.
        """
        cdef Msg pinned
        if self.priority != PRIORITY_PINNED:
            return self.account.publish_to(w.reply, w.reply_len, m)
        if not self.account.interested(w.reply, w.reply_len):
            return 0
        if self.pin.number == 0 and w.grouped:
            with gil:
                self.assign_pin(w, now)
        if self.pin.number == 0:
            return self.account.publish_to(w.reply, w.reply_len, m)
        if self.writer.add_pin(&pinned, m, self.pin.text) < 0:
            return 0
        return self.account.publish_to(w.reply, w.reply_len, &pinned)

    def serves_any(self, uint64_t unread, uint64_t ack_pending) -> bool:
        """Return whether one of the waiting requests may get the next message; `unread` is num_pending after it."""
        cdef Waiting* w = self.queue.head
        while w != NULL:
            if self.may_have(w, unread, ack_pending):
                return True
            w = w.next
        return False

    # -- the pin ---------------------------------------------------------------------------------------------------

    cdef void assign_pin(self, Waiting* w, int64_t now) noexcept:
        """Pin the client that sent the request `w`."""
        self.pin.assign(nuid(self.rng).encode(), self.group, now)
        w.pin = self.pin.number
        self.events.note("pinned", account=self.account.name, group=self.group, pinned_id=self.pin.id.decode())

    def unpin(self, str group, str reason) -> None:
        """Remove the pin of `group`; `reason` is "admin" or "timeout"."""
        self.pin.clear()
        self.events.note("unpinned", account=self.account.name, group=group, reason=reason)

    # -- ends of requests ------------------------------------------------------------------------------------------

    cdef void end_head(self, bytes text) noexcept:
        """End the first request with a status that shows how many messages and bytes are missing."""
        cdef Waiting* w = self.queue.head
        reply = <bytes> w.reply[:w.reply_len]
        body = ended(text, w.left, w.bytes_left)
        self.queue.drop_head()
        self.account.send(reply, b"", body)

    def end_all(self, str reason) -> None:
        """End every request, since the consumer stops; for `reason`, see Consumer.stop."""
        cdef Waiting* w
        cdef bytes last = LAST.get(reason)
        self.last = last or LAST["deleted"]
        while self.queue.head != NULL:
            if last is None:
                self.end_head(b"409 Server Shutdown")
                continue
            w = self.queue.head
            self.account.send(w.reply[:w.reply_len], b"", last)
            self.queue.drop_head()

    def refuse_late(self, bytes reply) -> None:
        """Answer a request that came after `end_all` with the reason for which the consumer stopped."""
        self.account.send(reply, b"", self.last)

    def sweep(self, int64_t now, bint at_end, heartbeat) -> None:
        """Remove requests that expired or lost their interest, and send the heartbeats that are due.

        `at_end` means that there are no more messages, so requests with `no_wait` end too, unless they have an expiry
        and got no message yet. `heartbeat` is a function that returns the status for heartbeats.
        """
        cdef Waiting* before = NULL
        cdef Waiting* w = self.queue.head
        cdef Waiting* after
        assert 0 <= self.queue.no_wait <= self.queue.count
        self.queue.wake_at = 0
        while w != NULL:
            after = w.next
            reply, last = w.reply[:w.reply_len], b""
            if w.expires_at and w.expires_at <= now:
                last = ended(b"408 Request Timeout", w.left, w.bytes_left)
            elif at_end and w.no_wait and (w.expires_at == 0 or w.delivered > 0):
                last = NO_MESSAGES
            if last or not self.account.has_interest(reply):
                self.queue.remove(before, w)
                if last:
                    self.account.send(reply, b"", last)
            else:
                if w.heartbeat_at and w.heartbeat_at <= now:
                    w.heartbeat_at = now + w.heartbeat_ns
                    self.account.send(reply, b"", heartbeat())
                self.queue.note_time(w)
                before = w
            w = after

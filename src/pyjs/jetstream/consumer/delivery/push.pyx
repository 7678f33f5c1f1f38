"""The subscribers of a push consumer, and its flow control.

After half of the window, the consumer requests a confirmation. If the window is full, the consumer waits for the
confirmation, which doubles the window, up to 32 MiB. Flow control has the states off, open and asked: `switch`
changes off to open, and any state to off; `ask` changes open to asked; `confirm` changes asked to open. Invariant:
0 <= asked <= pending.

This module knows nothing of messages. Compiled because it runs for every message of a push consumer (benchmarks/:
push). Source: nats.docs "Push consumers", "Flow control"; interest, window and requests probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t, uint32_t

from pyjs.core.account cimport Account

cdef enum:
    WINDOW_FIRST = 2097152      # bytes
    WINDOW_LAST = 33554432


cdef class FlowControl:
    """The flow control of one push consumer: a window of bytes that may be unconfirmed."""

    def __cinit__(self):
        self.reply = b""

    def switch(self, bint on) -> None:
        """Switch flow control on or off. When it is switched on, it begins with the smallest window."""
        if not on:
            self.state, self.window, self.reply = FLOW_OFF, 0, b""
        elif self.state == FLOW_OFF:
            self.state, self.window, self.pending, self.asked = FLOW_OPEN, WINDOW_FIRST, 0, 0

    cdef bint has_room(self) noexcept nogil:
        """Return whether another message may be sent."""
        return self.state == FLOW_OFF or self.pending <= self.window

    cdef bint note_sent(self, int64_t size) noexcept nogil:
        """Count sent bytes; return whether to request a confirmation now."""
        if self.state == FLOW_OFF:
            return False
        self.pending += size
        if self.state == FLOW_OPEN:
            return self.pending > self.window // 2
        if self.pending - self.asked >= self.window:
            self.asked += size
        return False

    def ask(self, bytes reply) -> None:
        """Record that a confirmation with the reply subject `reply` was requested."""
        self.reply = reply
        self.state = FLOW_ASKED
        self.asked = self.pending

    def confirm(self, bytes reply) -> bool:
        """Handle a confirmation with the subject `reply`; return False if it answers another request."""
        if self.state != FLOW_ASKED or reply != self.reply:
            return False
        assert 0 <= self.asked <= self.pending
        self.state = FLOW_OPEN
        self.window = min(self.window * 2, WINDOW_LAST)
        self.pending = max(self.pending - self.asked, 0)
        self.asked, self.reply = 0, b""
        return True


cdef class PushSubject:
    """The deliver subject of one push consumer."""

    def configure(self, bytes subject, bytes group, int64_t heartbeat_ns) -> None:
        """Set the deliver subject, queue group and heartbeat."""
        self.subject = subject
        self.text = subject
        self.length = <uint32_t> len(subject)
        self.group = group
        self.heartbeat_ns = heartbeat_ns

    def update_bound(self, Account account not None, int64_t now) -> None:
        """Set `bound` to whether a subscription has exactly the deliver subject and queue group.

        A subscription with a wildcard that matches the subject does not count.
        """
        self.changed = False
        was, self.bound = self.bound, False
        for subscription in account.subs.match(self.subject):
            if subscription.subject == self.subject and subscription.queue == self.group:
                self.bound = True
        if was and not self.bound:
            self.unbound_at = now
        elif self.bound and not was:
            self.sent_at = now

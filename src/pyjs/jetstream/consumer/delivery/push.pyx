"""What a push consumer knows of its subscribers: whether anybody listens, and how many bytes are on their way.

Flow control: past half of the window the consumer asks for a confirmation; past the window nothing goes out until it
comes. Each confirmation doubles the window, up to 32 MiB. States: off, open and asked; `switch` leads from off to
open and back, `ask` from open to asked, `confirm` from asked to open.

Knows nothing of messages. Compiled because every message of a push consumer asks here (benchmarks/: push).
Source: nats.docs "Push consumers", "Flow control"; interest, window and requests probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t, uint32_t

from pyjs.core.account cimport Account

cdef enum:
    WINDOW_FIRST = 2097152      # bytes
    WINDOW_LAST = 33554432


cdef class FlowControl:
    """The window of one consumer."""

    def __cinit__(self):
        self.reply = b""

    def switch(self, bint on) -> None:
        """Begin with the first window, or let any number of bytes be on their way."""
        if not on:
            self.state, self.window, self.reply = FLOW_OFF, 0, b""
        elif self.state == FLOW_OFF:
            self.state, self.window, self.pending, self.asked = FLOW_OPEN, WINDOW_FIRST, 0, 0

    cdef bint has_room(self) noexcept nogil:
        """Tell whether another message may go out."""
        return self.state == FLOW_OFF or self.pending <= self.window

    cdef bint note_sent(self, int64_t size) noexcept nogil:
        """Count bytes that went out; True: the subscriber is to be asked now."""
        if self.state == FLOW_OFF:
            return False
        self.pending += size
        if self.state == FLOW_OPEN:
            return self.pending > self.window // 2
        if self.pending - self.asked >= self.window:
            self.asked += size
        return False

    def ask(self, bytes reply) -> None:
        """Note the request for a confirmation that goes out with `reply`."""
        self.reply = reply
        self.state = FLOW_ASKED
        self.asked = self.pending

    def confirm(self, bytes reply) -> bool:
        """Take a confirmation: the bytes that it covers arrived. False: it answers another request."""
        if self.state != FLOW_ASKED or reply != self.reply:
            return False
        self.state = FLOW_OPEN
        self.window = min(self.window * 2, WINDOW_LAST)
        self.pending = max(self.pending - self.asked, 0)
        self.asked, self.reply = 0, b""
        return True


cdef class PushSubject:
    """Where one push consumer delivers to."""

    def configure(self, bytes subject, bytes group, int64_t heartbeat_ns) -> None:
        """Deliver to `subject` from now on."""
        self.subject = subject
        self.text = subject
        self.length = <uint32_t> len(subject)
        self.group = group
        self.heartbeat_ns = heartbeat_ns

    def look(self, Account account not None, int64_t now) -> None:
        """Find out whether anybody listens: a wildcard that matches the subject does not count."""
        self.changed = False
        was, self.bound = self.bound, False
        for subscription in account.subs.match(self.subject):
            if subscription.subject == self.subject and subscription.queue == self.group:
                self.bound = True
        if was and not self.bound:
            self.unbound_at = now
        elif self.bound and not was:
            self.sent_at = now

"""Flow control of a push consumer: how many bytes may be on their way to its subscriber.

Past half of the window the consumer asks for a confirmation; past the window nothing goes out until it comes. Each
confirmation doubles the window, up to 32 MiB. States: off, open and asked; `switch` leads from off to open and back,
`ask` from open to asked, `confirm` from asked to open. Knows nothing of messages and subjects.

Compiled: counts every message of a push consumer (benchmarks/: push).
Source: nats.docs "Flow control"; window and requests probed on nats-server 2.15.1.
"""
from libc.stdint cimport int64_t

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

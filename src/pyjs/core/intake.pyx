"""What one connection has read and not parsed yet, and why its reading or parsing waits.

Knows nothing of operations and of turns: the session parses and asks for turns, this says when the transport reads.
Compiled because every read passes here (benchmarks/: request/reply, core publish).
"""
from collections import deque


cdef class Intake:
    """The input of one session."""

    def __cinit__(self, object link):
        self.link = link
        self.reads = deque()

    cdef int hold(self) except -1:
        """Read no more before what is here has been parsed."""
        if not self.waits & HELD:
            self.waits |= HELD
            self.link.pause_reading()
        return 0

    cdef int rest(self) except -1:
        """Neither read nor parse before `go_on(REST)`."""
        self.waits |= REST
        self.link.pause_reading()
        return 0

    cdef int go_on(self, unsigned int wait) except -1:
        """End one reason to wait; read on if it was the last one against reading."""
        if self.waits & wait:
            self.waits &= ~wait
            if not self.waits & (HELD | REST):
                self.link.resume_reading()
        return 0

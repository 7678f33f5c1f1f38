"""The unparsed input of one connection, and the reasons for which reading or parsing is paused.

This module knows nothing of operations and turns: the session parses, and queues itself for turns; Intake pauses and
resumes the transport.
Compiled, because it runs for every read (measured in benchmarks/: request/reply, core publish).
"""
from collections import deque


from pyjs.wire.ops cimport OP_BAD, OP_BAD_ARGS, OP_LINE_TOO_LONG, OP_NO_HEADERS, OP_TOO_BIG

# The -ERR text and the close reason for each error of the parser.
LINE_ERRORS = {
    OP_BAD: ("Unknown Protocol Operation", "Protocol Violation"),
    OP_BAD_ARGS: ("", "Protocol Violation"), OP_NO_HEADERS: ("", "Protocol Violation"),
    OP_LINE_TOO_LONG: ("maximum control line exceeded", "Maximum Control Line Exceeded"),
    OP_TOO_BIG: ("Maximum Payload Violation", "Maximum Message Payload Exceeded"),
}


cdef class Intake:
    """The unparsed input of one session, and the reasons for which reading or parsing is paused."""

    def __cinit__(self, object link):
        self.link = link
        self.reads = deque()

    cdef int hold(self) except -1:
        """Pause reading until the input is parsed."""
        if not self.waits & HELD:
            self.waits |= HELD
            self.link.pause_reading()
        return 0

    cdef int rest(self) except -1:
        """Pause reading and parsing until `go_on(REST)`."""
        self.waits |= REST
        self.link.pause_reading()
        return 0

    cdef int go_on(self, unsigned int wait) except -1:
        """Clear the flag `wait`; resume reading from the socket unless HELD or REST is still set."""
        if self.waits & wait:
            self.waits &= ~wait
            if not self.waits & (HELD | REST):
                self.link.resume_reading()
        return 0

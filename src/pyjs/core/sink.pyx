"""Sinks (receivers of messages), and the work lists of one turn.

A Sink is the receiver of a subscription: a client session, a stream, a consumer, or Python code (PySink).
`Sink.deliver` is the only upward call of the server: core does not know the kinds of sinks. Invariant: `deliver` only
records work or does a bounded append; it never changes the subscription list and never closes a session.

Compiled, because the virtual call is made once per receiver (measured in benchmarks/: 1-1, 1-10, JetStream publish).
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

from collections import deque

from pyjs.core.chore import Chore

cdef enum:
    INPUT_WORK = 65536          # work on input between two turns, over all sessions: some 4 ms
    COPY_OUT_WORK = 32
    REFUSE_WORK = 192           # in addition, for a message that is not admitted: its sender gets an error


EVERYWHERE = <uint64_t> -1


cdef class Turn:
    """The work lists of one turn."""

    def __cinit__(self):
        self.input_left = INPUT_WORK
        self.inputs = deque()
        self.sessions = []
        self.streams = []
        self.consumers = []
        self.inboxes = []
        self.consensus = []
        self.expired = []
        self.held = []
        self.requests = []
        self.chores = []
        self.unsynced = []
        self.upkeep = []
        self.jobs = []
        self.finished = []
        self.faulted = []

    def go_on(self, steps) -> None:
        """Queue work of the server itself as a chore; `steps` is an iterator."""
        self.chores.append(Chore(steps, (None, steps)))

    cpdef begin_input(self):
        """Set the limit for the work on input, in this turn and in all reads until the next turn."""
        self.input_left = INPUT_WORK

    def next_input(self):
        """Remove and return the session whose unparsed input has waited longest.

        Return None if there is none, if the limit on work is reached, or if output buffers are full.
        """
        if not self.inputs or self.input_left <= 0 or self.pressure:
            return None
        return self.inputs.popleft()

    cdef uint64_t number_of(self, Msg* m) noexcept nogil:
        if m.number == 0:
            self.last_number += 1
            m.number = self.last_number
        return m.number

    def take(self, str name) -> list:
        """Return the work list called `name`, and empty it."""
        cdef list out
        if name == "sessions":
            out, self.sessions = self.sessions, []
        elif name == "streams":
            out, self.streams = self.streams, []
        elif name == "consumers":
            out, self.consumers = self.consumers, []
        elif name == "inboxes":
            out, self.inboxes = self.inboxes, []
        elif name == "consensus":
            out, self.consensus = self.consensus, []
        elif name == "expired":
            out, self.expired = self.expired, []
        elif name == "chores":
            out, self.chores = self.chores, []
        elif name == "upkeep":
            out, self.upkeep = self.upkeep, []
        elif name == "unsynced":
            out, self.unsynced = self.unsynced, []
        elif name == "jobs":
            out, self.jobs = self.jobs, []
        elif name == "finished":
            out, self.finished = self.finished, []
        elif name == "faulted":
            out, self.faulted = self.faulted, []
        else:
            assert name == "requests"
            out, self.requests = self.requests, []
        return out

    @property
    def idle(self) -> bool:
        """Whether no list has work for a turn; work for threads (jobs, upkeep, syncs) does not count."""
        return self.is_idle()

    cdef bint is_idle(self) except -1:
        return not (self.sessions or self.streams or self.consumers or self.inboxes or self.consensus
                    or self.expired or self.held or self.requests or self.chores or self.finished
                    or self.faulted or self.inputs)

    cpdef begin(self, int64_t now, int copies):
        """Start a turn in which mirrors and sources may copy `copies` batches."""
        self.now = now
        self.pressure = False
        self.copies_left = copies
        if self.held:
            self.consumers = self.held + self.consumers
            self.held = []


cdef class Sink:
    """The receiver of a subscription."""

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        return 0

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        # A receiver inside the server accepts even a trace-only message, as in nats-server.
        return self.deliver(m, t)

    def accepts(self, bytes subject, bytes queue) -> bool:
        """Return whether a subscription in group `queue` (b"": none) may receive `subject`.

        Called for each new route.
        """
        return True

    def trace_refusal(self, trace, sub, bytes subject) -> None:
        """Add to the trace of a message: `accepts` refused the message for `sub`."""


cdef class RemoteSink(Sink):
    """The receiver of subscriptions at another server of the cluster."""


cdef class Request:
    """A message copied for Python code."""

    def __init__(self, handler, subject, reply=b"", headers=b"", payload=b"", session=None, is_routed=False,
                 uint64_t number=0):
        self.handler = handler
        self.subject = subject
        self.reply = reply
        self.headers = headers
        self.payload = payload
        self.session = session
        self.is_routed = is_routed
        self.number = number


cdef class PySink(Sink):
    """A sink that copies the message; in the turn, `handler` is called with the copy as a Request."""

    def __cinit__(self, Turn turn, object handler):
        self.turn = turn
        self.handler = handler

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        if t.sub.closed:
            return 0
        with gil:
            try:
                self.copy_out(m)
            except MemoryError:
                return 0
        t.sub.delivered += 1
        return 1

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        if self.service is None:
            return self.deliver(m, t)
        subject = m.subject[:m.subject_len]
        trace.service(subject, self.service or subject)
        return 0 if trace.only else self.deliver(m, t)

    cdef int copy_out(self, Msg* m) except -1:
        cdef object session = self.turn.sender if m.origin == NULL else <object> <PyObject*> m.origin
        self.turn.extra_work += COPY_OUT_WORK
        request = Request(
            self.handler, m.subject[:m.subject_len], m.reply[:m.reply_len], m.body[:m.header_len],
            m.body[m.header_len:m.size], session, m.told == EVERYWHERE, self.turn.number_of(m))
        if self.admits is not None and not self.admits(request):
            self.turn.extra_work += REFUSE_WORK
            return 0
        self.turn.requests.append(request)
        return 0

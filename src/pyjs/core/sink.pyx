"""Receivers of messages, and the work lists of one turn.

A Sink is whoever a subscription delivers to: a client session, a stream, a consumer, or Python code (PySink). This
is the one upward call of the house: core delivers to a Sink without knowing what it is. `deliver` only records
work or does a bounded append; it never changes the subscription list and never closes a session.

Compiled: the virtual call is made once per receiver (benchmarks/: 1-1, 1-10, JetStream publish).
"""
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg

from collections import deque

from pyjs.core.chore import Chore

cdef enum:
    INPUT_WORK = 65536          # on input between two turns, all sessions together: some 4 ms
    COPY_OUT_WORK = 32


cdef class Turn:
    """The work lists of one turn: who has output, who has something to commit, pump or answer."""

    def __cinit__(self):
        self.input_left = INPUT_WORK
        self.inputs = deque()
        self.sessions = []
        self.streams = []
        self.consumers = []
        self.inboxes = []
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
        """Do work of the server itself that is too long for one turn, a step now and then."""
        self.chores.append(Chore(steps, (None, steps)))

    def begin_input(self) -> None:
        """Allow the work on input of one turn, and of the reads until the next one."""
        self.input_left = INPUT_WORK

    def next_input(self):
        """Return the session whose input is to be resumed, None: there is none, or no work left in this turn."""
        if not self.inputs or self.input_left <= 0 or self.pressure:
            return None
        return self.inputs.popleft()

    def take(self, str name) -> list:
        """Return the work list called `name` and leave it empty."""
        cdef list out
        if name == "sessions":
            out, self.sessions = self.sessions, []
        elif name == "streams":
            out, self.streams = self.streams, []
        elif name == "consumers":
            out, self.consumers = self.consumers, []
        elif name == "inboxes":
            out, self.inboxes = self.inboxes, []
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
        """Whether no list holds work for a turn; syncing is not done by turns."""
        return not (self.sessions or self.streams or self.consumers or self.inboxes or self.expired or self.held
                    or self.requests or self.chores or self.finished or self.faulted or self.inputs)

    def begin(self, int64_t now, int copies) -> None:
        """Begin a turn in which streams may copy from others `copies` times."""
        self.now = now
        self.pressure = False
        self.copies_left = copies
        if self.held:
            self.consumers = self.held + self.consumers
            self.held = []


cdef class Sink:
    """Whoever a subscription delivers to."""

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        return 0

    def accepts(self, bytes subject) -> bool:
        """Whether messages of `subject` may be delivered; asked when a route is built."""
        return True


cdef class Request:
    """A message copied out for Python code."""

    def __init__(self, handler, subject, reply=b"", headers=b"", payload=b"", session=None):
        self.handler = handler
        self.subject = subject
        self.reply = reply
        self.headers = headers
        self.payload = payload
        self.session = session


cdef class PySink(Sink):
    """A sink that copies the message out and has `handler` called with a Request in the turn."""

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

    cdef int copy_out(self, Msg* m) except -1:
        cdef object session = None if m.origin == NULL else <object> <PyObject*> m.origin
        self.turn.extra_work += COPY_OUT_WORK
        self.turn.requests.append(Request(
            self.handler, m.subject[:m.subject_len], m.reply[:m.reply_len], m.body[:m.header_len],
            m.body[m.header_len:m.size], session))
        return 0

"""One account at another server: the receiver of all its subscriptions there.

Compiled: every message to another server (benchmarks/: 1-1 over a route).
"""
from libc.stdint cimport int64_t, uint32_t

from pyjs.cluster.writer cimport RouteWriter
from pyjs.core.account cimport EVERYWHERE, Account
from pyjs.core.sink cimport RemoteSink
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.wire.ops cimport Msg


cdef class RemoteAccount(RemoteSink):
    """One account at the other server."""

    def __cinit__(self, RouteWriter writer not None, Account account not None, uint32_t number, bint silent):
        self.writer = writer
        self.account = account
        self.number = number
        self.doubts = silent
        self.subscriptions = {}

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil:
        if t.sub.closed or m.told == EVERYWHERE or not self.writer.is_open:
            return 0
        if m.told & self.writer.bit:
            if t.sub.queue_id == 0:
                return 0                # the other server already has the message
            if self.writer.last == m and self.writer.add_queue(t) == 0:
                t.sub.delivered += 1
                return 1
        if self.writer.send_msg(m, self.number, t) < 0:
            return 0
        m.told |= self.writer.bit
        t.sub.delivered += 1
        return 1

    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1:
        return 1 if trace.only else self.deliver(m, t)

    def set_weight(self, bytes subject, bytes queue, int64_t weight) -> None:
        """Add, change or (weight 0) remove the other server's subscriptions of `subject` and `queue`."""
        cdef Subscription sub = self.subscriptions.get((subject, queue))
        if weight == 0:
            if sub is not None:
                del self.subscriptions[subject, queue]
                self.account.remove_plain(sub)
            return
        if sub is None:
            sub = Subscription(self, subject, queue)
            sub.state.weight = <uint32_t> weight
            self.account.add_plain(sub)
            self.subscriptions[subject, queue] = sub
        else:
            sub.state.weight = <uint32_t> weight

    def set_silent(self, bint silent) -> None:
        """Note whether the other server has been silent for a while."""
        self.doubts = silent

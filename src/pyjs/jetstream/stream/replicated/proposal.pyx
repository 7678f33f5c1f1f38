"""The data that the leader keeps for each proposed payload until its entry is applied or lost.

Reply subjects stay on the leader, since only the node that received a message answers it. If the proposal is lost,
it is unknown whether its messages will be stored, and they get no answer.

Compiled because it handles every message of a replicated stream (benchmarks/replica.py).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from pyjs.base.grow cimport grow


class Outcome:
    """The result of a proposed operation, for the one chore that waits for it."""

    def __init__(self, turn) -> None:
        self._turn = turn
        self._chore = None
        self.settled = False
        self.result = None
        self.error = None               # set if the operation failed, or if its result is unknown

    def settle(self, result, error=None) -> None:
        """Store the result, and wake the chore."""
        self.settled, self.result, self.error = True, result, error
        if self._chore is not None:
            self._turn.chores.append(self._chore)
            self._chore = None

    def park(self, chore) -> None:
        """Store the chore, to wake it when the result is known."""
        self._chore = chore


cdef class Proposal:
    def __cinit__(self):
        self.calls, self.changed, self.subjects = [], set(), []

    @property
    def is_patient(self) -> bool:
        """Whether to wait for the entry even if this node loses the leadership, so that publishers get answers."""
        return self.outcome is None

    def __dealloc__(self):
        free(self.replies)

    cdef int add_reply(self, Msg* m) noexcept nogil:
        if grow(<void**> &self.replies, &self.room, self.used + 4 + m.reply_len, 1) != 0:
            return -1
        memcpy(self.replies + self.used, &m.reply_len, 4)
        memcpy(self.replies + self.used + 4, m.reply, m.reply_len)
        self.used += 4 + m.reply_len
        return 0

    cdef void next_reply(self, Msg* m) noexcept nogil:
        cdef uint32_t n = 0
        if self.at >= self.used:
            return
        memcpy(&n, self.replies + self.at, 4)
        m.reply, m.reply_len = self.replies + self.at + 4, n
        self.at += 4 + n

"""Which messages of one stream are due to go by their age: max_age, or a time to live of their own.

Drops in steps, over as many turns as that takes: a million messages may be due in the same second. Knows the store;
of the stream only that it is called for each step and leaves the markers of expired subjects.

Compiled: a message that expires passes here (benchmarks/hostile.py: expiry, ttl-together).
Source: nats.docs "Streams" (MaxAge), ADR-43.
"""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.lifetimes cimport Lifetimes
from pyjs.store.index.sequences cimport index_live, index_next_live, index_prev_live
from pyjs.store.store cimport StreamStore

from pyjs.base.errors import NotNow

cdef enum:
    STEP = 2000                 # messages dropped in one step: less than a millisecond
    MARKED_STEP = 50            # of a stream that leaves markers: each is read, and another one stored
cdef int64_t RETRY_NS = 1000000000      # after which a message that could not go is looked at again


cdef class Aging:
    """The ages of one stream's messages."""

    def __cinit__(self, StreamStore store):
        self.store = store
        self.lifetimes = Lifetimes()

    cdef int64_t next_due(self, int64_t max_age_ns) noexcept nogil:
        """When the next message is due by the wall clock, 0: none will be."""
        cdef int64_t due, too_old
        cdef uint64_t oldest
        if self.store.catalogue.msgs == 0:
            self.lifetimes.clear()
            return 0
        due = self.lifetimes.next_due()
        if max_age_ns == 0:
            return due
        oldest = self.oldest_expiring()
        if oldest == 0:
            return due
        too_old = index_live(&self.store.catalogue.index, oldest).ts + max_age_ns
        return too_old if due == 0 or too_old < due else due

    cdef uint64_t oldest_expiring(self) noexcept nogil:
        """The oldest message that max_age applies to, 0: there is none. Those before it are not looked at again."""
        cdef uint64_t seq
        self.lifetimes.forget_below(self.store.catalogue.first_seq)
        seq = self.next_expiring(self.passed_seq + 1)
        if seq:
            self.passed_seq = seq - 1
        else:
            self.passed_seq = index_prev_live(&self.store.catalogue.index, self.store.catalogue.last_seq)
        return seq

    cdef uint64_t next_expiring(self, uint64_t seq) noexcept nogil:
        """The first message from `seq` on that max_age applies to, 0: there is none."""
        seq = index_next_live(&self.store.catalogue.index, seq)
        while seq and self.lifetimes.outlives(seq):
            seq = index_next_live(&self.store.catalogue.index, seq + 1)
        return seq

    # -- in steps --------------------------------------------------------------------------------------------------

    def begin(self, stream) -> None:
        """Let `stream` drop what is due, unless that is under way: a step now, the others in the next turns."""
        if not self.busy and stream.expire_some():
            self.busy = True
            stream.turn.go_on(self.rest(stream))

    def rest(self, stream) -> Generator[Step, None, None]:
        """Do the other steps."""
        try:
            yield None
            while stream.expire_some():
                yield None
        finally:
            self.busy = False

    cdef bint drop_some(self, stream, int64_t wall, int64_t max_age_ns, bint marked) except -1:
        """Drop a part of what is due; whether there is more."""
        cdef int left = MARKED_STEP if marked else STEP
        cdef uint64_t seq
        while left:
            seq = self.lifetimes.take_due(wall)
            if seq == 0:
                return max_age_ns != 0 and self.drop_older(stream, wall - max_age_ns, left, marked)
            if not self.drop(stream, seq, marked):
                self.lifetimes.note(seq, RETRY_NS, wall)
            left -= 1
        return True

    cdef bint drop_older(self, stream, int64_t horizon, int left, bint marked) except -1:
        """Drop up to `left` messages that were stored at `horizon` or before; whether there are more that can go."""
        cdef uint64_t seq = self.oldest_expiring()
        cdef bint some = False
        while seq and index_live(&self.store.catalogue.index, seq).ts <= horizon:
            if left == 0:
                return some                 # else none of them can go, and the timer comes again
            some |= self.drop(stream, seq, marked)
            left -= 1
            seq = self.next_expiring(seq + 1)
        return False

    cdef bint drop(self, stream, uint64_t seq, bint marked) except -1:
        """Drop one message; the last of its subject leaves a marker where the stream wants that. False: not now."""
        cdef bytes subject
        if not marked:
            self.store.drop(seq, False)
            return True
        if self.store.failed:               # the marker would be lost
            return False
        try:
            message = self.store.get(seq)
        except NotNow:
            return False
        if message is None:
            return True
        self.store.drop(seq, False)
        subject = message.subject
        if b"\r\nNats-Marker-Reason:" not in message.headers \
                and self.store.catalogue.count_of(subject, len(subject)) == 0:
            stream.leave_marker(subject, seq)
        return True

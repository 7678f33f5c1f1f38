"""The messages of one stream that have a time to live of their own (Nats-TTL).

Two tables: a binary heap of those that expire, the next one first, and the sequences of those that never do,
ascending. Both hold sixteen bytes a message at most and give memory back when they are emptied. Entries of messages
that are gone by then are harmless. Knows sequences and times, not stores: the stream drops what is due.

Compiled: a message with a time to live passes here twice (benchmarks/hostile.py: ttl-together).
Source: ADR-43.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memmove

from pyjs.base.grow cimport grow, grow_to

from pyjs.base.bounds import INT64
from pyjs.jetstream.stream.message_ttl import NEVER, parse_ttl_ns

cdef enum:
    ROOM_MIN = 64               # entries: tables that small stay
    ROOMY_PART = 4              # of a table in use: with less it is too large
cdef int64_t LAST_NS = INT64.high


cdef class Lifetimes:
    """When messages expire by themselves."""

    def __dealloc__(self):
        free(self.heap)
        free(self.never)

    def add(self, uint64_t seq, bytes text, int64_t stored_at_ns) -> None:
        """Note the Nats-TTL value of a stored message; ignore a value that is not a TTL."""
        ttl_ns = parse_ttl_ns(text)
        if ttl_ns == NEVER:
            self.add_never(seq)
        elif ttl_ns:
            self.note(seq, ttl_ns, stored_at_ns)

    cdef void note(self, uint64_t seq, int64_t ttl_ns, int64_t stored_at_ns) noexcept nogil:
        """Let a message expire `ttl_ns` after it was stored. Without memory it is one that stays."""
        cdef Due due
        cdef size_t at = self.n, parent
        if grow(<void**> &self.heap, &self.room, self.n + 1, sizeof(Due)) != 0:
            return
        due.seq = seq
        due.at_ns = stored_at_ns + ttl_ns if stored_at_ns < LAST_NS - ttl_ns else LAST_NS
        self.n += 1
        while at:
            parent = (at - 1) >> 1
            if not before(&due, &self.heap[parent]):
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at] = due

    cdef int64_t next_due(self) noexcept nogil:
        return self.heap[0].at_ns if self.n else 0

    cdef uint64_t take_due(self, int64_t now_ns) noexcept nogil:
        cdef uint64_t seq
        cdef Due last
        cdef size_t at = 0, child = 1
        if self.n == 0 or self.heap[0].at_ns > now_ns:
            return 0
        seq = self.heap[0].seq
        self.n -= 1
        last = self.heap[self.n]
        while child < self.n:
            if child + 1 < self.n and before(&self.heap[child + 1], &self.heap[child]):
                child += 1
            if not before(&self.heap[child], &last):
                break
            self.heap[at] = self.heap[child]
            at = child
            child = 2 * at + 1
        self.heap[at] = last
        if self.room > ROOM_MIN and self.n < self.room // ROOMY_PART:
            grow_to(<void**> &self.heap, &self.room, self.room // 2, sizeof(Due))
        return seq

    # -- those that outlive max_age --------------------------------------------------------------------------------

    cdef int add_never(self, uint64_t seq) except -1:
        cdef size_t at = self.place_of(seq)
        if at < self.n_never and self.never[at] == seq:
            return 0
        if grow(<void**> &self.never, &self.never_room, self.n_never + 1, sizeof(uint64_t)) != 0:
            raise MemoryError
        memmove(self.never + at + 1, self.never + at, (self.n_never - at) * sizeof(uint64_t))
        self.never[at] = seq
        self.n_never += 1
        return 0

    cdef size_t place_of(self, uint64_t seq) noexcept nogil:
        """Return how many of those that never expire are below `seq`; most often it is above all."""
        cdef size_t low = 0, high = self.n_never, middle
        if high and self.never[high - 1] < seq:
            return high
        while low < high:
            middle = (low + high) >> 1
            if self.never[middle] < seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef bint outlives(self, uint64_t seq) noexcept nogil:
        cdef size_t at = self.place_of(seq)
        return at < self.n_never and self.never[at] == seq

    # -- messages that are gone ------------------------------------------------------------------------------------

    cdef void forget_below(self, uint64_t seq) noexcept nogil:
        cdef size_t gone = self.place_of(seq)
        if gone < self.n_never // 2 or gone == 0:           # moves at most as many entries as it forgets
            return
        self.n_never -= gone
        memmove(self.never, self.never + gone, self.n_never * sizeof(uint64_t))
        if self.never_room > ROOM_MIN and self.n_never < self.never_room // ROOMY_PART:
            grow_to(<void**> &self.never, &self.never_room, self.never_room // 2, sizeof(uint64_t))

    cdef void clear(self) noexcept nogil:
        free(self.heap)
        free(self.never)
        self.heap, self.never = NULL, NULL
        self.n = self.room = self.n_never = self.never_room = 0

    # -- for tests -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n + self.n_never

    def next_due_ns(self) -> int:
        """Return when the next message expires; 0: none does."""
        return self.next_due()

    def pop_due(self, int64_t now_ns) -> int:
        """Return a sequence that has expired, the earliest, and forget it; 0: none has."""
        return self.take_due(now_ns)

    def is_endless(self, uint64_t seq) -> bool:
        """Return whether the message never expires."""
        return self.outlives(seq)

    def drop_below(self, uint64_t seq) -> None:
        """Forget messages below `seq` that never expire, some time."""
        self.forget_below(seq)

    def drop_all(self) -> None:
        """Forget everything."""
        self.clear()

    @property
    def size(self) -> int:
        """How many bytes the tables take."""
        return self.room * sizeof(Due) + self.never_room * sizeof(uint64_t)

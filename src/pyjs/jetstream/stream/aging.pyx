"""Expiry of one stream's messages, by max_age or by their own TTL (Nats-TTL).

`Aging` removes expired messages in steps over many turns, since a million may expire in the same second. It knows the
store, and calls the stream only to run the steps and to store markers for expired subjects.

`Lifetimes` has two tables: a binary heap of the messages with a finite TTL, ordered by expiry, and the ascending
sequences of messages that never expire. Both use at most sixteen bytes per message, and shrink when few entries are
left. Entries of removed messages do no harm. When they may be more than half of the heap, a sweep discards
them: it takes the entries of the old heap from its end, step by step, and adds the live ones to a new heap.

Invariant: heap and old heap together have every live entry. len <= 2 * live + STALE_MIN after a sweep.

Compiled, because it runs for every message that expires, twice for one with a TTL (measured by benchmarks/hostile.py:
expiry, ttl-together).
Source: nats.docs "Streams" (MaxAge), ADR-43.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memmove

from pyjs.base.grow cimport grow, grow_to
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport SeqIndex, index_live, index_next_live, index_prev_live
from pyjs.store.store cimport StreamStore

from pyjs.base.bounds import INT64
from pyjs.base.errors import NotNow
from pyjs.jetstream.stream.message_ttl import NEVER, is_marker, parse_ttl_ns

cdef enum:
    STEP = 2000                 # number of messages removed in one step: less than a millisecond
    MARKED_STEP = 50            # the same in a stream with markers: each message is read, and a marker may be stored
    ROOM_MIN = 64               # entries: a smaller table is not shrunk
    ROOMY_PART = 4              # a table is shrunk if less than 1 / ROOMY_PART of it is used
    STALE_MIN = 4096            # no sweep begins below this number of entries of removed messages
    SWEPT_STEP = 10000          # number of entries handled by one step of a sweep: about a millisecond
cdef int64_t RETRY_NS = 1000000000      # ns to wait before another attempt to remove a message
cdef int64_t LAST_NS = INT64.high


cdef void sink(Due* heap, size_t n, Due last) noexcept nogil:
    """Put `last` into a heap of `n` entries whose top is free; after this, no entry is due before its parent."""
    cdef size_t at = 0, child = 1
    while child < n:
        if child + 1 < n and before(&heap[child + 1], &heap[child]):
            child += 1
        if not before(&heap[child], &last):
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = last


cdef class Lifetimes:
    """The TTLs of one stream's messages."""

    def __dealloc__(self):
        free(self.heap)
        free(self.old)
        free(self.never)

    def add(self, uint64_t seq, bytes text, int64_t stored_at_ns) -> None:
        """Add the Nats-TTL value of a stored message; an invalid value is ignored."""
        ttl_ns = parse_ttl_ns(text)
        if ttl_ns == NEVER:
            self.add_never(seq)
        elif ttl_ns:
            self.note(seq, ttl_ns, stored_at_ns)

    cdef void note(self, uint64_t seq, int64_t ttl_ns, int64_t stored_at_ns) noexcept nogil:
        """Add a message that expires `ttl_ns` after it was stored; if out of memory, the TTL is ignored."""
        cdef Due due
        due.seq = seq
        due.at_ns = stored_at_ns + ttl_ns if stored_at_ns < LAST_NS - ttl_ns else LAST_NS
        self.push(due)

    cdef void note_again(self, uint64_t seq, int64_t at_ns) noexcept nogil:
        """Put back an entry from `take_due`, now due at `at_ns`, since its message was not removed."""
        cdef Due due
        due.seq, due.at_ns = seq, at_ns
        self.taken -= 1
        self.push(due)

    cdef void push(self, Due due) noexcept nogil:
        cdef size_t at = self.n, parent
        if grow(<void**> &self.heap, &self.room, self.n + 1, sizeof(Due)) != 0:
            return
        self.n += 1
        while at:
            parent = (at - 1) >> 1
            if not before(&due, &self.heap[parent]):
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at] = due

    cpdef int64_t next_due(self) noexcept nogil:
        cdef Due* first = self.first()
        return first.at_ns if first != NULL else 0

    cdef Due* first(self) noexcept nogil:
        """Return the entry that is due first, or NULL if there is none."""
        if self.n_old == 0:
            return self.heap if self.n else NULL
        return self.old if self.n == 0 or before(self.old, self.heap) else self.heap

    cpdef uint64_t take_due(self, int64_t now_ns) noexcept nogil:
        cdef Due* first = self.first()
        cdef uint64_t seq
        if first == NULL or first.at_ns > now_ns:
            return 0
        seq = first.seq
        self.taken += 1
        if first == self.old:
            self.n_old -= 1
            sink(self.old, self.n_old, self.old[self.n_old])
            return seq
        self.n -= 1
        sink(self.heap, self.n, self.heap[self.n])
        if self.room > ROOM_MIN and self.n < self.room // ROOMY_PART:
            grow_to(<void**> &self.heap, &self.room, self.room // 2, sizeof(Due))
        return seq

    # -- sweeps -----------------------------------------------------------------------------------------------------

    cdef bint is_stale(self, Catalogue catalogue) noexcept nogil:
        """Return whether a sweep should begin, because many entries may belong to removed messages."""
        cdef int64_t absent = <int64_t> (catalogue.last_seq - catalogue.msgs)
        if self.n_old or self.n <= STALE_MIN:
            return False
        return self.n > STALE_MIN + 2 * catalogue.msgs or 2 * (absent - self.absent - self.taken) > <int64_t> self.n

    cdef void begin_sweep(self, Catalogue catalogue) noexcept nogil:
        """Begin a sweep; `sweep` runs its steps."""
        free(self.old)
        self.old, self.n_old = self.heap, self.n
        self.heap, self.n, self.room = NULL, 0, 0
        self.absent, self.taken = <int64_t> (catalogue.last_seq - catalogue.msgs), 0

    cdef bint sweep(self, SeqIndex* index, size_t most) noexcept nogil:
        """Take up to `most` entries from the old heap, and add the live ones to the new heap.

        Return whether the old heap has further entries.
        """
        cdef size_t left = self.n_old - min(self.n_old, most)
        while self.n_old > left:
            self.n_old -= 1             # the last entry has no children, so the rest is still a heap
            if index_live(index, self.old[self.n_old].seq) != NULL:
                self.push(self.old[self.n_old])
        if self.n_old == 0:
            free(self.old)
            self.old = NULL
        return self.n_old != 0

    # -- messages that outlive max_age ------------------------------------------------------------------------------

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
        """Return the number of sequences in `never` that are below `seq`."""
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

    cpdef bint outlives(self, uint64_t seq) noexcept nogil:
        cdef size_t at = self.place_of(seq)
        return at < self.n_never and self.never[at] == seq

    # -- removed messages -------------------------------------------------------------------------------------------

    cpdef void forget_below(self, uint64_t seq) noexcept nogil:
        cdef size_t gone = self.place_of(seq)
        if gone < self.n_never // 2 or gone == 0:           # at least as many entries are removed as must be moved
            return
        self.n_never -= gone
        memmove(self.never, self.never + gone, self.n_never * sizeof(uint64_t))
        if self.never_room > ROOM_MIN and self.n_never < self.never_room // ROOMY_PART:
            grow_to(<void**> &self.never, &self.never_room, self.never_room // 2, sizeof(uint64_t))

    cpdef void clear(self) noexcept nogil:
        free(self.heap)
        free(self.old)
        free(self.never)
        self.heap, self.old, self.never = NULL, NULL, NULL
        self.n = self.n_old = self.room = self.n_never = self.never_room = 0

    # -- for tests -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n + self.n_old + self.n_never

    @property
    def size(self) -> int:
        """The bytes that both tables occupy."""
        return (self.room + self.n_old) * sizeof(Due) + self.never_room * sizeof(uint64_t)


cdef class Aging:
    """The removal of one stream's expired messages."""

    def __cinit__(self, StreamStore store):
        self.store = store
        self.lifetimes = Lifetimes()

    cdef int64_t next_due(self, int64_t max_age_ns) noexcept nogil:
        """Return the wall time in ns at which the next message expires, or 0 if none does."""
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
        """Return the sequence of the oldest message to which max_age applies, or 0 if there is none.

        Later calls do not visit older messages again.
        """
        cdef uint64_t seq
        self.lifetimes.forget_below(self.store.catalogue.first_seq)
        seq = self.next_expiring(self.passed_seq + 1)
        if seq:
            self.passed_seq = seq - 1
        else:
            self.passed_seq = index_prev_live(&self.store.catalogue.index, self.store.catalogue.last_seq)
        return seq

    cdef uint64_t next_expiring(self, uint64_t seq) noexcept nogil:
        """Return the sequence of the first message from `seq` on to which max_age applies, or 0 if there is none."""
        seq = index_next_live(&self.store.catalogue.index, seq)
        while seq and self.lifetimes.outlives(seq):
            seq = index_next_live(&self.store.catalogue.index, seq + 1)
        return seq

    # -- steps ------------------------------------------------------------------------------------------------------

    def begin(self, stream) -> None:
        """Remove expired messages of `stream`: some now, the rest in later turns.

        Do nothing while steps are running.
        """
        if not self.busy and stream.expire_some():
            self.busy = True
            stream.turn.go_on(self.rest(stream))

    def rest(self, stream) -> Generator[Step, None, None]:
        """Remove the remaining expired messages, some in each turn."""
        try:
            yield None
            while stream.expire_some():
                yield None
        finally:
            self.busy = False

    cdef void tidy(self, stream) except *:
        """If a sweep of the TTLs is due, begin it; its steps run in the next turns."""
        if self.lifetimes.is_stale(self.store.catalogue):
            self.lifetimes.begin_sweep(self.store.catalogue)
            stream.turn.go_on(sweep_steps(self.lifetimes, stream))

    cdef bint drop_some(self, stream, int64_t wall, int64_t max_age_ns, bint marked) except -1:
        """Remove some of the expired messages; return whether there are more."""
        cdef int left = MARKED_STEP if marked else STEP
        cdef uint64_t seq
        while left:
            seq = self.lifetimes.take_due(wall)
            if seq == 0:
                return max_age_ns != 0 and self.drop_older(stream, wall - max_age_ns, left, marked)
            if index_live(&self.store.catalogue.index, seq) == NULL and stream.replica is not None:
                continue                    # its message was removed; a restarted replica lacks such an entry
            if not self.drop(stream, seq, marked):
                self.lifetimes.note_again(seq, wall + RETRY_NS)
            left -= 1
        return True

    cdef bint drop_older(self, stream, int64_t horizon, int left, bint marked) except -1:
        """Remove up to `left` messages stored at `horizon` or before; return whether more can be removed."""
        cdef uint64_t seq = self.oldest_expiring()
        cdef bint some = False
        while seq and index_live(&self.store.catalogue.index, seq).ts <= horizon:
            if left == 0:
                return some                 # if none was removed, none can be now, and the timer tries again
            some |= self.drop(stream, seq, marked)
            left -= 1
            seq = self.next_expiring(seq + 1)
        return False

    cdef bint drop(self, stream, uint64_t seq, bint marked) except -1:
        """Remove a message; with `marked`, store a marker if it was the last message of its subject.

        Return False if the message cannot be removed now.

        Raises:
            NotNow: a replica cannot read the message now.
        """
        cdef bytes subject
        if not marked:
            self.store.drop(seq, False)
            return True
        if self.store.failed:               # the marker could not be stored
            return False
        try:
            message = self.store.get(seq)
        except NotNow:
            if stream.replica is not None:  # other replicas may already have removed it
                raise
            return False
        if message is None:
            return True
        self.store.drop(seq, False)
        subject = message.subject
        if not is_marker(message.headers) and self.store.catalogue.count_of(subject, len(subject)) == 0:
            stream.leave_marker(subject, seq)
        return True


def sweep_steps(Lifetimes lifetimes not None, stream) -> Generator[Step, None, None]:
    """Discard the entries of removed messages, some in each turn."""
    cdef StreamStore store = stream.store
    while not stream.closed and lifetimes.sweep(&store.catalogue.index, SWEPT_STEP):
        yield None

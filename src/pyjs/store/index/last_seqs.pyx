"""Searches in steps: the last sequence of each matching subject, or the number of matching messages.

Both searches count only messages that were stored at their start. A count may include messages that are removed while
it runs; `Count.is_exact` is then False. A search uses eight bytes per subject, and sixteen while it sorts, so callers
should limit the number of simultaneous searches of a large store.

Compiled, because a stream may have millions of subjects (measured by benchmarks/hostile.py last-per-subject,
filter-updates).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort

from pyjs.base.grow cimport grow
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.sequences cimport by_seq
from pyjs.store.index.subject_walk cimport SubjectWalk
from pyjs.store.index.subjects cimport Subject

cdef enum:
    CHUNK = 4096                # number of sequences sorted at once
    HOPS = 65536                # newer messages that one step of a count may follow; beyond that, the count is lost
    GAP_SIZE_MAX = 10           # maximum bytes of a packed number

cdef size_t MANY = <size_t> -1


cdef class LastSeqs:
    """A search for the last sequence of each matching subject.

    After `step` has returned True, the sequences are ascending, unless there are too many.
    """

    cdef SubjectWalk walk
    cdef readonly uint64_t up_to        # later messages do not count; at most the newest one when the search began
    cdef readonly size_t n
    cdef bint counts_all                # each subject has a message up to `up_to`
    cdef size_t most
    cdef size_t room
    cdef uint64_t reached               # see Catalogue.last_up_to, of the subject with the generation `reached_gen`
    cdef uint32_t reached_gen
    cdef uint64_t* seqs
    cdef uint64_t* merged               # destination of the merge; NULL: no merge is running
    cdef size_t run                     # length of the sorted runs in `seqs`; 0: not sorted yet
    # of the two runs that are being merged: start of the first, and the next item of each
    cdef size_t low, left, right

    def __init__(self, Catalogue store not None, StoreFilter f not None, uint64_t up_to=0, size_t most=MANY):
        """Begin a search for messages up to `up_to` (0: all); it ends early after more than `most` results."""
        self.walk = SubjectWalk(store, f)
        self.counts_all = up_to == 0 or up_to >= store.last_seq
        self.up_to = store.last_seq if self.counts_all else up_to
        self.most = most

    def __dealloc__(self):
        free(self.seqs)
        free(self.merged)

    @property
    def first(self) -> int:
        """The lowest sequence found; the search must be complete and have found at least one."""
        return self.seqs[0]

    @property
    def has_too_many(self) -> bool:
        """Whether there are more than `most` results, so that the search has ended early."""
        return self.n > self.most or (self.counts_all and self.walk.total > self.most)

    def step(self, uint32_t limit) -> bool:
        """Process about `limit` subjects; return whether the search is complete. Raises MemoryError."""
        looked = self.walk.look(limit)
        if self.has_too_many:
            return True
        if not looked:
            return False
        if not self.walk.done:
            self.gather(limit)
        elif self.run < CHUNK:
            self.begin_merging()
        elif self.run < self.n:
            self.merge(limit)
        return self.walk.done and self.run >= max(self.n, CHUNK)

    cdef int gather(self, uint32_t limit) except -1:
        cdef Catalogue store = self.walk.store
        cdef Subject* s
        cdef uint64_t seq, hops = limit
        cdef size_t begin
        if self.seqs == NULL:
            self.seqs = <uint64_t*> malloc(self.walk.total * sizeof(uint64_t) + 8)
            self.room = self.walk.total
            if self.seqs == NULL:
                raise MemoryError
        while limit and self.n < self.room:
            s = self.walk.next()
            if s == NULL:
                break
            seq = store.last_up_to(s, self.up_to, &hops, self.reached if s.gen == self.reached_gen else 0)
            if seq > self.up_to:
                self.reached, self.reached_gen = seq, s.gen
                self.walk.at -= 1
                return 0
            if seq:
                self.seqs[self.n] = seq
                self.n += 1
                if self.n > self.most:
                    return 0
                if self.n % CHUNK == 0:
                    begin = self.n - CHUNK
                    qsort(&self.seqs[begin], CHUNK, sizeof(uint64_t), by_seq)
            limit -= 1
        if self.n == self.room:
            self.walk.at = self.walk.end        # subjects added later have no message as old as this
        return 0

    cdef int begin_merging(self) except -1:
        cdef size_t begin = self.n - self.n % CHUNK, i
        qsort(&self.seqs[begin], self.n - begin, sizeof(uint64_t), by_seq)
        self.run = CHUNK
        for i in range(CHUNK, self.n, CHUNK):
            if self.seqs[i - 1] > self.seqs[i]:
                self.merged = <uint64_t*> malloc(self.n * sizeof(uint64_t))
                if self.merged == NULL:
                    raise MemoryError
                return 0
        # the subjects are in the order of their sequences already, as is usual
        self.run = max(self.n, <size_t> CHUNK)
        return 0

    cdef void merge(self, size_t limit) noexcept nogil:
        """Merge pairs of runs into `merged`, up to `limit` sequences.

        After the last pair, begin again with runs twice as long.
        """
        cdef size_t middle, end
        while limit:
            middle = min(self.low + self.run, self.n)
            end = min(middle + self.run, self.n)
            if self.left == middle - self.low and self.right == end - middle:
                self.low, self.left, self.right = end, 0, 0
                if end == self.n:
                    self.seqs, self.merged = self.merged, self.seqs
                    self.run *= 2
                    self.low = 0
                    if self.run >= self.n:
                        free(self.merged)
                        self.merged = NULL
                        return
                continue
            if self.right == end - middle or (
                self.left < middle - self.low
                and self.seqs[self.low + self.left] < self.seqs[middle + self.right]
            ):
                self.merged[self.low + self.left + self.right] = self.seqs[self.low + self.left]
                self.left += 1
            else:
                self.merged[self.low + self.left + self.right] = self.seqs[middle + self.right]
                self.right += 1
            limit -= 1

    def found(self) -> list:
        """Return all sequences that were found."""
        return [self.seqs[i] for i in range(self.n)]

    def packed(self) -> bytes:
        """Return the first sequence, then the distance from each sequence to the next, as LEB128.

        `Skips` in jetstream/consumer/delivery/cursor.pyx decodes them.
        """
        cdef char* out = NULL
        cdef size_t i, size = 0, room = 0
        cdef uint64_t before = 0, gap
        try:
            for i in range(self.n):
                if grow(<void**> &out, &room, size + GAP_SIZE_MAX, 1) != 0:
                    raise MemoryError
                gap = self.seqs[i] - before
                before = self.seqs[i]
                while gap > 0x7f:
                    out[size] = <char> (gap & 0x7f | 0x80)
                    gap >>= 7
                    size += 1
                out[size] = <char> gap
                size += 1
            return PyBytes_FromStringAndSize(out, size)
        finally:
            free(out)


cdef class Count:
    """A count of the matching messages among those stored when the count began."""

    cdef SubjectWalk walk
    cdef readonly uint64_t up_to        # the newest sequence when the count began
    cdef readonly uint64_t msgs         # number of matching messages; valid once `step` has returned True
    cdef uint64_t all_msgs              # number of messages in the store when the count began
    cdef bint lost    # the chain of a subject is broken, so its messages cannot be counted by it

    def __init__(self, Catalogue store not None, StoreFilter f not None):
        self.walk = SubjectWalk(store, f)
        self.up_to = store.last_seq
        self.all_msgs = store.msgs

    def step(self, uint32_t limit) -> bool:
        """Process about `limit` subjects; return whether the count is complete. Raises MemoryError."""
        cdef Catalogue store = self.walk.store
        cdef Subject* s
        cdef uint64_t hops = HOPS       # together for all subjects of this step
        cdef size_t newer
        if not self.walk.look(limit):
            return False
        while limit:
            s = self.walk.next()
            if s == NULL:
                return True
            newer = 0
            if s.last > self.up_to and store.chain_down_to(s, self.up_to + 1, NULL, &newer, &hops) != 0:
                self.lost = True
            self.msgs += s.count - newer
            limit -= 1
        return False

    @property
    def is_exact(self) -> bool:
        """Whether `msgs` is exact: no message was removed during the count, and no chain of a subject is broken."""
        cdef Catalogue store = self.walk.store
        return not self.lost and store.msgs - self.all_msgs == store.last_seq - self.up_to

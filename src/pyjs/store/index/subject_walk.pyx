"""The subjects that match a filter, found and returned in steps while the store changes.

Each pattern is looked up in the trie of subjects, with a bounded number of lookups. A pattern that needs more lookups
is broad: `look` compares every subject with it, some subjects in each call. The walk stores each subject's id and
generation (a reused id has a new generation), so a subject that loses its last message meanwhile is left out. This
module knows nothing of its callers.

Compiled, because a stream may have millions of subjects (measured in benchmarks/: scaling, subjects).
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free, malloc

from pyjs.base.grow cimport grow
from pyjs.store.index.subject_trie cimport Matches, matches_up_to
from pyjs.store.index.subjects cimport SubjectTable, subject_by_id, subject_matches

cdef enum:
    LOOKS = 8192    # lookups for one pattern in the trie; each is a cache miss, all of them take half a millisecond


cdef class SubjectWalk:
    def __init__(self, Catalogue store not None, StoreFilter f not None):
        self.store = store
        self.wanted = f
        if store.subjects.is_every(f):
            self.total = store.subjects.table.table.used
            self.end = store.subjects.table.n_ids
            self.found_all = True
            return
        self.look_end = store.subjects.table.n_ids
        self.known = <uint8_t*> calloc(self.look_end // 8 + 1, 1)
        self.broad = <size_t*> malloc(f.n * sizeof(size_t))
        if self.known == NULL or self.broad == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.ids)
        free(self.broad)
        free(self.known)

    def look(self, size_t limit) -> bool:
        """Compare about `limit` more subjects with the filter; return whether all matches are found.

        Call this until it returns True, before `take`. Raises MemoryError.
        """
        cdef SubjectTable* t = &self.store.subjects.table
        cdef Subject* s
        cdef size_t work = 0
        while not self.found_all and work < limit:
            if self.pattern_at < self.wanted.n:
                work += self.collect(self.pattern_at)
                self.pattern_at += 1
            elif self.n_broad and self.looked_at < self.look_end:
                # there are no ids after the store is closed
                s = subject_by_id(t, self.looked_at) if self.looked_at < t.n_ids else NULL
                if s != NULL and self.matches_broad(s):
                    self.remember(s)
                self.looked_at += 1
                work += 1 if self.wanted.tree.n else self.n_broad
            else:
                self.found_all = True
        return self.found_all

    cdef size_t collect(self, size_t k) except 0:
        """Store the subjects that match pattern `k`, or mark the pattern as broad; return the number of lookups."""
        cdef Matches found = matches_up_to(LOOKS)
        cdef size_t i
        found.looks_left = LOOKS
        try:
            if self.store.subjects.collect_one(self.wanted, k, &found) == 0:
                for i in range(found.n):
                    self.remember(found.items[i])
            else:
                self.broad[self.n_broad] = k
                self.n_broad += 1
        finally:
            free(found.items)
        return 1 + LOOKS - found.looks_left

    cdef bint matches_broad(self, Subject* s) noexcept nogil:
        cdef size_t i, k
        if self.wanted.tree.n:      # finds the matches of the other patterns too, which are known already
            return self.wanted.matches_name(s)
        for i in range(self.n_broad):
            k = self.broad[i]
            if subject_matches(self.wanted.patterns[k], self.wanted.lengths[k], s.name, s.len):
                return True
        return False

    cdef int remember(self, Subject* s) except -1:
        """Add a subject, unless it was added already, or was created after the walk began."""
        cdef uint8_t bit = 1 << (s.id & 7)
        if s.id >= self.look_end or self.known[s.id >> 3] & bit:
            return 0
        if grow(<void**> &self.ids, &self.room, self.total + 1, 2 * sizeof(uint32_t)) != 0:
            raise MemoryError
        self.known[s.id >> 3] |= bit
        self.ids[2 * self.total] = s.id
        self.ids[2 * self.total + 1] = s.gen
        self.total += 1
        self.end = self.total
        return 0

    def skip(self, size_t count) -> None:
        """Skip the next `count` subjects."""
        while count and self.next() != NULL:
            count -= 1

    def take(self, size_t count) -> dict:
        """Return a map from the names of the next `count` subjects that still exist to their numbers of messages."""
        cdef dict counts = {}
        cdef Subject* s
        while count:
            s = self.next()
            if s == NULL:
                break
            counts[PyBytes_FromStringAndSize(s.name, s.len)] = s.count
            count -= 1
        return counts

    cdef Subject* next(self) noexcept nogil:
        """Return the next matching subject that still has messages, or NULL if there is none."""
        cdef SubjectTable* t = &self.store.subjects.table
        cdef Subject* s
        cdef uint32_t id
        while self.at < self.end:
            id = <uint32_t> self.at if self.ids == NULL else self.ids[2 * self.at]
            s = subject_by_id(t, id) if id < t.n_ids else NULL        # there are no ids after the store is closed
            self.at += 1
            if s != NULL and (self.ids == NULL or s.gen == self.ids[2 * self.at - 1]):
                return s
        return NULL

    @property
    def done(self) -> bool:
        """Whether all matching subjects were returned or skipped."""
        return self.at >= self.end

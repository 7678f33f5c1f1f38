"""A set of subject filters over one store, with the cached results of its searches.

A filter uses a bounded amount of memory, however many subjects there are, since ten thousand consumers may each have
a filter. This module knows nothing of the position of messages; catalogue.pyx does the searches.

Compiled, because a search asks the filter about each message (measured in benchmarks/: pull 500).
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport calloc, free, malloc

from pyjs.store.index.filter_tree cimport filter_tree_add, filter_tree_fit, filter_tree_free, filter_tree_matches
from pyjs.store.index.subjects cimport subject_by_id, subject_matches

cdef enum:
    VERDICTS = 2048             # number of cached results; a power of two
    FEW_PATTERNS = 4            # up to this many patterns are compared one by one


def is_wildcard(bytes subject) -> bool:
    """Return whether `subject` has a `*` or `>` token."""
    return b"*" in subject.split(b".") or subject == b">" or subject.endswith(b".>")


cdef class StoreFilter:
    def __cinit__(self, subjects):
        cdef size_t i
        self.subjects = tuple(subjects)
        self.n = len(self.subjects)
        self.all = self.n == 0 or b">" in self.subjects
        self.patterns = <const char**> malloc(self.n * sizeof(char*) + 1)
        self.lengths = <size_t*> malloc(self.n * sizeof(size_t) + 1)
        self.wild = <char*> malloc(self.n + 1)
        if self.patterns == NULL or self.lengths == NULL or self.wild == NULL:
            raise MemoryError
        for i in range(self.n):
            self.patterns[i] = PyBytes_AS_STRING(self.subjects[i])
            self.lengths[i] = len(self.subjects[i])
            self.wild[i] = is_wildcard(self.subjects[i])
        self.literal = self.n == 1 and not self.wild[0]
        if self.n > FEW_PATTERNS and not self.all:
            for i in range(self.n):
                if filter_tree_add(&self.tree, self.patterns[i], self.lengths[i]) != 0:
                    raise MemoryError
            if filter_tree_fit(&self.tree) != 0:
                raise MemoryError

    def __dealloc__(self):
        filter_tree_free(&self.tree)
        free(self.patterns)
        free(self.lengths)
        free(self.wild)
        free(self.verdicts)
        free(self.ahead)

    cdef bint matches(self, SubjectTable* t, uint32_t id) noexcept nogil:
        cdef Subject* s
        cdef uint32_t* verdict
        if self.all:
            return 1
        s = subject_by_id(t, id)
        if self.verdicts == NULL:
            self.verdicts = <uint32_t*> calloc(VERDICTS, sizeof(uint32_t))
            if self.verdicts == NULL:
                return self.matches_name(s)
        verdict = &self.verdicts[id & (VERDICTS - 1)]
        if verdict[0] >> 1 != s.gen:
            verdict[0] = s.gen * 2 + self.matches_name(s)
        return verdict[0] & 1

    cdef bint matches_name(self, Subject* s) noexcept nogil:
        cdef size_t i
        if self.tree.n:
            return filter_tree_matches(&self.tree, s.name, s.len)
        for i in range(self.n):
            if subject_matches(self.patterns[i], self.lengths[i], s.name, s.len):
                return 1
        return 0

    cdef void forget_ahead(self) noexcept nogil:
        free(self.ahead)
        self.ahead = NULL
        self.n_ahead = self.ahead_at = 0
        self.ahead_from = self.ahead_to = 0

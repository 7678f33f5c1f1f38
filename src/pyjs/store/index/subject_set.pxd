"""The subjects of one store by name, by id and by their tokens."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.sequences cimport SeqIndex
from pyjs.store.index.dropped cimport Remains
from pyjs.store.index.subject_trie cimport Matches, SubjectIndex
from pyjs.store.index.subjects cimport Subject, SubjectTable

cdef enum:
    LOOKS = 8192                # lookups in the trie, each of them a cache miss, that take half a millisecond

cdef class SubjectSet:
    """Every subject with live messages, and the search for the subjects that match a filter."""
    cdef SubjectTable table
    cdef SubjectIndex* by_token         # the trie of tokens; NULL: no search needed it yet
    cdef uint32_t known_tokens          # all ids below this are in by_token

    cdef int add_tokens(self, Subject* s) noexcept nogil
    cdef void remove(self, Subject* s) noexcept nogil       # `s` must have no messages; its id may be used again
    cdef void clear(self) noexcept nogil
    cdef int know_tokens(self, uint32_t more) noexcept nogil
    cdef void forget_tokens(self) noexcept nogil
    cdef bint is_every(self, StoreFilter f) noexcept nogil
    cdef int collect_soon(self, StoreFilter f, size_t most, Matches* out) noexcept nogil
    cdef int collect(self, StoreFilter f, Matches* out) noexcept nogil
    cdef int collect_few(self, StoreFilter f, Matches* out) noexcept nogil
    cdef int collect_every(self, StoreFilter f, Matches* out) noexcept nogil
    cdef int keep_new(self, uint8_t** known, size_t start, Matches* out) noexcept nogil
    cdef int collect_one(self, StoreFilter f, size_t k, Matches* out) noexcept nogil
    cdef bint learn(self, StoreFilter f, uint32_t limit) noexcept nogil
    cdef int renew(self, SeqIndex* index, uint64_t seq, Remains remains) noexcept nogil
    cdef void hand_over(self, Remains remains) except *

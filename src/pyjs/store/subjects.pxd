"""The subjects of one store: a small number for each, its live count, its first and last sequence."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.base.table cimport Table

cdef struct Subject:
    uint64_t count              # live messages, >= 1 while the subject is in the table
    uint64_t first              # sequence of its first live message, unless first_stale: then a lower bound
    uint64_t last               # sequence of its last live message, unless last_stale: then an upper bound
    char* name
    uint32_t len
    uint32_t id                 # index in by_id; used again after the subject has no messages left
    uint32_t gen                # never used again: tells an id from an earlier owner of the same id
    bint first_stale
    bint last_stale

cdef struct SubjectTable:
    Table table                 # name -> Subject*
    Subject** by_id             # NULL: free
    uint32_t* free_ids
    uint32_t n_ids              # ids ever used
    uint32_t n_free
    uint32_t cap
    uint32_t last_gen

cdef int subjects_init(SubjectTable* t) except -1 nogil
cdef void subjects_free(SubjectTable* t) noexcept nogil
cdef void subjects_clear(SubjectTable* t) noexcept nogil            # no subjects left; generations go on
cdef Subject* subjects_find(SubjectTable* t, const char* name, size_t n) noexcept nogil     # NULL: absent
# The subject, made with count 0 if absent; NULL: no memory.
cdef Subject* subjects_add(SubjectTable* t, const char* name, size_t n) noexcept nogil
cdef void subjects_remove(SubjectTable* t, Subject* s) noexcept nogil
cdef bint subject_matches(const char* pattern, size_t pn, const char* subject, size_t sn) noexcept nogil

"""A trie of the tokens of a store's subjects, for filters with wildcards."""
from libc.stdint cimport uint32_t

from pyjs.base.ref_table cimport RefTable
from pyjs.store.index.subjects cimport Subject, SubjectTable

cdef struct Branch:             # a node at which subjects that begin with the same tokens differ
    RefTable children    # token -> LEAF | id of the only subject that continues with it, or the number of a branch
    uint32_t number
    uint32_t parent             # number of the parent branch; 0 for the root
    uint32_t here               # 1 + id of the subject that ends at this branch; 0: none
    uint32_t begin              # offset in a subject of the tokens that distinguish the children
    uint32_t at                 # in the running search: the next child to visit
    uint32_t pattern_at         # in the running search: the position in its pattern
    uint32_t token_size
    char[4] token               # the token that leads from the parent to this branch; extends beyond the struct

cdef struct SubjectIndex:
    SubjectTable* subjects
    Branch** branches           # [0] is the root; a free slot has 2 * (number of the next free slot) + 1
    uint32_t n
    size_t room
    uint32_t free               # number of a free branch, 0: none

cdef struct Matches:            # an array that grows; the caller must free `items`
    Subject** items             # valid until a subject is added
    size_t n
    size_t cap
    size_t max                  # maximum number of subjects to collect
    size_t looks_left           # maximum number of branches and subjects of the trie that may still be visited

cdef SubjectIndex* subject_index_new(SubjectTable* subjects) noexcept nogil     # NULL: out of memory
cdef void subject_index_free(SubjectIndex* x) noexcept nogil    # free the trie, but not the store's subjects
cdef int subject_index_add(SubjectIndex* x, Subject* s) noexcept nogil          # -1: out of memory
# must be called before the subject is removed from the table
cdef void subject_index_remove(SubjectIndex* x, Subject* s) noexcept nogil
# Collect the matching subjects. Return 0, or -1: out of memory, more than `max` match, or `looks_left` is used up.
cdef int subject_index_collect(SubjectIndex* x, const char* pattern, size_t n, Matches* out) noexcept nogil
cdef Matches matches_up_to(size_t most) noexcept nogil      # an empty list with room for `most` subjects
cdef int matches_push(Matches* m, Subject* s) noexcept nogil
# Return whether a pattern with wildcards matches every subject, as far as the tokens common to all show it.
cdef bint subject_index_is_every(SubjectIndex* x, const char* pattern, size_t n) noexcept nogil

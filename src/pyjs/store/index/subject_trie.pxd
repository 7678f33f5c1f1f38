"""A trie of the tokens of a store's subjects, for filters with wildcards."""
from libc.stdint cimport uint32_t

from pyjs.base.ref_table cimport RefTable
from pyjs.store.index.subjects cimport Subject, SubjectTable

cdef struct Branch:             # a node under which subjects with the same first tokens continue
    RefTable children           # token -> LEAF | id of the only subject that goes on with it, or number of a branch
    uint32_t number
    uint32_t parent             # number of the branch above; of the root: 0
    uint32_t here               # 1 + id of the subject that ends where others go on; 0: none does
    uint32_t begin              # where in a subject the tokens begin that tell the children apart
    uint32_t at                 # of the search that is under way: the next child
    uint32_t pattern_at         # and the place in its pattern
    uint32_t token_size
    char[4] token               # and on, after the struct: the token from the parent to here

cdef struct SubjectIndex:
    SubjectTable* subjects
    Branch** branches           # [0] is the root; those that are free: 2 * number of the next free one + 1
    uint32_t n
    size_t room
    uint32_t free               # number of a free one, 0: there is none

cdef struct Matches:            # a growing list; the caller frees `items`
    Subject** items             # valid until a subject is added
    size_t n
    size_t cap
    size_t max                  # collect no more than these
    size_t looks_left           # visit no more than these branches and subjects of the trie

cdef SubjectIndex* subject_index_new(SubjectTable* subjects) noexcept nogil     # NULL: no memory
cdef void subject_index_free(SubjectIndex* x) noexcept nogil        # subjects are the store's
cdef int subject_index_add(SubjectIndex* x, Subject* s) noexcept nogil          # -1: no memory
cdef void subject_index_remove(SubjectIndex* x, Subject* s) noexcept nogil      # before the table does
# Add the subjects that match; 0, -1: no memory, more than `max`, or no looks left.
cdef int subject_index_collect(SubjectIndex* x, const char* pattern, size_t n, Matches* out) noexcept nogil
cdef Matches matches_up_to(size_t most) noexcept nogil      # an empty list for `most` subjects
cdef int matches_push(Matches* m, Subject* s) noexcept nogil
# Return whether a pattern with wildcards matches every subject, as far as their common first tokens show it.
cdef bint subject_index_is_every(SubjectIndex* x, const char* pattern, size_t n) noexcept nogil

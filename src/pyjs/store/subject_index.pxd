"""The subjects of one store as a trie of their tokens: which of them match a filter."""
from pyjs.base.table cimport Table
from pyjs.store.subjects cimport Subject

cdef struct Branch:             # where subjects go on that begin alike
    Table children              # token -> Branch*, or a Subject* whose lowest bit is set: it ends with that token
    Subject* here               # the one that ends where others go on; NULL: none does

cdef struct Matches:            # a growing list; whoever collects frees `items`
    Subject** items             # valid as long as the store's subjects are
    size_t n
    size_t cap
    size_t max                  # collect no more than these

cdef Branch* branch_new() noexcept nogil                            # NULL: no memory
cdef void branch_free(Branch* b) noexcept nogil                     # and all below; subjects are the store's
cdef int branch_add(Branch* root, Subject* s) noexcept nogil        # -1: no memory
cdef void branch_remove(Branch* root, Subject* s) noexcept nogil
# Add the subjects that match; 0, -1: no memory, or more than `max`.
cdef int branch_collect(Branch* b, const char* pattern, size_t n, Matches* out) noexcept nogil
cdef int matches_push(Matches* m, Subject* s) noexcept nogil

"""A tree of the tokens of many filters, which shows whether any of the filters matches a subject."""
from libc.stdint cimport uint32_t

from pyjs.base.ref_table cimport RefTable

cdef struct FilterNode:         # the beginning of one or more filters
    const char* token           # its last token, borrowed from a filter
    size_t size
    uint32_t parent
    uint32_t star               # the node that continues it with `*`; 0: none
    bint ends                   # a filter ends here
    bint rest                   # a filter continues with `>`

cdef struct Place:              # a node, and the offset of the token of the subject that follows it
    uint32_t node
    size_t at

cdef struct FilterTree:         # an empty tree is all zero
    FilterNode* nodes           # [0] is the root
    size_t room
    uint32_t n
    RefTable children           # (parent, literal token) -> number of the node
    Place* stack                # of the running match: the places not visited yet, at most one for each token
    size_t depth                # maximum number of tokens of a filter

cdef int filter_tree_add(FilterTree* x, const char* pattern, size_t n) noexcept nogil   # -1: no memory
cdef int filter_tree_fit(FilterTree* x) noexcept nogil    # must be called after the last `add`; -1: no memory
cdef void filter_tree_free(FilterTree* x) noexcept nogil
cdef bint filter_tree_matches(FilterTree* x, const char* subject, size_t n) noexcept nogil

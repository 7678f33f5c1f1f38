"""Hash table of 32-bit references: eight bytes an entry; keys are stored with the referenced objects."""
from libc.stdint cimport uint32_t

cdef struct RefSlot:
    uint32_t tag                # a part of the key's hash, which distinguishes most keys without reading them
    uint32_t ref                # set by the user, never 0; 0: empty

cdef struct RefTable:           # all zero: an empty table
    RefSlot* slots              # NULL: no entries so far
    uint32_t mask               # slots - 1; the number of slots is a power of two. 0 while `slots` is NULL
    uint32_t used

cdef int ref_put(RefTable* t, uint32_t tag, uint32_t ref) noexcept nogil    # the key must be absent; -1: no memory
cdef void ref_remove(RefTable* t, uint32_t at) noexcept nogil       # the entry in slot `at`; others may move
cdef void ref_fit(RefTable* t) noexcept nogil                       # release memory when few entries are left
cdef void ref_free(RefTable* t) noexcept nogil                      # free the memory; the table is empty again

# A search starts at slot tag & mask. The caller compares the key of each hit, and continues one slot after
# the hit.
cdef inline uint32_t ref_search(RefTable* t, uint32_t tag, uint32_t* at) noexcept nogil:
    """Return the next reference with this tag at or after slot `at`, and its slot, or 0 if there are no more."""
    if t.slots == NULL:
        return 0
    while t.slots[at[0]].ref:
        if t.slots[at[0]].tag == tag:
            return t.slots[at[0]].ref
        at[0] = (at[0] + 1) & t.mask
    return 0

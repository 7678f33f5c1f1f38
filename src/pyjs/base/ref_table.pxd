"""Hash table of 32-bit references: eight bytes per entry; the keys are stored in the referenced objects."""
from libc.stdint cimport uint32_t

cdef struct RefSlot:
    uint32_t tag                # 32 bits of the key's hash, which distinguish most keys without reading them
    uint32_t ref                # chosen by the user, never 0; 0: the slot is empty

cdef struct RefTable:           # an empty table is all zero
    RefSlot* slots              # NULL: no entry was added yet
    uint32_t mask               # slots - 1; the number of slots is a power of two. 0 while `slots` is NULL
    uint32_t used

# The key must be absent. Return -1 if out of memory.
cdef int ref_put(RefTable* t, uint32_t tag, uint32_t ref) noexcept nogil
cdef void ref_remove(RefTable* t, uint32_t at) noexcept nogil  # remove the entry in slot `at`; other entries may move
cdef void ref_fit(RefTable* t) noexcept nogil                       # release memory if few entries are left
cdef void ref_free(RefTable* t) noexcept nogil                      # free the memory; the table is then empty

# A search starts at slot tag & mask. The caller compares the key of each hit, and continues in the slot after
# the hit.
cdef inline uint32_t ref_search(RefTable* t, uint32_t tag, uint32_t* at) noexcept nogil:
    """Return the next reference with `tag` in slot `at` or later, and set `at` to its slot; else return 0."""
    if t.slots == NULL:
        return 0
    while t.slots[at[0]].ref:
        if t.slots[at[0]].tag == tag:
            return t.slots[at[0]].ref
        at[0] = (at[0] + 1) & t.mask
    return 0

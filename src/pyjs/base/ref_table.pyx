"""Hash table of 32-bit references to objects of the caller.

Open addressing with linear probing, at most 4/5 full; a removal closes the gap, so there are no markers of removed
entries. An entry is a reference and 32 bits of its key's hash; these bits also determine its slot, so the table grows
without reading keys. This module knows nothing of keys; the caller compares them (ref_search).

Compiled, because every append looks up its subject here (measured in benchmarks/: jspub-150k).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free

cdef enum:
    SLOTS_MIN = 2
    SLOTS_MAX = 1 << 30


cdef int resize(RefTable* t, uint32_t slots) noexcept nogil:
    """Move the entries to a table with `slots` slots (a power of two above `used`); return -1 if out of memory."""
    cdef RefSlot* before = t.slots
    cdef uint32_t i, at, mask = slots - 1
    cdef RefSlot* moved = <RefSlot*> calloc(slots, sizeof(RefSlot))
    if moved == NULL:
        return -1
    for i in range(t.mask + 1 if before != NULL else 0):
        if before[i].ref:
            at = before[i].tag & mask
            while moved[at].ref:
                at = (at + 1) & mask
            moved[at] = before[i]
    free(before)
    t.slots = moved
    t.mask = mask
    return 0


cdef int ref_put(RefTable* t, uint32_t tag, uint32_t ref) noexcept nogil:
    cdef uint32_t at, slots = t.mask + 1 if t.slots != NULL else 0
    if (<size_t> t.used + 1) * 5 > <size_t> slots * 4:
        if slots >= SLOTS_MAX or resize(t, slots * 2 if slots else SLOTS_MIN) != 0:
            return -1
    at = tag & t.mask
    while t.slots[at].ref:
        at = (at + 1) & t.mask
    t.slots[at].tag = tag
    t.slots[at].ref = ref
    t.used += 1
    return 0


cdef void ref_remove(RefTable* t, uint32_t at) noexcept nogil:
    cdef uint32_t gap = at, home
    while True:
        at = (at + 1) & t.mask
        if t.slots[at].ref == 0:
            break
        home = t.slots[at].tag & t.mask
        if ((at - home) & t.mask) >= ((at - gap) & t.mask):
            t.slots[gap] = t.slots[at]
            gap = at
    t.slots[gap].tag = t.slots[gap].ref = 0
    t.used -= 1


cdef void ref_fit(RefTable* t) noexcept nogil:
    if t.mask > 7 and t.used <= t.mask >> 3:
        resize(t, (t.mask + 1) >> 2)        # if out of memory, the size does not change


cdef void ref_free(RefTable* t) noexcept nogil:
    free(t.slots)
    t.slots = NULL
    t.mask = t.used = 0

"""Hash table from byte strings to pointers.

Open addressing with linear probing, at most 3/4 full. Keys are copied; values are borrowed pointers, which the caller
must keep alive. This module knows nothing of its values. Clients choose keys, so the slot of a key depends on two
secrets of the process; otherwise a client could send colliding keys, which would make each lookup a linear search.
Compiled, because every message looks up its route here (measured in benchmarks/: core publish, 1-1).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from pyjs.base.fast cimport hash_bytes

HASH_SEED_SIZE = 2 * sizeof(uint64_t)

# The secrets belong to the process, not to a node: the message path hashes keys without a node.
# See set_hash_seed.
cdef uint64_t s0 = 0xC6668D9433DF0338u, s1 = 0xC2B2AE3D27D4EB4Fu
cdef bint seeded = False        # True: a key was hashed, so the secrets can no longer change


def set_hash_seed(bytes seed) -> bool:
    """Use `seed`, 16 random bytes, for the hash secrets of all tables of the process; return whether it is used.

    Only the first call has an effect, and only before the first key is hashed. Without such a call, the secrets are
    the same in every process.
    """
    global s0, s1, seeded
    assert len(seed) == HASH_SEED_SIZE
    if seeded:
        return False
    memcpy(&s0, <const char*> seed, sizeof(uint64_t))
    memcpy(&s1, <const char*> seed + sizeof(uint64_t), sizeof(uint64_t))
    seeded = True
    return True


cdef inline uint64_t hash_of(const char* key, size_t n) noexcept nogil:
    global seeded
    seeded = True
    return hash_bytes(key, n, s0, s1) | 1


cdef uint64_t table_hash(const char* key, size_t n) noexcept nogil:
    return hash_of(key, n)


cdef int table_init(Table* t, size_t capacity) except -1 nogil:
    cdef size_t size = 2
    while size * 3 < capacity * 4:
        size *= 2
    t.slots = <Slot*> calloc(size, sizeof(Slot))
    if t.slots == NULL:
        with gil:
            raise MemoryError
    t.mask = size - 1
    t.used = 0
    t.filled = 0
    return 0


cdef void table_free(Table* t) noexcept nogil:
    cdef size_t i
    if t.slots == NULL:
        return
    for i in range(t.mask + 1):
        free(t.slots[i].key)
    free(t.slots)
    t.slots = NULL
    t.used = t.filled = 0


cdef void* table_get(Table* t, const char* key, size_t n) noexcept nogil:
    return table_get_hashed(t, hash_of(key, n), key, n)


cdef void* table_get_hashed(Table* t, uint64_t h, const char* key, size_t n) noexcept nogil:
    cdef size_t i = (h >> 7) & t.mask
    cdef Slot* slot = &t.slots[i]
    while slot.hash:
        if slot.hash == h and slot.key != NULL and slot.key_len == n and memcmp(slot.key, key, n) == 0:
            return slot.value
        i = (i + 1) & t.mask
        slot = &t.slots[i]
    return NULL


cdef int table_grow(Table* t) except -1 nogil:
    cdef Table bigger
    cdef size_t i, at
    table_init(&bigger, t.used * 2 + (8 if t.used > 2 else 2))
    for i in range(t.mask + 1):
        if t.slots[i].hash and t.slots[i].key != NULL:
            at = (t.slots[i].hash >> 7) & bigger.mask
            while bigger.slots[at].hash:
                at = (at + 1) & bigger.mask
            bigger.slots[at] = t.slots[i]
    bigger.used = bigger.filled = t.used
    free(t.slots)
    t[0] = bigger
    return 0


cdef int table_put(Table* t, const char* key, size_t n, void* value) except -1 nogil:
    cdef uint64_t h = hash_of(key, n)
    cdef size_t i
    cdef Slot* slot
    cdef char* copy
    if (t.filled + 1) * 4 > (t.mask + 1) * 3:
        table_grow(t)
    i = (h >> 7) & t.mask
    slot = &t.slots[i]
    while slot.hash:
        if slot.hash == h and slot.key != NULL and slot.key_len == n and memcmp(slot.key, key, n) == 0:
            slot.value = value
            return 0
        i = (i + 1) & t.mask
        slot = &t.slots[i]
    copy = <char*> malloc(n + 1)
    if copy == NULL:
        with gil:
            raise MemoryError
    memcpy(copy, key, n)
    copy[n] = 0
    slot.hash = h
    slot.key = copy
    slot.key_len = <uint32_t> n
    slot.value = value
    t.used += 1
    t.filled += 1
    return 0


cdef void* table_remove(Table* t, const char* key, size_t n) noexcept nogil:
    cdef uint64_t h = hash_of(key, n)
    cdef size_t i = (h >> 7) & t.mask
    cdef Slot* slot = &t.slots[i]
    while slot.hash:
        if slot.hash == h and slot.key != NULL and slot.key_len == n and memcmp(slot.key, key, n) == 0:
            free(slot.key)
            slot.key = NULL
            t.used -= 1
            return slot.value
        i = (i + 1) & t.mask
        slot = &t.slots[i]
    return NULL


cdef size_t table_next(Table* t, size_t at) noexcept nogil:
    while at <= t.mask and (t.slots[at].hash == 0 or t.slots[at].key == NULL):
        at += 1
    return at


cdef void table_fit(Table* t) noexcept nogil:
    if t.mask < 64 or t.used * 8 > t.mask:
        return
    with gil:
        try:
            table_grow(t)       # to twice the number of entries
        except MemoryError:
            pass                # if out of memory, the size does not change

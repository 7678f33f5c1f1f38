"""The subjects of one store.

This module knows nothing of files, records or consumers. Each subject with live messages has a small id (used again
after the subject is removed) and a generation (never used again), so that a filter can cache its result per id. The
first and last sequence are updated lazily: when the first or the last message is dropped, its sequence is only marked
as stale, and the next query searches for the new one.

A stream may have millions of subjects, so each is one block of 40 bytes plus its name. Blocks are written to
chunks one after another; 31 bits address a block. A chunk without live blocks is freed. When a new chunk
begins, the live blocks of all chunks that are less than a quarter full move to it; so blocks move only when a
subject is added.

Compiled, because it runs for every append, to look up the subject (measured in benchmarks/: jspub-150k).
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from pyjs.base.grow cimport grow, grow_by_half
from pyjs.base.ref_table cimport ref_fit, ref_free, ref_put, ref_remove, ref_search
from pyjs.base.table cimport table_hash

cdef enum:
    CHUNK_MIN = 256             # bytes; a new chunk is as large as all live blocks together, up to CHUNK_MAX
    CHUNK_MAX = 1 << 20         # bytes; a reference cannot address more in a chunk
    CHUNKS_MAX = 1 << 14
    FIRST_USED = 8              # offset of the first block, so that no reference is 0
    NAME_MAX = 65535
    GENERATIONS = 0x7fffffff
    NO_ID = 0x7fffffff
# a bit of an item in `refs`: the id is free, and the other bits are the next free id
cdef uint32_t FREE = 0x80000000u


cdef void subjects_init(SubjectTable* t) noexcept nogil:
    memset(t, 0, sizeof(SubjectTable))
    t.free_id = NO_ID


cdef void subjects_clear(SubjectTable* t) noexcept nogil:
    cdef uint32_t gen = t.last_gen
    subjects_free(t)
    t.last_gen = gen


cdef void subjects_free(SubjectTable* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n_chunks):
        free(t.chunks[i].base)
    free(t.chunks)
    free(t.refs)
    ref_free(&t.table)
    subjects_init(t)


# -- memory ----------------------------------------------------------------------------------------------------

cdef inline uint32_t block_size(size_t name_size) noexcept nogil:
    return <uint32_t> ((sizeof(Subject) - 4 + name_size + 1 + 7) & ~<size_t> 7)


cdef inline uint32_t tag_of(const char* name, size_t n) noexcept nogil:
    return <uint32_t> (table_hash(name, n) >> 32)


cdef int number_for_chunk(SubjectTable* t) noexcept nogil:
    """Return a free chunk number, or -1 if there is none or out of memory."""
    cdef uint32_t i
    for i in range(t.n_chunks):
        if t.chunks[i].base == NULL:
            return i
    if t.n_chunks == CHUNKS_MAX or grow(<void**> &t.chunks, &t.chunks_room, t.n_chunks + 1, sizeof(Chunk)) != 0:
        return -1
    t.n_chunks += 1
    t.chunks[t.n_chunks - 1].base = NULL
    return t.n_chunks - 1


cdef int begin_chunk(SubjectTable* t, uint32_t n) noexcept nogil:
    """Begin a chunk with room for at least `n` bytes, and move the blocks of sparse chunks to it.

    Return -1 if out of memory.
    """
    cdef uint32_t size = CHUNK_MIN, i
    cdef int number = number_for_chunk(t)
    cdef Chunk* c
    if number < 0:
        return -1
    while size < n + FIRST_USED or (size < t.live and size < CHUNK_MAX):
        size *= 2
    c = &t.chunks[number]
    c.base = <char*> malloc(size)
    if c.base == NULL:
        return -1
    c.size, c.used, c.live = size, FIRST_USED, 0
    t.filling = number
    for i in range(t.n_chunks):
        if <int> i != number and t.chunks[i].base != NULL and t.chunks[i].live < t.chunks[i].size >> 2 \
                and c.used + t.chunks[i].live + n <= c.size:
            empty_chunk(t, i)
    return 0


cdef void empty_chunk(SubjectTable* t, uint32_t number) noexcept nogil:
    """Move the live blocks of a chunk to the current chunk, which must have room, and free the chunk."""
    cdef Chunk* c = &t.chunks[number]
    cdef Chunk* to = &t.chunks[t.filling]
    cdef uint32_t at = FIRST_USED, slot, tag, ref, size
    cdef Subject* s
    while at < c.used:
        s = <Subject*> (c.base + at)
        size = block_size(s.len)
        if s.gen:
            tag = tag_of(s.name, s.len)
            slot = tag & t.table.mask
            ref = t.refs[s.id]
            while t.table.slots[slot].ref != ref:
                slot = (slot + 1) & t.table.mask
            memcpy(to.base + to.used, s, size)
            ref = (t.filling << UNIT_BITS) | (to.used >> 3)
            t.table.slots[slot].ref = ref
            t.refs[s.id] = ref
            to.used += size
            to.live += size
        at += size
    free(c.base)
    c.base = NULL


cdef bint more_ids(SubjectTable* t) noexcept nogil:
    """Make room for one more id; return False if there are too many or out of memory."""
    return t.n_ids + 1 < NO_ID and grow_by_half(<void**> &t.refs, &t.ids_room, t.n_ids + 1, sizeof(uint32_t)) == 0


# -- subjects --------------------------------------------------------------------------------------------------

cdef inline Subject* find(SubjectTable* t, uint32_t tag, const char* name, size_t n, uint32_t* slot) noexcept nogil:
    cdef Subject* s
    cdef uint32_t ref
    slot[0] = tag & t.table.mask
    ref = ref_search(&t.table, tag, slot)
    while ref:
        s = subject_at(t, ref)
        if s.len == n and memcmp(s.name, name, n) == 0:
            return s
        slot[0] = (slot[0] + 1) & t.table.mask
        ref = ref_search(&t.table, tag, slot)
    return NULL


cdef Subject* subjects_find(SubjectTable* t, const char* name, size_t n) noexcept nogil:
    cdef uint32_t slot = 0
    return find(t, tag_of(name, n), name, n, &slot)


cdef Subject* subjects_add(SubjectTable* t, const char* name, size_t n) noexcept nogil:
    cdef uint32_t slot = 0, tag = tag_of(name, n), size, ref
    cdef Subject* s = find(t, tag, name, n, &slot)
    cdef Chunk* c
    if s != NULL or n > NAME_MAX:
        return s
    size = block_size(n)
    if t.free_id == NO_ID and not more_ids(t):
        return NULL
    if (t.n_chunks == 0 or t.chunks[t.filling].base == NULL
            or t.chunks[t.filling].used + size > t.chunks[t.filling].size) and begin_chunk(t, size) != 0:
        return NULL
    c = &t.chunks[t.filling]
    ref = (t.filling << UNIT_BITS) | (c.used >> 3)
    if ref_put(&t.table, tag, ref) != 0:
        return NULL
    s = <Subject*> (c.base + c.used)
    c.used += size
    c.live += size
    t.live += size
    memset(s, 0, sizeof(Subject))
    memcpy(s.name, name, n)
    s.name[n] = 0
    s.len = <uint16_t> n
    s.id = take_id(t)
    t.refs[s.id] = ref
    t.last_gen = t.last_gen + 1 if t.last_gen < GENERATIONS else 1
    s.gen = t.last_gen
    return s


cdef uint32_t take_id(SubjectTable* t) noexcept nogil:
    """Return a free id; `more_ids` must have been called before."""
    cdef uint32_t id = t.free_id
    if id == NO_ID:
        id = t.n_ids
        t.n_ids += 1
    else:
        t.free_id = t.refs[id] & ~FREE
    return id


cdef void subjects_remove(SubjectTable* t, Subject* s) noexcept nogil:
    cdef uint32_t slot = 0, ref = t.refs[s.id]
    cdef Chunk* c = &t.chunks[ref >> UNIT_BITS]
    find(t, tag_of(s.name, s.len), s.name, s.len, &slot)
    ref_remove(&t.table, slot)
    ref_fit(&t.table)
    t.refs[s.id] = FREE | t.free_id
    t.free_id = s.id
    s.gen = 0
    c.live -= block_size(s.len)
    t.live -= block_size(s.len)
    if c.live:
        return
    if c.size <= CHUNK_MIN and ref >> UNIT_BITS == t.filling:
        c.used = FIRST_USED
        return
    free(c.base)
    c.base = NULL


cdef bint subject_matches(const char* pattern, size_t pn, const char* subject, size_t sn) noexcept nogil:
    cdef size_t i = 0, j = 0, a, b
    while True:
        if i + 1 == pn and pattern[i] == b'>':
            return j < sn
        a = i
        while a < pn and pattern[a] != b'.':
            a += 1
        b = j
        while b < sn and subject[b] != b'.':
            b += 1
        if not (a - i == 1 and pattern[i] == b'*'):
            if a - i != b - j or memcmp(pattern + i, subject + j, a - i) != 0:
                return 0
        if a == pn or b == sn:
            return a == pn and b == sn
        i = a + 1
        j = b + 1

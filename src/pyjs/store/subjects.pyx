"""The subjects of one store.

Knows nothing of files, records or consumers. Each subject with live messages has a small id (array index, used
again when the subject is gone) and a generation (never used again), so that a filter can remember its verdict
per id. First and last are maintained lazily: dropping the first or last message of a subject only marks it
stale, and the store searches when somebody asks.

Compiled because every append looks its subject up here (benchmarks/: jspub-150k).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.base.table cimport table_free, table_get, table_init, table_put, table_remove

SOURCE_HASH = PYJS_SOURCE_HASH


cdef int subjects_init(SubjectTable* t) except -1 nogil:
    memset(t, 0, sizeof(SubjectTable))
    return table_init(&t.table, 8)


cdef void subjects_clear(SubjectTable* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n_ids):
        if t.by_id[i] != NULL:
            subjects_remove(t, t.by_id[i])


cdef void subjects_free(SubjectTable* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n_ids):
        free(t.by_id[i])
    table_free(&t.table)
    free(t.by_id)
    free(t.free_ids)
    memset(t, 0, sizeof(SubjectTable))


cdef Subject* subjects_find(SubjectTable* t, const char* name, size_t n) noexcept nogil:
    return <Subject*> table_get(&t.table, name, n)


cdef bint more_ids(SubjectTable* t) noexcept nogil:
    """Double the room for ids; return 0 when there is no memory."""
    cdef uint32_t cap = t.cap * 2 if t.cap else 8
    cdef void* by_id = realloc(t.by_id, cap * sizeof(Subject*))
    if by_id == NULL:
        return 0
    t.by_id = <Subject**> by_id
    cdef void* free_ids = realloc(t.free_ids, cap * sizeof(uint32_t))
    if free_ids == NULL:
        return 0
    t.free_ids = <uint32_t*> free_ids
    t.cap = cap
    return 1


cdef Subject* subjects_add(SubjectTable* t, const char* name, size_t n) noexcept nogil:
    cdef Subject* s = <Subject*> table_get(&t.table, name, n)
    if s != NULL:
        return s
    if t.n_free == 0 and t.n_ids == t.cap and not more_ids(t):
        return NULL
    s = <Subject*> malloc(sizeof(Subject) + n + 1)
    if s == NULL:
        return NULL
    memset(s, 0, sizeof(Subject))
    s.name = <char*> s + sizeof(Subject)
    memcpy(s.name, name, n)
    s.name[n] = 0
    s.len = <uint32_t> n
    if t.n_free:
        t.n_free -= 1
        s.id = t.free_ids[t.n_free]
    else:
        s.id = t.n_ids
        t.n_ids += 1
    t.last_gen = (t.last_gen + 1) & 0x7fffffff
    s.gen = t.last_gen
    t.by_id[s.id] = s
    table_put(&t.table, name, n, s)
    return s


cdef void subjects_remove(SubjectTable* t, Subject* s) noexcept nogil:
    table_remove(&t.table, s.name, s.len)
    t.by_id[s.id] = NULL
    t.free_ids[t.n_free] = s.id
    t.n_free += 1
    free(s)


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

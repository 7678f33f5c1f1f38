"""The subjects of one store, each with an id, the number of its live messages, and its first and last sequence."""
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from pyjs.base.ref_table cimport RefTable

cdef enum:
    UNIT_BITS = 17              # low bits of a reference: the position in its chunk, in units of 8 bytes
    UNIT_MASK = 131071

cdef struct Subject:            # its address changes when a subject is added
    uint64_t count              # number of live messages; >= 1 while the subject is in the table
    uint64_t first              # sequence of its first live message or, if first_stale, a lower bound
    uint64_t last               # sequence of its last live message or, if last_stale, an upper bound
    uint32_t id                 # used again once the subject's last message was removed
    uint32_t gen                # never used again: distinguishes subjects that had the same id; 0: removed
    uint16_t len
    char first_stale
    char last_stale
    char[4] name                # extends beyond the struct, with a zero byte at its end

cdef struct Chunk:              # memory for subjects, filled from start to end
    char* base                  # NULL: the chunk was freed, and its number may be used again
    uint32_t size
    uint32_t used
    uint32_t live               # bytes of the subjects that are not removed

cdef struct SubjectTable:
    RefTable table              # name -> reference of the subject
    uint32_t* refs              # id -> reference; see FREE in subjects.pyx
    Chunk* chunks
    uint32_t n_chunks
    size_t chunks_room
    uint32_t filling            # number of the chunk in which new subjects are placed
    uint64_t live               # bytes of all blocks that are not removed
    uint32_t n_ids              # number of ids ever used
    size_t ids_room
    uint32_t free_id            # the id that was freed last; NO_ID: all ids are in use
    uint32_t last_gen

cdef void subjects_init(SubjectTable* t) noexcept nogil
cdef void subjects_free(SubjectTable* t) noexcept nogil
cdef void subjects_clear(SubjectTable* t) noexcept nogil  # remove all subjects; generations do not restart
cdef Subject* subjects_find(SubjectTable* t, const char* name, size_t n) noexcept nogil     # NULL: absent
# Return the subject; if it is absent, create it with count 0. NULL: out of memory. All other Subject pointers become
# invalid.
cdef Subject* subjects_add(SubjectTable* t, const char* name, size_t n) noexcept nogil
cdef void subjects_remove(SubjectTable* t, Subject* s) noexcept nogil
cdef bint subject_matches(const char* pattern, size_t pn, const char* subject, size_t sn) noexcept nogil

cdef inline Subject* subject_at(SubjectTable* t, uint32_t ref) noexcept nogil:
    return <Subject*> (t.chunks[ref >> UNIT_BITS].base + ((ref & UNIT_MASK) << 3))

cdef inline Subject* subject_by_id(SubjectTable* t, uint32_t id) noexcept nogil:
    """Return the subject with this id, which must be below n_ids, or NULL if the id is free."""
    return NULL if t.refs[id] >> 31 else subject_at(t, t.refs[id])

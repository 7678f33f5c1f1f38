"""The store of memory streams.

Each message is one allocation of subject | headers | payload; a segment has the entries, and pointers to the
messages. Removing a message frees its memory; a segment without live messages is freed with its entries.

Compiled, because it runs for every publish into a memory stream (measured in benchmarks/: JetStream rows).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from pyjs.base.grow cimport grow
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.dropped cimport Remains
from pyjs.store.index.sequences cimport Found, index_find, index_last, index_push, is_dead, segment_new
from pyjs.store.store cimport Record, fill_record
from pyjs.wire.ops cimport Msg

cdef enum:
    SEGMENT_MSGS = 4096
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence


cdef class MemStore(StreamStore):
    def __cinit__(self):
        self.catalogue = Catalogue(16)

    def __dealloc__(self):
        self.drop_parts()
        free(self.parts)

    cdef Segment* tail(self) noexcept nogil:
        cdef Segment* s = index_last(&self.catalogue.index)
        if s != NULL and s.n < SEGMENT_MSGS and s.base + s.n == self.catalogue.last_seq + 1:
            return s
        return self.begin_segment()

    cdef Segment* begin_segment(self) noexcept nogil:
        """Begin a segment at the next sequence; return the segment, or NULL if out of memory."""
        cdef Segment* s = index_last(&self.catalogue.index)
        if s != NULL and s.live == 0:
            self.retire(self.catalogue.index.n - 1)
        s = segment_new(self.catalogue.last_seq + 1, 0)
        if s == NULL or index_push(&self.catalogue.index, s) != 0:
            free(s)
            return NULL
        s.in_memory = 1
        s.last_ts = self.catalogue.last_ts
        return s

    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil:
        cdef Segment* s = NULL
        cdef char* body
        if self.catalogue.last_seq < SEQ_MAX and (self.adding or not self.in_parts):
            s = self.tail()
        if s != NULL and s.n and ts < s.entries[s.n - 1].ts:
            s = self.begin_segment()            # times must ascend within a segment
        if s == NULL:
            return 0
        body = self.body_of(m)
        if body == NULL:
            return 0
        if self.catalogue.add_entry(s, m.subject, m.subject_len, m.header_len, m.size, ts) == NULL:
            free(body)
            return 0
        s.bodies[s.n - 1] = body
        return self.catalogue.last_seq

    cdef char* body_of(self, Msg* m) noexcept nogil:
        """Return memory with subject, headers and payload of `m`, or NULL if out of memory.

        The caller owns the memory. If parts of a batch were copied before, the next of these parts is returned.
        """
        cdef char* body
        if self.part_at < self.n_parts:
            body, self.parts[self.part_at] = self.parts[self.part_at], NULL
            self.part_at += 1
            return body
        body = <char*> malloc(m.subject_len + m.size + 1)
        if body != NULL:
            memcpy(body, m.subject, m.subject_len)
            memcpy(body + m.subject_len, m.body, m.size)
        return body

    cdef int begin_parts(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil:
        if count >= SEQ_MAX - self.catalogue.last_seq:
            return -1
        self.in_parts, self.adding = True, False
        return 0

    cdef int put_part(self, Msg* m, uint64_t seq, int64_t ts, bint last) noexcept nogil:
        if grow(<void**> &self.parts, &self.parts_room, self.n_parts + 1, sizeof(char*)) != 0:
            return -1
        self.part_at = self.n_parts         # no parts are left, so body_of copies the message
        self.parts[self.n_parts] = self.body_of(m)
        if self.parts[self.n_parts] == NULL:
            return -1
        self.n_parts += 1
        self.part_at = 0
        return 0

    cdef void add_parts(self) noexcept nogil:
        self.adding = True

    cdef void end_parts(self) noexcept nogil:
        self.drop_parts()

    cdef void drop_parts(self) noexcept nogil:
        cdef size_t i
        for i in range(self.n_parts):
            free(self.parts[i])
        self.n_parts = self.part_at = 0
        self.in_parts = False

    cdef int load(self, uint64_t seq, Record* r) noexcept nogil:
        cdef Segment* s = index_find(&self.catalogue.index, seq)
        if s == NULL or is_dead(s, <uint32_t> (seq - s.base)):
            return -1
        fill_record(r, &s.entries[seq - s.base], seq, s.bodies[seq - s.base])
        return 0

    cdef int find_stored(self, Segment* s, uint32_t i, const char** p) noexcept nogil:
        p[0] = s.bodies[i]
        return 1

    cdef void forget_found(self, Segment* s, Found* found, Remains remains) noexcept nogil:
        if s.live or s == index_last(&self.catalogue.index):    # otherwise the segment becomes part of `remains`
            remains.take_bodies(s, found)

    cdef void forget(self, Segment* s, uint32_t i, bint erase) noexcept nogil:
        if erase:
            memset(s.bodies[i], 0, s.entries[i].subject_len + s.entries[i].size)
        free(s.bodies[i])
        s.bodies[i] = NULL

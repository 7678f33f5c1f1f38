"""The contents of one segment file: its tables, and the functions that extend them.

The tables depend only on the file, so that an index file can store them (store/segment/index_file): removed messages
still have entries, and subject ids are those of this segment. A sequence without a message has the time of
the previous message or STATE record in the file, or 0.

This module knows nothing of records and files. Compiled: a server that starts after a kill creates an entry for each
record of the open segment (benchmarks/store_start.py).
"""
from libc.stdint cimport UINT32_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport copy_sparse

cdef enum:
    WIDE_GAP = 64               # entries; a wider gap uses no memory
ERASED_BIT = <uint64_t> 1 << 63


cdef class SegmentContents:
    def __cinit__(self):
        self.problems = []
        self.lost = []
        self.mended = {}

    def __dealloc__(self):
        if not self.borrowed:
            free(self.entries)
        free(self.subjects)
        free(self.names)
        free(self.removals)

    # -- entries -----------------------------------------------------------------------------------------------
    cdef void own_entries(self) except *:
        """Replace borrowed entries with a copy that these contents own."""
        cdef Entry* theirs = self.entries
        self.entries, self.room, self.borrowed = NULL, 0, False
        if self.reserve_entries(self.n) != 0:
            raise MemoryError
        memcpy(self.entries, theirs, self.n * sizeof(Entry))
        self.source = None

    cdef Entry* add_entry(self) noexcept nogil:
        if self.n == self.room and self.reserve_entries(self.n + 1) != 0:
            return NULL
        self.n += 1
        return &self.entries[self.n - 1]

    cdef int add_gap(self, uint64_t before) noexcept nogil:
        """Add dead entries up to the sequence `before`, exclusive; return -1 if there is no room for them."""
        cdef uint64_t first = self.base_seq + self.n
        cdef Entry* e
        if before > first and before - self.base_seq > UINT32_MAX:
            return -1
        # one entry with the length of the gap, followed by zeros on untouched pages
        if before > first and before - first > WIDE_GAP:
            if self.grow_sparse(<uint32_t> (before - self.base_seq)) != 0:
                return -1
            self.entries[self.n].size = <uint32_t> (before - first)
            self.n = <uint32_t> (before - self.base_seq)
            return 0
        while self.base_seq + self.n < before:
            e = self.add_entry()
            if e == NULL:
                return -1
            memset(e, 0, sizeof(Entry))
            e.seq = self.base_seq + self.n - 1
            e.ts = self.last_ts
            e.subject_id = NO_PLACE
        return 0

    cdef int reserve_entries(self, size_t n) noexcept nogil:
        """Make room for `n` entries in all; return -1 if out of memory."""
        if self.sparse:
            return self.grow_sparse(<uint32_t> n)
        return grow(<void**> &self.entries, &self.room, (n + 63) & ~<size_t> 63, sizeof(Entry))

    cdef int grow_sparse(self, uint32_t n) noexcept nogil:
        """Make room for `n` entries in all; the new memory is zero. Return -1 if out of memory."""
        cdef Entry* more
        cdef size_t room
        if self.sparse and n <= self.room:
            return 0
        room = (max(<size_t> n, self.room * 2) + 63) & ~<size_t> 63
        more = <Entry*> calloc(room, sizeof(Entry))
        if more == NULL:
            return -1
        copy_sparse(more, self.entries, self.n)
        free(self.entries)
        self.entries, self.room, self.sparse = more, room, True
        return 0

    # -- subjects and removals ---------------------------------------------------------------------------------
    cdef uint32_t add_subject(self, const char* name, uint32_t size) noexcept nogil:
        """Add a row for a new subject; return its position, or NO_PLACE if out of memory."""
        cdef SubjectRow* row
        if self.reserve(self.n_subjects + 1, self.names_size + size, 0) != 0:
            return NO_PLACE
        row = &self.subjects[self.n_subjects]
        memset(row, 0, sizeof(SubjectRow))
        row.name_at = <uint32_t> self.names_size
        row.name_size = size
        memcpy(self.names + self.names_size, name, size)
        self.names_size += size
        self.n_subjects += 1
        return self.n_subjects - 1

    cdef void count_message(self, Entry* e, uint32_t place) noexcept nogil:
        """Count the message of the last entry, `e`, for the subject at position `place`."""
        cdef SubjectRow* row = &self.subjects[place]
        cdef uint32_t i = <uint32_t> (e.seq - self.base_seq)
        e.subject_id = place
        if row.count:
            e.prev = i - row.last
        else:
            e.prev = 0
            row.first = i
        row.last = i
        row.count += 1
        if self.messages == 0:
            self.first_ts = e.ts
        self.last_ts = e.ts
        self.messages += 1
        self.with_headers += e.header_len != 0
        self.message_bytes += e.subject_len + e.size

    cdef list lacks(self, const uint64_t* removals, uint32_t n):
        """Return those of the `n` given removals that these contents do not have."""
        cdef set found = set()
        cdef list lost = []
        cdef uint32_t i
        for i in range(self.n_removals):
            found.add(self.removals[i])
        for i in range(n):
            if removals[i] not in found:
                lost.append(removals[i])
        return lost

    cdef int reserve(self, size_t n_subjects, size_t names_size, size_t n_removals) noexcept nogil:
        """Make room for a total of `n_subjects`, `names_size` bytes and `n_removals`; return -1 if out of memory."""
        if grow(<void**> &self.subjects, &self.subjects_room, n_subjects, sizeof(SubjectRow)) != 0 \
                or grow(<void**> &self.names, &self.names_room, names_size, 1) != 0:
            return -1
        return grow(<void**> &self.removals, &self.removals_room, n_removals, 8)

"""Adoption: a catalogue adds the messages of recovered segments, with their subjects and counts.

Entries stay in the mapped index file, and are copied only if they will change or if there are too many maps. This
module opens no files and judges no damage.
Compiled: a starting server adopts millions of entries (benchmarks/store_start.py).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from pyjs.store.index.sequences cimport (
    ENTRY_ERASED, ENTRY_MSG, PRESENCE_MASK, Entry, Local, Segment, gap_at, index_push, segment_mark,
    segment_mark_range, segment_new,
)
from pyjs.store.segment.contents cimport SegmentContents, SubjectRow
from pyjs.store.index.subjects cimport Subject, subjects_add

cdef enum:
    # maximum number of maps of one store, far below the kernel's limit; further entries are copied
    INDEX_MAPS_MAX = 8192


cdef list adopt_segment(Catalogue catalogue, SegmentMaps maps, RecoveredSegment found):
    cdef SegmentContents c = found.contents
    cdef Segment* s = segment_new(c.base_seq, c.number)
    if s == NULL or index_push(&catalogue.index, s) != 0:
        raise MemoryError
    catalogue.last_seq = max(catalogue.last_seq, c.base_seq - 1)
    if c.source is not None and (not c.sealed or c.messages < c.n or c.erased
                                 or len(maps.index_maps) >= INDEX_MAPS_MAX):
        c.own_entries()                 # copy the entries, since more will be added or some will change
    if c.source is not None:
        maps.index_maps[c.number] = c.source
        s.locals = <Local*> malloc((c.n_subjects + 1) * sizeof(Local))
        s.n_locals = c.n_subjects
        if s.locals == NULL:
            raise MemoryError
    adopt_subjects(catalogue, c, s)
    s.entries, s.n, s.cap = c.entries, c.n, (c.n + 63) & ~<uint32_t> 63
    s.roomy = c.sparse
    s.removed, s.n_removed, s.removed_room = c.removals, c.n_removals, c.removals_room
    c.entries = NULL
    c.removals = NULL
    s.end = c.end
    s.floor = c.floor
    s.encoding = found.encoding
    s.sealed = c.sealed or found.ended
    s.examined = bool(c.problems)
    return count(catalogue, c, s)


cdef void adopt_subjects(Catalogue catalogue, SegmentContents c, Segment* s) except *:
    """Put the store's subject ids into the entries, and link the entries to earlier messages of their subjects."""
    cdef uint32_t* ids = <uint32_t*> malloc((c.n_subjects + 1) * sizeof(uint32_t))
    cdef uint32_t i, prev
    cdef SubjectRow* row
    cdef Subject* subject = NULL
    cdef uint64_t seq
    if ids == NULL:
        raise MemoryError
    with nogil:
        for i in range(c.n_subjects):
            row = &c.subjects[i]
            subject = subjects_add(&catalogue.subjects.table, c.names + row.name_at, row.name_size)
            if subject == NULL:
                break
            ids[i] = subject.id
            seq = c.base_seq + row.first
            if subject.count == 0:
                subject.first = seq
            prev = <uint32_t> (seq - subject.last) if subject.count and seq - subject.last < 0xffffffffu else 0
            if s.locals != NULL:
                s.locals[i].id, s.locals[i].prev = subject.id, prev
            else:
                c.entries[row.first].prev = prev
            subject.count += row.count
            subject.last = c.base_seq + row.last
            s.presence[(subject.id & PRESENCE_MASK) >> 6] |= <uint64_t> 1 << (subject.id & 63)
        if subject != NULL and s.locals == NULL:
            i = 0
            while i < c.n:
                if c.entries[i].flags & ENTRY_MSG:
                    c.entries[i].subject_id = ids[c.entries[i].subject_id]
                i += max(gap_at(&c.entries[i]), <uint32_t> 1)
        free(ids)
    if c.n_subjects and subject == NULL:
        raise MemoryError


cdef list count(Catalogue catalogue, SegmentContents c, Segment* s):
    """Count the entries as if the catalogue had added them one by one; return the sequences of erased messages."""
    cdef list erased = []
    cdef int64_t ts = catalogue.last_ts
    cdef Entry* e
    cdef Entry* first = NULL
    cdef uint32_t i
    s.dead = <uint64_t*> calloc((s.cap >> 6) + 1, 8)
    if s.dead == NULL:
        raise MemoryError
    if s.locals != NULL and s.n:    # every entry is an intact message, in order
        first, ts = s.entries, c.last_ts
    i = s.n if s.locals != NULL else 0
    while i < s.n:
        e = &s.entries[i]
        i += 1
        if e.flags & ENTRY_MSG:
            ts = e.ts
            if first == NULL:
                first = e
            if e.flags & ENTRY_ERASED:
                erased.append(e.seq)
        elif gap_at(e):
            segment_mark_range(s, i - 1, i - 1 + gap_at(e))
            i += gap_at(e) - 1
        else:
            ts = max(ts, e.ts)      # the time in the segment is the last one in this file only
            e.ts = ts
            segment_mark(s, i - 1)
    s.live = c.messages
    s.live_bytes = c.message_bytes + <uint64_t> catalogue.overhead * c.messages \
        + <uint64_t> catalogue.header_overhead * c.with_headers
    s.first_ts, s.last_ts = c.first_ts, ts
    catalogue.last_seq += s.n
    catalogue.last_ts = c.last_ts if c.messages else max(catalogue.last_ts, c.last_ts)
    if catalogue.msgs == 0 and first != NULL:
        catalogue.first_seq, catalogue.first_ts = first.seq, first.ts
    elif catalogue.msgs == 0 and s.n:
        catalogue.first_seq = catalogue.last_seq + 1
    catalogue.msgs += s.live
    catalogue.bytes += s.live_bytes
    return erased

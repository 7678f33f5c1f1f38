"""The removal of many messages of one subject, a few thousand entries at a time.

A search for one message and a call of `Catalogue.unlink` take 50 ns together. That is too long if a roll-up removes a
million messages in one turn. Here, one pass over some entries finds those of the subject (`segment_find`), a second
pass marks them, and the counts change only one time.

This module knows nothing of files and bodies: the store that owns the catalogue handles the bodies of found entries.
Compiled, because it examines every entry of a segment (benchmarks/hostile.py: rollup-sub).
"""
from pyjs.store.index.sequences cimport segment_mark

cdef enum:
    ENTRIES_PER_MESSAGE = 16    # examining so many entries takes as long as removing one message by itself


cdef bint is_dense(Catalogue c, Subject* subject, uint64_t before_seq) noexcept nogil:
    cdef uint64_t end = min(before_seq, c.last_seq + 1)
    return subject.first < end and subject.count >= (end - subject.first) // ENTRIES_PER_MESSAGE


cdef void unlink_found(Catalogue c, Segment* s, Subject* subject, Found* found) noexcept nogil:
    cdef uint64_t size = found.n * <uint64_t> (c.overhead + subject.len)
    cdef uint32_t k, with_headers = 0
    cdef Entry* e
    for k in range(found.n):
        e = &s.entries[found.entries[k]]
        size += e.size
        with_headers += e.header_len != 0
        segment_mark(s, found.entries[k])
    size += with_headers * <uint64_t> c.header_overhead
    s.live -= found.n
    s.live_bytes -= size
    c.msgs -= found.n
    c.bytes -= size
    if s.base + found.entries[0] == c.first_seq:
        c.move_first(c.first_seq)


cdef void subtract(Catalogue c, Subject* subject, uint64_t count, uint64_t before_seq) noexcept nogil:
    subject.count -= count
    if subject.count == 0:
        c.subjects.remove(subject)
    elif subject.count == 1 and not subject.last_stale:
        subject.first, subject.first_stale = subject.last, 0
    elif count:
        subject.first, subject.first_stale = before_seq, 1

"""The live messages of one segment, determined with the removals of the whole stream.

Used by the check of stored files, which reads the segments one after another and has only one in memory. An open
store uses its index instead (store/index/sequences).

This module knows nothing of files. Compiled: the check examines every entry of a store (benchmarks/store_start.py).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp

from pyjs.store.index.sequences cimport ENTRY_ERASED, ENTRY_MSG, Entry, by_seq
from pyjs.store.segment.contents cimport ERASED_BIT, SegmentContents, SubjectRow, subject_at


def removals_of(SegmentContents c not None) -> bytes:
    """Return the sequences in the DELETES records of a segment as an array of u64."""
    cdef bytes out = bytes(<size_t> c.n_removals * 8)
    cdef uint64_t* p = <uint64_t*> <char*> out
    cdef uint32_t i
    for i in range(c.n_removals):
        p[i] = c.removals[i] & ~ERASED_BIT
    return out


def message_ranges(SegmentContents c not None) -> list:
    """Return (first, last) of each range of sequences with messages; removed messages count too."""
    cdef uint32_t i, begin = 0
    ranges = []
    for i in range(c.n):
        if not c.entries[i].flags & ENTRY_MSG:
            if begin < i:
                ranges.append((c.base_seq + begin, c.base_seq + i - 1))
            begin = i + 1
    if begin < c.n:
        ranges.append((c.base_seq + begin, c.base_seq + c.n - 1))
    return ranges


def sorted_seqs(bytes seqs) -> bytes:
    """Return the array of u64 sequences `seqs` in ascending order."""
    cdef bytes out = bytes(bytearray(seqs))
    qsort(<char*> out, len(out) // 8, 8, by_seq)
    return out


def next_named(bytes seqs, uint64_t seq) -> int:
    """Return the first sequence >= `seq` in `seqs`, an ascending array of u64, or 0 if there is none."""
    cdef size_t n = len(seqs) // 8
    cdef size_t at = place_of(<const uint64_t*> <const char*> seqs, n, seq)
    return (<const uint64_t*> <const char*> seqs)[at] if at < n else 0


cdef size_t place_of(const uint64_t* seqs, size_t n, uint64_t seq) noexcept nogil:
    """Return the index of the first of `n` ascending sequences that is >= `seq`, or `n` if there is none."""
    cdef size_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) >> 1
        if seqs[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low


def agrees(SegmentContents found not None, SegmentContents c not None) -> bool:
    """Return whether the contents `found` of an index file agree with those of its segment, `c`.

    A message that was erased after the index file was written counts as equal.
    """
    if found.n != c.n or found.n_subjects != c.n_subjects or found.n_removals != c.n_removals \
            or found.names_size != c.names_size:
        return False
    if (found.floor, found.first_ts, found.last_ts) != (c.floor, c.first_ts, c.last_ts):
        return False
    if (found.messages, found.with_headers, found.message_bytes) != (c.messages, c.with_headers, c.message_bytes):
        return False
    if memcmp(found.subjects, c.subjects, c.n_subjects * sizeof(SubjectRow)) != 0 \
            or memcmp(found.names, c.names, c.names_size) != 0 \
            or memcmp(found.removals, c.removals, c.n_removals * 8) != 0:
        return False
    return same_entries(found.entries, c.entries, c.n)


cdef bint same_entries(Entry* found, Entry* entries, uint32_t n) noexcept nogil:
    cdef Entry e
    cdef uint32_t i
    for i in range(n):
        if not entries[i].flags & ENTRY_MSG:
            if found[i].flags & ENTRY_MSG:
                return False
            continue
        e = found[i]
        e.flags |= entries[i].flags & ENTRY_ERASED
        if memcmp(&e, &entries[i], sizeof(Entry)) != 0:
            return False
    return True


def body_of(SegmentContents c not None, uint64_t seq) -> tuple:
    """Return (offset, size) of the headers and payload of message `seq` in the plain image of the segment."""
    cdef Entry* e = &c.entries[seq - c.base_seq]
    return subject_at(e) + e.subject_len, e.size


def live_in(SegmentContents c not None, uint64_t floor, bytes removed) -> tuple:
    """Return the numbers of a segment's live messages, and a list of the sequences of its erased messages.

    The numbers are the count of live messages, the bytes of their subjects and bodies, the count of those with
    headers, and the first live sequence. Messages below `floor` or in `removed`, an ascending array of u64, are not
    live, and are not listed as erased.
    """
    cdef const uint64_t* seqs = <const uint64_t*> <const char*> removed
    cdef size_t n = len(removed) // 8
    cdef size_t at = place_of(seqs, n, c.base_seq)
    cdef uint64_t messages = 0, size = 0, with_headers = 0, first = 0
    cdef Entry* e
    cdef uint32_t i
    overwritten = []
    for i in range(c.n):
        e = &c.entries[i]
        while at < n and seqs[at] < e.seq:
            at += 1
        if not e.flags & ENTRY_MSG or e.seq < floor or (at < n and seqs[at] == e.seq):
            continue
        if e.flags & ENTRY_ERASED:
            overwritten.append(e.seq)
            continue
        first = first or e.seq
        messages += 1
        size += e.subject_len + e.size
        with_headers += e.header_len != 0
    return messages, size, with_headers, first, overwritten

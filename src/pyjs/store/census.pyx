"""Which messages of one segment are still there, when the removals of the whole stream are known.

For whoever looks at one segment after the other and keeps none of them: a check of stored files. What a store that
is open knows of its messages is in its index instead (store/index).

Knows no files. Compiled: a check goes over every entry of a store (benchmarks/store_start.py has such stores).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.store.index cimport ENTRY_ERASED, ENTRY_MSG, Entry
from pyjs.store.segment cimport ERASED_BIT, SegmentContents

SOURCE_HASH = PYJS_SOURCE_HASH


cdef int by_value(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t*> a)[0], y = (<const uint64_t*> b)[0]
    return (x > y) - (x < y)


def removals_of(SegmentContents c not None) -> bytes:
    """Return the sequences that the DELETES records of a segment name, u64 each."""
    cdef bytes out = bytes(<size_t> c.n_removals * 8)
    cdef uint64_t* p = <uint64_t*> <char*> out
    cdef uint32_t i
    for i in range(c.n_removals):
        p[i] = c.removals[i] & ~ERASED_BIT
    return out


def sorted_seqs(bytes seqs) -> bytes:
    """Return u64 sequences in ascending order."""
    cdef bytes out = bytes(bytearray(seqs))
    qsort(<char*> out, len(out) // 8, 8, by_value)
    return out


def is_named(bytes seqs, uint64_t seq) -> bool:
    """Tell whether sorted sequences have `seq`."""
    cdef size_t n = len(seqs) // 8
    cdef size_t at = place_of(<const uint64_t*> <const char*> seqs, n, seq)
    return at < n and (<const uint64_t*> <const char*> seqs)[at] == seq


cdef size_t place_of(const uint64_t* seqs, size_t n, uint64_t seq) noexcept nogil:
    """The first place whose sequence is not smaller than `seq`."""
    cdef size_t low = 0, high = n, middle
    while low < high:
        middle = (low + high) >> 1
        if seqs[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low


def live_in(SegmentContents c not None, uint64_t floor, bytes removed) -> tuple:
    """Return (messages, bytes of their subjects and bodies, with headers, first sequence, overwritten ones).

    Messages below `floor` and those that the sorted `removed` name are gone. The last of the five is the list of
    messages that were overwritten although no record says that they were removed.
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

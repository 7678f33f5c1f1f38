"""Guarded maps of files: an unreadable page (a truncated file, or a bad sector) becomes zeros.

Reading such a page raises SIGBUS, which would end the process. In a guarded map, a signal handler replaces the page
with zeros and counts it. The checksum of the log record is then wrong, and every reader checks it. The previous
handler gets any other SIGBUS, so faulthandler still works. Guarding the first map installs the handler; a process
without a store keeps its previous handler.

This module knows nothing of the contents of maps. Compiled: a signal handler cannot run Python, and it must not slow
down reads (benchmarks/: pull 500).
"""
from libc.stdint cimport uint64_t, uintptr_t

from pyjs.base.borrow cimport borrowed

cdef extern from "bad_pages.h" nogil:
    int pyjs_guard(size_t i, uintptr_t start, size_t size)
    void pyjs_release(size_t i)
    size_t pyjs_maps_used()
    uint64_t pyjs_bad()
    void pyjs_touch(const char* p, size_t n)

NO_SLOT = -1
cdef list free_slots = []


def guard(memory not None) -> int:
    """Guard a map; return its slot for `release`, or -1 if the table is full and the map is not guarded."""
    cdef size_t size = 0
    cdef const char* start = borrowed(memory, &size)
    cdef size_t slot = free_slots.pop() if free_slots else pyjs_maps_used()
    if pyjs_guard(slot, <uintptr_t> start, size) != 0:
        return NO_SLOT
    return slot


def release(ssize_t slot) -> None:
    """Stop guarding a map; must be called before the map's memory is freed."""
    if slot != NO_SLOT:
        pyjs_release(slot)
        free_slots.append(slot)


def bad_page_count() -> int:
    """Return the number of pages that have been replaced with zeros so far."""
    return pyjs_bad()


cdef uint64_t bad_pages() noexcept nogil:
    return pyjs_bad()


cdef bint is_readable(const char* p, size_t n) noexcept nogil:
    cdef uint64_t before = pyjs_bad()
    pyjs_touch(p, n)
    return pyjs_bad() == before

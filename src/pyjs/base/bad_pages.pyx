"""Maps of files whose pages may turn out unreadable: cut off by somebody, or on a bad sector.

The system answers a read of such a page with SIGBUS, which ends a process. Inside a map that is guarded here the page
becomes zeros instead, and is counted: what stood there is lost, its checksum says so, and whoever reads checks that.
A SIGBUS anywhere else is passed on to who had the signal before, so that faulthandler goes on to work. The signal is
taken with the first map: a process that opens no store keeps it as it was.

Knows nothing of what is in the maps. Compiled because a signal handler runs no Python (benchmarks/: pull 500 is what
must not pay for it).
"""
from libc.stdint cimport uint64_t, uintptr_t

cdef extern from "bad_pages.h" nogil:
    int pyjs_guard(size_t i, uintptr_t start, size_t size)
    void pyjs_release(size_t i)
    size_t pyjs_maps_used()
    uint64_t pyjs_bad()
    void pyjs_touch(const char* p, size_t n)

NO_SLOT = -1
cdef list free_slots = []


def guard(const unsigned char[::1] memory) -> int:
    """Guard a map; return what `release` is given before it goes, -1: it is not guarded, the table is full."""
    cdef size_t slot = free_slots.pop() if free_slots else pyjs_maps_used()
    if pyjs_guard(slot, <uintptr_t> &memory[0], memory.shape[0]) != 0:
        return NO_SLOT
    return slot


def release(ssize_t slot) -> None:
    """Guard a map no more."""
    if slot != NO_SLOT:
        pyjs_release(slot)
        free_slots.append(slot)


def bad_page_count() -> int:
    """Return how many pages became zeros so far."""
    return pyjs_bad()


cdef uint64_t bad_pages() noexcept nogil:
    return pyjs_bad()


cdef bint is_readable(const char* p, size_t n) noexcept nogil:
    cdef uint64_t before = pyjs_bad()
    pyjs_touch(p, n)
    return pyjs_bad() == before

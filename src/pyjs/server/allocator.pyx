"""glibc's allocator: keeps the buffers of reads and writes instead of mapping and unmapping each, until a trim.

Compiled because ctypes would add 5 ms to the start for one call; the setting itself is worth 1.2-3x above 1 KiB
messages (benchmarks/: core publish and 1-1 with 1 KiB and more). Does nothing on another libc.
"""
from pyjs.base.fast cimport PYJS_SOURCE_HASH

SOURCE_HASH = PYJS_SOURCE_HASH

cdef extern from *:
    """
    #include <stdlib.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static int pyjs_keep_buffers(void) {
        return mallopt(M_MMAP_THRESHOLD, 8 << 20) && mallopt(M_TRIM_THRESHOLD, 64 << 20) &&
               mallopt(M_TOP_PAD, 16 << 20);
    }
    static int pyjs_trim(void) { return malloc_trim(0); }
    #else
    static int pyjs_keep_buffers(void) { return 0; }
    static int pyjs_trim(void) { return 0; }
    #endif
    """
    int pyjs_keep_buffers()
    int pyjs_trim() nogil


def keep_buffers() -> bool:
    """Tune the allocator of this process. For the command only: an embedding program owns its allocator."""
    return pyjs_keep_buffers() != 0


def trim() -> bool:
    """Give free pages back to the operating system; return whether there were any. Runs without the GIL."""
    cdef int given
    with nogil:
        given = pyjs_trim()
    return given != 0

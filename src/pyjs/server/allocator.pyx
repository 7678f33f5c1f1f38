"""glibc's allocator, told to keep the buffers of reads and writes instead of mapping and unmapping each.

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
    #else
    static int pyjs_keep_buffers(void) { return 0; }
    #endif
    """
    int pyjs_keep_buffers()


def keep_buffers() -> bool:
    """Tune the allocator of this process. For the command only: an embedding program owns its allocator."""
    return pyjs_keep_buffers() != 0

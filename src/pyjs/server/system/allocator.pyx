"""Settings of glibc's allocator: it reuses the memory of read and write buffers, and also allocates Python's objects.

`trim` returns every free page to the system. Compiled, because ctypes would add 5 ms to the start for one call.
Reuse of buffers makes messages above 1 KiB 1.2 to 3 times as fast (benchmarks/: core publish and 1-1 with
1 KiB and more). Without glibc, the functions do nothing.

All threads share one arena, since a trim does not shrink the end of other arenas: with a separate arena, the
thread that syncs files and writes indexes occupied 16 MB more.

Python's own allocator of small objects frees an arena of 1 MiB only when all of it is free, so a few long-lived
objects occupy the memory of a burst of requests: after 5,000 consumers were created and deleted, the process had 1.6
times its previous memory. glibc frees single pages of 4 KiB: the process then had 0.95 times its previous memory. The
API's processor time rises by 5 %; messages create no objects. Blocks allocated earlier by Python's allocator
remain valid: its `free` and `realloc` recognize their own blocks by address, and pass all others to the raw
allocator, as they always do with blocks over 512 bytes.

Source: https://github.com/python/cpython/blob/v3.11.7/Objects/obmalloc.c: _PyObject_Free and
_PyObject_Realloc (tried on 3.12 and 3.13 as well);
https://docs.python.org/3/c-api/memory.html#c.PyMem_SetAllocator: an allocator that wraps the previous one can
be set at any time.
"""
import os

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    #ifdef __GLIBC__
    #include <malloc.h>
    static int pyjs_keep_buffers(void) {
        return mallopt(M_MMAP_THRESHOLD, 8 << 20) && mallopt(M_TRIM_THRESHOLD, 64 << 20) &&
               mallopt(M_TOP_PAD, 16 << 20) && mallopt(M_ARENA_MAX, 1);
    }
    static int pyjs_trim(void) { return malloc_trim(0); }
    #else
    static int pyjs_keep_buffers(void) { return 0; }
    static int pyjs_trim(void) { return 0; }
    #endif

    #if defined(__GLIBC__) && !defined(Py_GIL_DISABLED)
    static PyMemAllocatorEx pyjs_pymalloc;  /* Python's own: knows its blocks, and hands on all others */
    /* malloc and calloc as in _PyMem_RawMalloc and _PyMem_RawCalloc, whose _PyMem_RawFree is free */
    static void *pyjs_malloc(void *ctx, size_t size) { return malloc(size ? size : 1); }
    static void *pyjs_calloc(void *ctx, size_t count, size_t size) {
        return count && size ? calloc(count, size) : calloc(1, 1);
    }
    static void *pyjs_realloc(void *ctx, void *block, size_t size) {
        return block ? pyjs_pymalloc.realloc(ctx, block, size) : pyjs_malloc(ctx, size);
    }
    static int pyjs_same(const PyMemAllocatorEx *one, const PyMemAllocatorEx *other) {
        return one->ctx == other->ctx && one->malloc == other->malloc && one->free == other->free;
    }
    static int pyjs_objects_from_raw(void) {
        PyMemAllocatorEx raw, mem, obj;
        PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &raw);
        PyMem_GetAllocator(PYMEM_DOMAIN_MEM, &mem);
        PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &obj);
        /* Python's own has no context and serves both; whatever wraps it has one; malloc and mimalloc differ. */
        if (raw.ctx || obj.ctx || obj.malloc == pyjs_malloc || !pyjs_same(&mem, &obj) || pyjs_same(&raw, &obj))
            return 0;
        pyjs_pymalloc = obj;
        obj.malloc = pyjs_malloc;
        obj.calloc = pyjs_calloc;
        obj.realloc = pyjs_realloc;
        PyMem_SetAllocator(PYMEM_DOMAIN_MEM, &obj);
        PyMem_SetAllocator(PYMEM_DOMAIN_OBJ, &obj);
        return 1;
    }
    #else
    static int pyjs_objects_from_raw(void) { return 0; }
    #endif
    """
    int pyjs_keep_buffers()
    int pyjs_trim() nogil
    int pyjs_objects_from_raw()


def keep_buffers() -> bool:
    """Configure the allocator to reuse buffers, and return whether that was possible.

    Only the command may call this, since an embedding program owns its allocator.
    """
    return pyjs_keep_buffers() != 0


def objects_from_glibc() -> bool:
    """Make Python allocate new objects with glibc's malloc; return whether that was possible.

    With PYTHONMALLOC or -X dev, nothing is changed. Only the command may call this.
    """
    return not os.environ.get("PYTHONMALLOC") and pyjs_objects_from_raw() != 0


def trim() -> bool:
    """Release free pages to the operating system without holding the GIL; return whether there were any."""
    cdef int given
    with nogil:
        given = pyjs_trim()
    return given != 0

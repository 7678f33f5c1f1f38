"""Read-only maps of files whose unreadable pages become zeros, and anonymous mapped memory.

Unlike a map of the mmap module, a FileMap holds no descriptor: a store of thousands of segments maps most of them,
and a process has few descriptors. The file may be closed, renamed and removed while it is mapped.

Imported lazily, with the first map, since the import installs a handler for SIGBUS. Compiled: a starting server maps
and unmaps each segment (benchmarks/store_start.py).
"""
from cpython.buffer cimport PyBuffer_FillInfo
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap
from posix.stat cimport fstat, struct_stat

import mmap as anonymous

from pyjs.base.bad_pages import guard, release

cdef extern from "errno.h" nogil:
    int errno
cdef extern from "Python.h":
    object PyErr_SetFromErrno(object kind)

cdef Py_ssize_t n_open = 0


def open_maps() -> int:
    """Return the number of mapped files."""
    return n_open


cdef class FileMap:
    """A read-only map of the first bytes of a file; its unreadable pages become zeros while it is guarded."""
    cdef void* data             # NULL: closed
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t exports     # number of views that exist
    cdef Py_ssize_t slot        # of the guard; negative: not guarded

    def __cinit__(self, int fd, Py_ssize_t size) -> None:
        """Map the first `size` bytes.

        Raises:
            ValueError: the file is shorter than `size`, or `size` is 0.
            OSError: mapping failed.
        """
        global n_open
        cdef struct_stat found
        self.slot = -1
        if fstat(fd, &found) != 0:
            PyErr_SetFromErrno(OSError)
        if size <= 0 or size > found.st_size:
            raise ValueError(f"no map of {size} bytes of a file of {found.st_size}")
        self.data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0)
        if self.data == MAP_FAILED:
            self.data = NULL
            PyErr_SetFromErrno(OSError)
        self.size = size
        n_open += 1
        self.slot = guard(self)

    def __dealloc__(self):
        global n_open
        if self.data == NULL:
            return
        release(self.slot)              # unregister the guard before the memory is freed
        munmap(self.data, self.size)
        n_open -= 1

    def __getbuffer__(self, Py_buffer* buffer, int flags) -> None:
        if self.data == NULL:
            raise ValueError("the map is closed")
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer) -> None:
        self.exports -= 1

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, where):
        """Return a byte, or the bytes of a slice."""
        found = memoryview(self)[where]
        return bytes(found) if isinstance(where, slice) else found

    def __enter__(self):
        return self

    def __exit__(self, *exc) -> None:
        """Unmap the file."""
        self.close()

    def close(self) -> None:
        """Unmap the file.

        Raises:
            BufferError: views of the map exist.
        """
        global n_open
        if self.exports:
            raise BufferError(f"the map has {self.exports} views")
        if self.data != NULL:
            self.unguard()
            munmap(self.data, self.size)
            self.data = NULL
            n_open -= 1

    def unguard(self) -> None:
        """Remove the guard, for readers that do not check the bytes; an unreadable page then ends the process."""
        release(self.slot)
        self.slot = -1


def blank_memory(size_t size):
    """Return zeroed memory whose pages are allocated when written; it is freed with its last reference."""
    return anonymous.mmap(-1, max(size, 1), flags=anonymous.MAP_PRIVATE | anonymous.MAP_ANONYMOUS)

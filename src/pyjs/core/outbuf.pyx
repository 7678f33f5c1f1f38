"""The output buffer of one connection: bytes queued for the transport, bounded by max_pending.

Knows nothing of what the bytes mean. Grows by doubling, is handed out whole, and gives large memory back: much output
is collected in the memory of the object that it leaves as, so that nothing copies it. A large message that is an
object already is queued as it is. Compiled: every delivery writes here (benchmarks/: 1-1, 1-10).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH

SOURCE_HASH = PYJS_SOURCE_HASH

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* p, Py_ssize_t n)
    int resize_bytes "_PyBytes_Resize"(PyObject** p, Py_ssize_t n)
    void release "Py_XDECREF"(PyObject* p)

cdef enum:
    START = 4096
    KEEP_MAX = 4194304          # a larger buffer is an object, which leaves when it is taken


cdef class OutBuf:
    """Bytes on their way out."""

    def __cinit__(self, size_t limit=67108864):
        self.limit = limit
        self.pieces = []

    def __dealloc__(self):
        if self.large == NULL:
            free(self.data)
        release(self.large)

    def __len__(self) -> int:
        """Return the number of queued bytes."""
        return self.pieces_len + self.len

    cdef char* reserve(self, size_t n) noexcept nogil:
        """Make room for `n` more bytes at the returned place; the caller writes them and adds n to `len`."""
        cdef size_t capacity
        cdef char* more
        if self.pieces_len + self.len + n > self.limit:
            self.overflow = True
            return NULL
        if self.len + n > self.capacity:
            capacity = self.capacity * 2 if self.capacity else START
            while capacity < self.len + n:
                capacity *= 2
            if capacity > KEEP_MAX:
                with gil:
                    if self.enlarge(capacity) < 0:
                        self.overflow = True
                return NULL if self.overflow else self.data + self.len
            more = <char*> realloc(self.data, capacity)
            if more == NULL:
                self.overflow = True
                return NULL
            self.data = more
            self.capacity = capacity
        return self.data + self.len

    cdef int enlarge(self, size_t capacity) noexcept:
        """Let the buffer be an object with room for `capacity` bytes; -1: no memory, and what is queued is lost."""
        if self.large == NULL:
            self.large = new_bytes(NULL, <Py_ssize_t> capacity)
            if self.large == NULL:
                PyErr_Clear()
                return -1
            memcpy(PyBytes_AS_STRING(<object> self.large), self.data, self.len)
            free(self.data)
        elif resize_bytes(&self.large, <Py_ssize_t> capacity) < 0:
            PyErr_Clear()
            self.data = NULL
            self.len = self.capacity = 0
            return -1
        self.data = PyBytes_AS_STRING(<object> self.large)
        self.capacity = capacity
        return 0

    cdef int add(self, const char* p, size_t n) noexcept nogil:
        cdef char* out = self.reserve(n)
        if out == NULL:
            return -1
        memcpy(out, p, n)
        self.len += n
        return 0

    cdef int add_whole(self, bytes piece) except -1:
        """Queue an object behind what is there, without a copy."""
        if self.pieces_len + self.len + <size_t> len(piece) > self.limit:
            self.overflow = True
            return 1
        if self.len:
            before = self.take()
            self.pieces.append(before)
            self.pieces_len += <size_t> len(before)
        self.pieces.append(piece)
        self.pieces_len += <size_t> len(piece)
        return 0

    cdef list take_all(self):
        """Return everything queued, objects first that were queued so, and start afresh."""
        cdef list pieces = self.pieces
        if self.len:
            pieces.append(self.take())
        self.pieces = []
        self.pieces_len = 0
        return pieces

    cdef void clear(self) noexcept:
        """Drop everything queued."""
        self.pieces.clear()
        self.pieces_len = self.len = 0

    cdef bytes take(self):
        """Return what was copied here, and start afresh but for the pieces."""
        cdef PyObject* large = self.large
        cdef size_t size = self.len
        self.len = 0
        if large == NULL:
            return PyBytes_FromStringAndSize(self.data, size)
        self.large = NULL
        self.data = NULL
        self.capacity = 0
        if resize_bytes(&large, <Py_ssize_t> size) < 0:
            raise MemoryError
        out = <bytes> <object> large
        Py_DECREF(out)
        return out

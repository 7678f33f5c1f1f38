"""The output buffer of one connection: bytes queued for the transport, bounded by max_pending.

This module knows nothing of the meaning of the bytes. The buffer grows by doubling, and a write takes all of it.
Large output is written piece by piece into bytes objects, which are passed to the transport without a copy and freed
afterwards. A large message that is already a bytes object is queued without a copy. Compiled, because it runs for
every delivery (measured in benchmarks/: 1-1, 1-10).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_Clear
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* p, Py_ssize_t n)
    int resize_bytes "_PyBytes_Resize"(PyObject** p, Py_ssize_t n)
    void release "Py_XDECREF"(PyObject* p)

cdef enum:
    START = 4096
    KEEP_MAX = 524288           # bytes; a larger buffer becomes a bytes object for the transport
    PIECE = 1048576             # bytes of such an object, or one message


cdef class OutBuf:
    """The output buffer of one connection."""

    def __cinit__(self, size_t limit=67108864):
        self.set_limit(limit)
        self.relief_at = FLUSH_AT
        self.pieces = []

    def __dealloc__(self):
        if self.large == NULL:
            free(self.data)
        release(self.large)

    cdef void set_limit(self, size_t limit) noexcept:
        self.limit = limit
        self.stall_at = limit // 4 * 3

    def __len__(self) -> int:
        """Return the number of queued bytes."""
        return self.pieces_len + self.len

    cdef char* reserve(self, size_t n) noexcept nogil:
        """Make room for `n` more bytes at the returned position; the caller writes them and adds `n` to `len`.

        Return NULL and set `overflow` if the limit would be exceeded or memory runs out.
        """
        cdef size_t capacity
        cdef char* more
        if self.pieces_len + self.len + n > self.limit:
            self.overflow = True
            return NULL
        if self.len + n > self.capacity:
            capacity = self.capacity * 2 if self.capacity else START
            while capacity < self.len + n:
                capacity *= 2
            if self.large != NULL or capacity > KEEP_MAX:
                with gil:
                    if self.begin_piece(n) < 0:
                        self.overflow = True
                return NULL if self.overflow else self.data
            more = <char*> realloc(self.data, capacity)
            if more == NULL:
                self.overflow = True
                return NULL
            self.data = more
            self.capacity = capacity
        return self.data + self.len

    cdef int begin_piece(self, size_t n) noexcept:
        """Queue the buffer as a piece, and start a new buffer with room for `n` bytes.

        Return -1 if out of memory.
        """
        try:
            if self.len:
                self.pieces.append(self.take())
                self.pieces_len += <size_t> len(self.pieces[-1])
        except MemoryError:
            return -1
        if self.large == NULL:
            free(self.data)
        release(self.large)
        self.data = NULL
        self.capacity = 0
        self.large = new_bytes(NULL, <Py_ssize_t> max(n, <size_t> PIECE))
        if self.large == NULL:
            PyErr_Clear()
            return -1
        self.data = PyBytes_AS_STRING(<object> self.large)
        self.capacity = max(n, <size_t> PIECE)
        return 0

    cdef int add(self, const char* p, size_t n) noexcept nogil:
        cdef char* out = self.reserve(n)
        if out == NULL:
            return -1
        memcpy(out, p, n)
        self.len += n
        return 0

    cdef int add_whole(self, bytes piece) except -1:
        """Queue the object `piece` after the buffer, without a copy; return 1 if the limit would be exceeded."""
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

    cdef bint add_body(self, PyObject* body) noexcept nogil:
        with gil:
            try:
                self.add_whole(<bytes> <object> body)
            except MemoryError:
                self.overflow = True
        return self.overflow or self.add(b"\r\n", 2) != 0

    cdef list take_all(self):
        """Return all queued output as a list of objects, and start with an empty buffer."""
        cdef list pieces = self.pieces
        if self.len:
            pieces.append(self.take())
        if self.begun:
            pieces[0] = (<bytes> pieces[0])[self.begun:]
        self.pieces = []
        self.pieces_len = self.begun = 0
        return pieces

    cdef list take_portion(self):
        """Remove and return up to `portion` queued bytes from the beginning of the queue, as a list of objects."""
        cdef list out = []
        cdef bytes piece
        cdef size_t room = self.portion, taken = 0, n
        if self.len:
            self.pieces.append(self.take())
            self.pieces_len += <size_t> len(self.pieces[-1])
        for piece in self.pieces:
            n = <size_t> len(piece) - self.begun
            if n > room and out:
                break               # always cut pieces at the same places, whatever was taken before
            if n > room:
                out.append(piece[self.begun:self.begun + room])
                self.begun += room
                room = 0
                break
            out.append(piece[self.begun:] if self.begun else piece)
            self.begun = 0
            taken += 1
            room -= n
        del self.pieces[:taken]
        self.pieces_len -= self.portion - room
        return out

    cdef void clear(self) noexcept:
        """Drop all queued output."""
        self.pieces.clear()
        self.pieces_len = self.len = self.begun = 0

    cdef bytes take(self):
        """Return the bytes in the buffer and empty it; queued pieces are not included."""
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

"""The output buffer of one connection."""
from cpython.object cimport PyObject

cdef enum:
    FLUSH_AT = 262144    # bytes after which a partial turn writes: a larger buffer does not fit in the L2 cache
    # bytes that may wait for slow writes in all connections; above it, publishers are slowed down
    BACKLOG_MAX = 33554432


cdef class OutBuf:
    cdef char* data
    cdef size_t len             # bytes in `data`
    cdef size_t capacity
    cdef PyObject* large        # owned bytes object that holds `data` once it is large; NULL: `data` is malloc'd
    cdef list pieces            # queued before `data`: bytes objects, filled here or queued without a copy
    cdef size_t pieces_len
    cdef size_t begun           # bytes of the first piece that were already written
    cdef size_t portion         # maximum bytes of one write; 0: no limit
    cdef public size_t limit           # max_pending; beyond it, `overflow` is set
    cdef size_t stall_at        # pending bytes at which publishers are slowed down
    cdef size_t unsent          # bytes in the transport after the last write
    cdef size_t relief_at       # queued bytes that force a partial turn
    cdef public bint overflow

    cdef inline size_t queued(self) noexcept nogil:
        """Return the number of bytes that wait for the transport."""
        return self.pieces_len + self.len

    cdef inline void note_flush(self) noexcept nogil:
        """Restart the count that forces a partial turn after FLUSH_AT bytes.

        Called when the transport accepted output.
        """
        self.relief_at = self.pieces_len + self.len + FLUSH_AT

    cdef inline size_t unwritten(self) noexcept nogil:
        """Return the size of this buffer plus the bytes that were left in the transport after the last write."""
        return self.pieces_len + self.len + self.unsent

    cdef inline bint is_behind(self, size_t waiting) noexcept nogil:
        """Return whether this buffer exceeds its part of BACKLOG_MAX, which `waiting` slow connections share."""
        return self.portion and waiting and self.pieces_len + self.len > BACKLOG_MAX // waiting

    cdef void set_limit(self, size_t limit) noexcept
    cdef char* reserve(self, size_t n) noexcept nogil       # room for n more bytes; NULL: overflow or out of memory
    cdef int begin_piece(self, size_t n) noexcept           # return 0; -1: out of memory
    cdef int add(self, const char* p, size_t n) noexcept nogil      # return 0; -1: overflow
    cdef int add_whole(self, bytes piece) except -1         # 0: queued without a copy, 1: overflow
    # like add_whole, with CRLF after it; True: overflow or out of memory
    cdef bint add_body(self, PyObject* body) noexcept nogil
    cdef bytes take(self)
    cdef list take_all(self)
    cdef list take_portion(self)
    cdef void clear(self) noexcept

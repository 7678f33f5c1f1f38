"""Reader of the frames between servers of a cluster.

A frame that is completely inside a read is not copied. The beginning of an incomplete frame is stored, and completed
by the following reads. The size of a body is checked before memory is allocated for the body.

Compiled, because it runs for every message between servers (measured in benchmarks/: 1-1 over a route).
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    KEEP_ROOM = 65536           # bytes of memory that are used again for the next frame; more are freed


cdef inline bint is_valid(FrameHeader* header) noexcept nogil:
    if header.kind < FRAME_ACCOUNT or header.kind > FRAME_REQUEST or header.reserved:
        return False
    if header.kind == FRAME_MSG or header.kind == FRAME_CONSENSUS or header.kind == FRAME_REQUEST:
        return header.size <= <uint32_t> FRAME_MAX
    return header.size <= <uint32_t> CONTROL_MAX


cdef class FrameReader:
    """A reader that splits received bytes into frames."""

    def __dealloc__(self):
        free(self.kept)

    cdef void begin(self, const char* data, size_t n) noexcept nogil:
        self.data = data
        self.left = n

    cdef int next(self) noexcept nogil:
        cdef size_t whole
        if self.kept_len:
            return self.next_kept()
        if self.kept_room > KEEP_ROOM:
            free(self.kept)
            self.kept, self.kept_room = NULL, 0
        if self.left < HEADER_SIZE:
            return self.keep()
        memcpy(&self.header, self.data, HEADER_SIZE)
        if not is_valid(&self.header):
            return -1
        whole = HEADER_SIZE + <size_t> self.header.size
        if self.left < whole:
            return self.keep()
        self.body = self.data + HEADER_SIZE
        self.data += whole
        self.left -= whole
        return 1

    cdef int next_kept(self) noexcept nogil:
        """Return the next frame as `next` does, if its beginning is stored."""
        cdef int found = self.refill(HEADER_SIZE)
        if found != 1:
            return found
        memcpy(&self.header, self.kept, HEADER_SIZE)
        if not is_valid(&self.header):
            return -1
        found = self.refill(HEADER_SIZE + <size_t> self.header.size)
        if found == 1:
            self.body = self.kept + HEADER_SIZE
            self.kept_len = 0
        return found

    cdef int refill(self, size_t want) noexcept nogil:
        """Complete the stored bytes to `want` bytes.

        Return 1 if that succeeded, 0 if the read does not have enough bytes, and -1 if out of memory.
        """
        cdef size_t n = 0 if self.kept_len >= want else min(want - self.kept_len, self.left)
        cdef char* more
        if want > self.kept_room:
            more = <char*> realloc(self.kept, want)
            if more == NULL:
                return -1
            self.kept, self.kept_room = more, want
        memcpy(self.kept + self.kept_len, self.data, n)
        self.kept_len += n
        self.data += n
        self.left -= n
        return self.kept_len >= want

    cdef int keep(self) noexcept nogil:
        """Store the rest of the read; return -1 if out of memory."""
        cdef size_t n = self.left
        if n == 0:
            return 0
        return -1 if self.refill(n) < 0 else 0

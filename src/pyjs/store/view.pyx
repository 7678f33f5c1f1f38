"""Memory with the plain image of one segment file, filled where it is read.

A segment that is compressed or encrypted cannot be mapped. Its records are read from memory of the image's size, of
which a chunk of 64 KiB becomes real when a record in it is asked for: the image (store/form) decrypts or decompresses
it then, and a bit says that it is there. What is written to the open segment is put here as well, if its end is.

Of a chunk with places that the disk cannot read, or that do not check out, no bit says so: who reads in it asks here,
and what does not touch those places is served.

Knows nothing of records. Compiled: the message path reads records here as it does in a map
(benchmarks/, JetStream rows with `key`).
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.store.index cimport CHUNK_BITS

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    CHUNK_SIZE = 65536          # 1 << CHUNK_BITS; that of compressed files


cdef class View:
    def __cinit__(self, image, uint64_t size):
        self.image = image
        self.size = size
        self.torn = {}
        self.memory = <char*> calloc(max(size, <uint64_t> 1), 1)       # large, so pages come as they are written
        self.filled.chunks = <uint64_t*> calloc((size >> (CHUNK_BITS + 6)) + 1, 8)
        if self.memory == NULL or self.filled.chunks == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.memory)
        free(self.filled.chunks)

    cdef int fill(self, object fd, uint64_t begin, uint64_t end, uint64_t limit) except -1:
        """Have the bytes begin..end here: 0, 1: some of them cannot be read.

        The file, which is open as `fd`, has `limit` bytes of the image by now.
        """
        cdef uint64_t chunk
        limit = min(limit, self.size)
        if end > limit:
            raise ValueError(f"byte {end} of an image of {limit} bytes")
        self.image.fd = fd
        self.image.grow(limit)
        for chunk in range(begin >> CHUNK_BITS, ((end - 1) >> CHUNK_BITS) + 1):
            if not self.filled.chunks[chunk >> 6] >> (chunk & 63) & 1:
                self.fill_chunk(chunk, limit)
                if chunk in self.torn and any(at < end and begin < behind for at, behind in self.torn[chunk][1]):
                    return 1
        return 0

    cdef int fill_chunk(self, uint64_t chunk, uint64_t limit) except -1:
        cdef uint64_t begin = chunk << CHUNK_BITS, end = min(begin + CHUNK_SIZE, limit)
        cdef Filled* f = &self.filled
        cdef bytes data
        read_to, holes = self.torn.get(chunk, (begin, []))
        if holes:
            begin = read_to
        elif end < begin + CHUNK_SIZE and f.begin <= begin < f.end:
            begin = f.end               # of the last chunk, which grows, a part is there
        if begin < end:
            data, more = self.image.read_around(begin, end - begin)
            memcpy(self.memory + begin, <const char*> data, min(<uint64_t> len(data), end - begin))
            if <uint64_t> len(data) < end - begin:      # the file was cut
                more = [*more, (begin + len(data), end)]
            holes = holes + more
        if holes:
            self.torn[chunk] = end, holes
        elif end == (chunk + 1) << CHUNK_BITS:
            f.chunks[chunk >> 6] |= <uint64_t> 1 << (chunk & 63)
        elif begin == f.end:
            f.end = max(end, f.end)
        else:
            f.begin, f.end = begin, end
        return 0

    cdef void put(self, const char* data, uint64_t at, size_t n) noexcept nogil:
        """Take bytes that were just written, if those before them are here."""
        if self.filled.end == at and self.filled.begin < at and at + n <= self.size:
            memcpy(self.memory + at, data, n)
            self.filled.end = at + n

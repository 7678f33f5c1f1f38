"""A view, which is memory for the plain image of one segment file; each read fills the chunks that it needs.

A compressed or encrypted segment cannot be mapped, so its records are read from memory that has the size of
the image. A read fills the chunk of 64 KiB that has the record: the image (store/format/image) decrypts or
decompresses the chunk, and a bit marks it as filled. Writes to the open segment are also copied to its view,
if the view has the bytes before them.

A chunk with unreadable or damaged places is never marked as filled, so every read in it is checked here.
Records outside these places can be read.

All views of a node share one limit on bytes, which is in their ViewCache. The least recently used views are freed
first, by their owners. Marking a view as used takes one store instruction (`used`).

This module knows nothing of records. Compiled: the message path reads records here as in a map (benchmarks/,
JetStream rows with `key`).
"""
cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.weakref cimport PyWeakref_NewRef
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from pyjs.store.index.sequences cimport CHUNK_BITS

cdef enum:
    CHUNK_SIZE = 65536          # 1 << CHUNK_BITS; also the chunk size of compressed files
    VIEWS_MAX = 1024            # maximum number of views; each is a map, and a process can have 65,530 maps
    READS_KEPT = 4              # a reader no longer needs a record when this many other records were read
# Maximum of filled bytes in all streams: enough for 1,024 places that are read at the same time, or for eight
# segments of 8 MiB that are read completely. If a view was freed, reading it again takes 0.2 ms: for one map and one
# chunk.
HELD_MAX = 64 << 20


@cython.no_gc    # it has only numbers, and a View that the garbage collector frees still needs them
cdef class ViewCache:
    def __init__(self, uint64_t held_max=HELD_MAX) -> None:
        self.held_max = held_max
        self.views = {}
        self.reads = READS_KEPT

    def __len__(self) -> int:
        return len(self.views)

    cdef int make_room(self) except -1:
        """Free views until the rest is within the limit; begin with those not used since the last call."""
        cdef View view
        cdef size_t address, left = 2 * len(self.views)
        while self.is_over() and left:
            left -= 1
            address = next(iter(self.views))
            view = <View> <void*> address
            if view.filled.used <= view.looked_at and view.filled.used + READS_KEPT <= self.reads:
                view.give_up()
            else:
                del self.views[address]
                self.views[address] = None
                view.looked_at = self.reads
        return 0

    cdef bint is_over(self):
        return self.held > self.held_max or len(self.views) > VIEWS_MAX


@cython.no_gc_clear                 # `leave` still needs the cache at the end
cdef class View:
    def __cinit__(self, ViewCache cache not None, owner, uint32_t number, image, uint64_t size):
        from pyjs.base.file_map import blank_memory     # imported lazily: not needed at start-up

        cdef Py_buffer memory
        self.cache = cache
        self.owner = PyWeakref_NewRef(owner, None)
        self.number = number
        self.image = image
        self.size = size
        self.torn = {}
        self.room = blank_memory(size)
        PyObject_GetBuffer(self.room, &memory, PyBUF_WRITABLE)
        self.memory = <char*> memory.buf
        PyBuffer_Release(&memory)
        self.filled.chunks = <uint64_t*> calloc((size >> (CHUNK_BITS + 6)) + 1, 8)
        self.filled.used = cache.reads
        if self.filled.chunks == NULL:
            raise MemoryError
        cache.views[<size_t> <void*> self] = None

    def __dealloc__(self):
        self.leave()
        free(self.filled.chunks)

    cdef int count(self, uint64_t n) except -1:
        """Add `n` filled bytes to the totals; free views if the limit is exceeded."""
        self.held += n
        self.cache.held += n
        return self.cache.make_room() if self.cache.is_over() else 0

    cdef int give_up(self) except -1:
        """Make the owner drop this view, and remove the view from the cache."""
        owner = self.owner()
        if owner is not None:
            owner.drop_map(self.number)
        self.leave()                    # even if the owner has no reference any more
        return 0

    cdef void leave(self) noexcept:
        """Remove this view from the cache; its owner has already dropped it."""
        self.cache.views.pop(<size_t> <void*> self, None)
        self.cache.held -= self.held
        self.held = 0

    cdef int fill(self, object fd, uint64_t begin, uint64_t end, uint64_t limit) except -1:
        """Fill the bytes from `begin` to `end`, exclusive. Return 0, or 1 if some of them cannot be read.

        `fd` is the open file, whose image has `limit` bytes now.
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
        elif f.begin <= begin < f.end:
            begin = f.end               # a part of the last chunk is filled already, and is extended
        if begin < end:
            data, more = self.image.read_around(begin, end - begin)
            memcpy(self.memory + begin, <const char*> data, min(<uint64_t> len(data), end - begin))
            if <uint64_t> len(data) < end - begin:      # another program truncated the file
                more = [*more, (begin + len(data), end)]
            holes = holes + more
            self.count(end - begin)
        if holes:
            self.torn[chunk] = end, holes
        elif end == (chunk + 1) << CHUNK_BITS:
            f.chunks[chunk >> 6] |= <uint64_t> 1 << (chunk & 63)
        elif begin == f.end:
            f.end = max(end, f.end)
        else:
            f.begin, f.end = begin, end
        return 0

    cdef int put(self, const char* data, uint64_t at, size_t n) except -1:
        """Copy `n` bytes of `data`, which were written to the file, to offset `at` of the view.

        Do nothing if the bytes before them are not filled.
        """
        if self.filled.end == at and self.filled.begin < at and at + n <= self.size:
            memcpy(self.memory + at, data, n)
            self.filled.end = at + n
            self.count(n)
        return 0

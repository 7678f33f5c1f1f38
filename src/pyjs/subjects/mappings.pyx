"""Subject mappings: the first entry that matches a published subject maps it to another subject.

An entry has weighted destinations. If the weights sum to less than 100 percent, the remaining messages keep the
published subject. However, they are dropped if that subject is itself a destination.

Source: nats.docs "Subject Mapping and Partitioning"; nats-server 2.15.1. Compiled: `select` runs for every publish in
an account with mappings (benchmarks/: core publish in an account with mappings).
"""
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from pyjs.subjects.rewrite cimport Rewrite


cdef class Destinations:
    """The destinations of one mapped subject, from pairs of a Rewrite and its weight as a percentage."""

    def __cinit__(self, list weighted):
        cdef uint32_t total = 0
        assert 0 < len(weighted) <= 101
        self.rewrites = []
        for rewrite, weight in sorted(weighted, key=by_weight):
            assert 0 <= weight <= 100 - total
            total += <uint32_t> weight
            self.sums[self.count] = total
            self.items[self.count] = <PyObject*> rewrite
            self.count += 1
            self.rewrites.append(rewrite)
        self.source = self.rewrites[0]


def by_weight(pair):
    """Return the weight in a (rewrite, weight) pair."""
    return pair[1]


cdef class Mappings:
    """The subject mappings of an account, in the order of their declaration."""

    def __cinit__(self, list entries, uint64_t seed):
        cdef size_t at
        self.entries = entries
        self.items = <PyObject**> calloc(len(entries) + 1, sizeof(PyObject*))
        if self.items == NULL:
            raise MemoryError
        self.count = <size_t> len(entries)
        for at in range(self.count):
            self.items[at] = <PyObject*> <Destinations?> entries[at]
        self.random_state = seed | 1

    def __dealloc__(self):
        free(self.items)

    cdef char* select(self, const char* s, size_t n, uint32_t* size) noexcept nogil:
        cdef size_t at
        for at in range(self.count):
            if (<Destinations> self.items[at]).source.fits(s, n):
                return self.map_to(<Destinations> self.items[at], s, n, size)
        return NULL

    cdef char* map_to(self, Destinations entry, const char* s, size_t n, uint32_t* size) noexcept nogil:
        cdef uint32_t i = 0, chance
        self.random_state ^= self.random_state << 13
        self.random_state ^= self.random_state >> 7
        self.random_state ^= self.random_state << 17
        chance = <uint32_t> ((self.random_state >> 32) % 100)
        while i < entry.count and chance >= entry.sums[i]:
            i += 1
        size[0] = 0
        if i == entry.count:
            return <char*> calloc(1, 1)
        return (<Rewrite> entry.items[i]).apply(s, n, size)

    def subject(self, bytes subject):
        """Return the mapped subject of a message published to `subject`, or b"" if the message must be dropped.

        Return `subject` itself if no mapping applies. A destination is chosen at random by its weight.
        """
        cdef uint32_t size = 0
        cdef char* made = self.select(subject, len(subject), &size)
        if made == NULL:
            return subject
        try:
            return made[:size]
        finally:
            free(made)

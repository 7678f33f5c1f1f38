"""Many appends to and loads from one store without Python in between, for benchmarks.

Compiled because the measured operations take less time than a Python call (benchmarks/store_start.py).
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from pyjs.store.store cimport Record, StreamStore
from pyjs.wire.ops cimport Msg


def append_many(StreamStore store not None, uint64_t count, uint32_t size, uint32_t batch=1000,
                uint32_t subjects=1) -> None:
    """Append `count` messages of `size` bytes; commit after each `batch` messages."""
    cdef bytes payload = b"x" * size
    names = [b"bench.%06d" % i for i in range(subjects)]
    cdef list keep = names
    cdef Msg m
    cdef uint64_t i
    cdef int64_t ts = 1_700_000_000_000_000_000
    cdef const char** heads = <const char**> malloc(subjects * sizeof(char*))
    for i in range(subjects):
        heads[i] = PyBytes_AS_STRING(keep[i])
    memset(&m, 0, sizeof(Msg))
    m.subject_len = 12
    m.body = payload
    m.size = size
    with nogil:
        for i in range(count):
            m.subject = heads[i % subjects]
            store.append(&m, ts + <int64_t> i)
            if (i + 1) % batch == 0:
                store.commit()
        store.commit()
    free(heads)


def load_many(StreamStore store not None, uint64_t low, uint64_t high) -> int:
    """Load each message from `low` to `high` - 1; return the total number of bytes."""
    cdef Record r
    cdef uint64_t seq, total = 0
    with nogil:
        for seq in range(low, high):
            if store.load(seq, &r) == 0:
                total += r.size + <uint8_t> r.body[0]
    return total

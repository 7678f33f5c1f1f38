"""Removal of messages that no consumer needs any more."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.interest cimport Interest
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.store cimport StreamStore
from pyjs.wire.ops cimport Msg

cdef uint64_t skip_unwanted(StreamStore store, Msg* m, int64_t wall, bint keeps_id) noexcept nogil
cdef int remove_unneeded(StreamStore store, Interest interest, uint64_t low, uint64_t high, StoreFilter f,
                         object replica) except -1

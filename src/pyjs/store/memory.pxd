"""The store of memory streams."""
from pyjs.store.index.sequences cimport Segment
from pyjs.store.store cimport StreamStore
from pyjs.wire.ops cimport Msg

cdef class MemStore(StreamStore):
    """A store of messages in memory, which are lost when the process ends."""
    cdef char** parts                   # copied messages of a batch that are not in the index yet
    cdef size_t n_parts, parts_room
    cdef size_t part_at                 # index of the next part that `append` uses
    cdef bint in_parts, adding  # in_parts: between begin_parts and the end of the batch; adding: after add_parts

    cdef Segment* begin_segment(self) noexcept nogil
    cdef char* body_of(self, Msg* m) noexcept nogil

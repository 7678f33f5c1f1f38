"""The store of memory streams."""
from pyjs.store.index.sequences cimport Segment
from pyjs.store.store cimport StreamStore

cdef class MemStore(StreamStore):
    """Messages in memory, lost when the process ends."""
    cdef Segment* begin_segment(self) noexcept nogil

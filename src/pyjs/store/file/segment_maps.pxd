"""Maps and views of the segments of a directory."""
from libc.stdint cimport uint32_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.view cimport View, ViewCache

cdef class SegmentMaps:
    """The maps and views of the segments of a directory, and the maps of their index files, by segment number."""
    cdef Catalogue catalogue
    cdef readonly ViewCache view_cache      # shared by all stores of the node
    cdef dict maps                          # segment number -> memoryview of its map
    cdef dict views                         # segment number -> View of a segment that is not plain
    cdef dict index_maps                    # segment number -> map of its entries, until the segment is freed
    cdef object __weakref__                 # the views have weak references to this object

    cdef void add_map(self, Segment* s, object view, size_t size) except *
    cdef int add_view(self, Segment* s, View view) except -1
    cdef void forget(self, Segment* s) noexcept

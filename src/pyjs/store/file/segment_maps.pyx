"""Maps and views of the segments of a directory; `SegmentMaps` owns the memory that the segments point into.

A Segment borrows the bytes of its map or view, which stay valid until `forget`. When there are too many maps,
all maps and views are freed at once. The cache of views frees a view when it needs memory.

This module knows nothing of records. Compiled: a Segment holds plain pointers (benchmarks/, pull consumers).
"""
from pyjs.base.borrow cimport borrowed
from pyjs.store.index.sequences cimport index_place

cdef enum:
    MAPS_MAX = 4096             # maximum number of maps at the same time, far below the kernel's limit per process


cdef class SegmentMaps:
    def __init__(self, Catalogue catalogue not None, view_cache) -> None:
        self.catalogue = catalogue
        self.view_cache = ViewCache() if view_cache is None else view_cache
        self.maps = {}
        self.views = {}
        self.index_maps = {}

    cdef void add_map(self, Segment* s, object view, size_t size) except *:
        """Make later reads of `s` use the map `view`, which has `size` bytes."""
        cdef size_t n = 0
        cdef const char* data = borrowed(view, &n)
        assert n >= size
        if len(self.maps) >= MAPS_MAX:
            self.drop_maps()
        self.maps[s.number] = view
        s.data = data
        s.map_size = size

    cdef int add_view(self, Segment* s, View view) except -1:
        """Make later reads of `s` use `view`."""
        self.forget(s)
        self.views[s.number] = view
        s.data, s.filled, s.map_size = view.memory, &view.filled, view.size
        return 0

    cdef void forget(self, Segment* s) noexcept:
        """Free the map or the view of `s`."""
        cdef View view = self.views.pop(s.number, None)
        if view is not None:
            view.leave()
        self.maps.pop(s.number, None)
        s.data, s.filled, s.map_size = NULL, NULL, 0

    def drop_map(self, uint32_t number) -> None:
        """Free the map or view of the segment with this number, if there is one."""
        cdef size_t at = index_place(&self.catalogue.index, number)
        if at < self.catalogue.index.n:
            self.forget(self.catalogue.index.segments[at])

    def drop_maps(self) -> None:
        """Free the maps and views of all segments; the next read of a segment creates its own again."""
        cdef size_t i
        for i in range(self.catalogue.index.n):
            self.forget(self.catalogue.index.segments[i])

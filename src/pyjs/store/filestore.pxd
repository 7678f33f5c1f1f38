"""The store of file streams."""
from pyjs.store.segment_store cimport SegmentStore

cdef class FileStore(SegmentStore):
    """Messages in segment files of one directory, and when they are on the medium."""
    cdef bint removal_is_due(self)

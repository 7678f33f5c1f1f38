"""The start of a file store."""
from pyjs.store.file.eraser cimport Eraser
from pyjs.store.file.examiner cimport Examiner
from pyjs.store.file.segment_writer cimport SegmentWriter
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.recovery cimport Recovery
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.store cimport StreamStore

cdef class StoreStart:
    """One start: the segments of a directory, adopted by a store, and what their records remove."""
    cdef StreamStore store
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef SegmentWriter writer
    cdef Examiner examiner
    cdef Eraser eraser
    cdef readonly Recovery recovery
    cdef list erased                # messages whose bytes are overwritten
    cdef set removed                # sequences that the DELETES records name; empty: nobody asks

    cdef finish_erasure(self)
    cdef drop_removed(self)
    cdef reopen(self)
    cdef leave_last(self, Segment* s)

"""Compaction: segments are written again, smaller or in another form."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.file.condition cimport StoreCondition
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.rewrite cimport SegmentRewrite
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_maps cimport SegmentMaps
from pyjs.store.file.store_sync cimport RetiredFiles, StoreSync

cdef class Compactor:
    """Which segments of a store are to be written again, and the job that does it."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef StoreCondition condition
    cdef StoreSync syncs
    cdef SegmentMaps maps
    cdef RetiredFiles retired
    cdef readonly uint32_t codec            # what sealed segments are compressed with; 0: they are not
    cdef list sparse                        # numbers of segments of which most is dead
    cdef list formless                      # numbers of sealed segments that should have another form
    cdef object recasting                   # recast.Recast handed out
    cdef SegmentRewrite rewriting           # handed out
    cdef SegmentRewrite rewritten           # done, and waits for the sync of what made messages superfluous

    cdef void note_sparse(self, Segment* s) noexcept nogil
    cdef void note_form(self, Segment* s) noexcept nogil
    cdef void outdate(self, uint32_t number) except *
    cdef bint is_busy(self)
    cdef bint has_work(self)
    cdef bint is_closed(self) noexcept nogil
    cdef void renew_index(self, Segment* s, bint footer, uint64_t chain) except *
    cdef void give_up(self, Segment* s) noexcept

"""Compaction, which rewrites segments to leave out dead messages, or to change the compression or encryption."""
from libc.stdint cimport uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.file.condition cimport StoreCondition
from pyjs.store.index.sequences cimport Segment
from pyjs.store.segment.rewrite cimport SegmentRewrite
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_maps cimport SegmentMaps
from pyjs.store.file.store_sync cimport RetiredFiles, StoreSync

cdef class Compactor:
    """The queues of a store's segments to rewrite, and the job that rewrites one of them."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef StoreCondition condition
    cdef StoreSync syncs
    cdef SegmentMaps maps
    cdef RetiredFiles retired
    cdef readonly uint32_t codec            # compression of sealed segments; 0: none
    cdef list sparse                        # numbers of segments of which over half is dead
    cdef dict repairs       # number of a damaged segment -> records from other replicas that replace the damaged ones
    cdef set failed         # numbers of segments whose last repair could not be written
    cdef dict damaged                       # Examiner.damaged
    cdef list to_recast                      # numbers of sealed segments to compress or encrypt
    cdef object recasting                   # the running recast.Recast job
    cdef SegmentRewrite rewriting           # the running compaction job
    cdef SegmentRewrite rewritten           # a finished compaction that waits until the removals are durable

    cdef void note_sparse(self, Segment* s) noexcept nogil
    cdef void note_encoding(self, Segment* s) noexcept nogil
    cdef void outdate(self, uint32_t number) except *
    cdef bint is_busy(self)
    cdef bint has_work(self)
    cdef bint is_closed(self) noexcept nogil
    cdef void renew_index(self, Segment* s, bint footer, uint64_t chain) except *
    cdef void give_up(self, Segment* s) noexcept

"""Segment files of one directory: records appended, read and removed."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.index cimport Entry, Segment
from pyjs.store.index_file cimport FullSegment
from pyjs.store.rewrite cimport SegmentRewrite
from pyjs.store.segment_reader cimport SegmentReader

cdef enum:
    STAGED_MAX = 262144         # bytes written at once

cdef class SegmentStore(SegmentReader):
    """Messages in segment files of one directory. The synced state is filestore.pyx's, which inherits this."""
    cdef public int64_t seal_age_ns         # a segment is sealed when its first message is so old; 0: never
    cdef readonly uint32_t codec            # what sealed segments are compressed with; 0: they are not
    cdef bytes meta                         # the stream's metadata, for META records; b"": unknown
    cdef bint meta_due                      # the last segment does not hold it
    cdef readonly list set_aside            # paths of segments that are not read, from now or earlier
    cdef readonly bint resumable            # failed for want of space or descriptors: it may work later
    cdef readonly bint sync_lost            # a sync failed: none is believed any more
    cdef readonly uint64_t written_mark     # counts commits that wrote something
    cdef readonly uint64_t synced_mark      # the last of them that is on the medium
    cdef object veil                        # form.TailVeil of the last segment; None: it is plain or not open
    cdef bint left                          # the last segment has no footer, and gets no more records
    cdef object stored_tail                 # (number, index file) of a segment as it stopped; None: it has its own
    cdef dict index_maps                    # segment number -> map that its entries are in; as long as the segment
    cdef list unsynced                      # paths of segments written since the last sync
    cdef list found                         # paths of segments that a killed process may not have synced
    cdef list doomed                        # (written_mark, path): files to go when it is synced; 0: not committed
    cdef object removing                    # removal.SegmentRemoval handed out; None: none is
    cdef bint doomed_since                  # some of them were doomed after the last commit
    cdef object in_flight                   # the SyncJob handed out, None: no sync is on its way
    cdef readonly bint closed
    cdef bint names_unsynced                # the directory changed
    cdef public tuple names_above           # directories found at the start, to be synced with the first job
    cdef bint recovering                    # changes come from the files: write nothing
    cdef bint state_due                     # first_seq or last_seq moved without a record
    cdef uint32_t next_number
    cdef size_t staged, staging_room
    cdef uint64_t staged_from               # sequence of the first staged message
    cdef uint64_t chain                     # checksum of the last record
    cdef uint64_t chain_written             # checksum of the last record in the file
    cdef list unindexed                     # FullSegments without index file
    cdef list sparse                        # numbers of segments to be written anew
    cdef list formless                      # numbers of sealed segments that should have another form
    cdef object recasting                   # recast.Recast handed out by begin_upkeep
    cdef SegmentRewrite rewriting           # handed out by begin_upkeep
    cdef SegmentRewrite rewritten           # done, and waits for the sync of what made messages superfluous
    cdef Segment** buried                   # gone, but a sync that is on its way may read their entries
    cdef size_t n_buried, buried_room
    cdef bint mended                        # after a failed write: entries may have no record
    cdef uint64_t allocated                 # bytes reserved for the last segment
    cdef uint64_t* removals                 # interior removals to record with the next commit
    cdef size_t n_removals, removals_room
    cdef uint64_t* erasures                 # likewise, of messages whose bytes are overwritten
    cdef size_t n_erasures, erasures_room

    cdef char* stage(self, size_t length) noexcept nogil        # NULL: the store failed
    cdef int begin_segment(self) noexcept nogil
    cdef int new_segment(self) except -1
    cdef int seal(self) noexcept nogil
    cdef int write_staged(self) noexcept nogil
    cdef int write_out(self) except -1
    cdef int stage_state(self) noexcept nogil
    cdef int stage_meta(self) noexcept nogil
    cdef int leave_empty_tail(self) noexcept nogil
    cdef bint outgrown(self, Segment* s, size_t length, int64_t ts) noexcept nogil
    cdef int stage_removals(self) noexcept nogil
    cdef int stage_sequences(self, uint64_t* seqs, size_t n, int flags) noexcept nogil
    cdef int stage_plain(self, int kind, int flags, uint64_t seq, const char* body, size_t n) noexcept nogil
    cdef void fail(self, object error) noexcept
    cdef void forget_staged(self) noexcept nogil
    cdef void note_form(self, Segment* s) noexcept nogil
    cdef bint is_growing(self, Segment* s) noexcept nogil
    cdef int wrote(self, str path) except -1
    cdef int unpack(self, Segment* s) except -1
    cdef int record_erasure(self, uint64_t seq) noexcept nogil
    cdef int overwrite_veiled(self, int fd, Segment* s, Entry* e, uint64_t at) except -1
    cdef int write_veiled(self, Segment* s, int fd) except -1
    cdef int note_removal(self, uint64_t seq, bint erased) noexcept nogil
    cdef int keep_removed(self, Segment* s, uint64_t seq) noexcept nogil
    cdef void note_sparse(self, Segment* s) noexcept nogil
    cdef void overwrite(self, Segment* s, uint32_t i) noexcept
    cdef FullSegment without_index(self, Segment* s, bint footer)
    cdef void bury(self, Segment* s) noexcept nogil
    cdef void keep_buried(self, Segment* s) noexcept nogil
    cdef void unearth(self) noexcept nogil
    cdef void doom(self, Segment* s) noexcept
    cdef void date_doomed(self) noexcept

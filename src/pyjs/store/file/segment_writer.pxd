"""The open segment of a stream, to which log records are appended."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.file.compactor cimport Compactor
from pyjs.store.file.condition cimport StoreCondition
from pyjs.store.index.sequences cimport Found, Segment
from pyjs.store.segment.entry_mark cimport EntryMark
from pyjs.store.segment.index_file cimport FullSegment
from pyjs.store.segment.recovery cimport RecoveredSegment
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_maps cimport SegmentMaps
from pyjs.store.file.store_sync cimport RetiredFiles, StoreSync
from pyjs.wire.ops cimport Msg

cdef enum:
    STAGED_MAX = 262144         # bytes that are written at once

cdef enum Parts:
    NO_PARTS
    PARTS_COME                  # `append` refuses: a message would take the place of the parts
    PARTS_ADDED                 # `append` adds them to the index

cdef enum Entries:
    NOT_REPLICATED
    ALL_MARKED                  # the last mark in the file covers everything
    MARK_DUE                    # the next STATE record must contain `mark`
    IN_ENTRY    # an entry is being applied, and no mark covers its effects yet: the segment must not be sealed

cdef struct Sequences:          # an array that grows
    uint64_t* seqs
    size_t n
    size_t room

cdef class SegmentWriter:
    """A writer that appends log records to the open segment of a directory, and begins and seals segments."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef StoreCondition condition
    cdef StoreSync syncs
    cdef Compactor compactor
    cdef SegmentMaps maps
    cdef RetiredFiles retired
    cdef public uint64_t segment_size       # a segment is sealed before it grows beyond this size
    cdef public int64_t seal_age_ns         # a segment is sealed when its first message is this old, ns; 0: never
    cdef uint32_t next_number               # number of the next segment
    cdef bint meta_due                      # the current metadata is not in the last segment yet
    cdef bint state_due  # first_seq or last_seq has changed: the next commit must write a STATE record
    cdef bint left                          # the last segment gets no more records, although it has no FOOTER
    cdef bint mended                        # a write failed: some entries may not have a record
    cdef object encryption    # image.TailEncryption of the last segment; None: it is plain, or not open
    # (number, index file) of the last segment, if its index file is in the common file; None: it is not
    cdef object stored_tail
    cdef char* staging                      # records of the last segment that are not written yet
    cdef size_t staged, staging_room
    cdef bint batching                      # between begin_batch and its end
    cdef size_t batch_at, last_at           # offsets in `staging`: the start of the batch, and its last record
    cdef uint64_t batch_chain, chain_before_last        # the checksums of the records before these two
    cdef uint64_t batch_from                # the first sequence of the batch
    # offset of the parts of a batch (0: none), and the checksum of the record before them
    cdef uint64_t part_at, part_chain
    cdef Parts parts                        # the effect of `append` while there are parts
    cdef uint64_t staged_from               # sequence of the first staged message
    cdef uint64_t chain                     # checksum of the last record
    cdef uint64_t chain_written             # checksum of the last record in the file
    cdef uint64_t written                   # bytes of the last segment that are in its file
    cdef uint64_t allocated                 # bytes reserved in the file
    cdef uint64_t indexed                   # bytes that the index file covers; 0: there is no index file
    cdef Entries entries                    # in a replicated stream: the state of the marks
    cdef EntryMark mark                     # the mark of the last complete entry
    # index in the last mark that was staged or written; and in the last one written
    cdef uint64_t staged_index, kept_index
    cdef Sequences removals                 # removals that the next commit must record, except those at the front
    cdef Sequences erasures                 # like `removals`, for erased messages

    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil
    cdef int begin_batch(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil
    cdef void end_batch(self) noexcept nogil
    cdef void drop_batch(self) noexcept nogil
    cdef void encode(self, char* p, Msg* m, size_t length, uint64_t seq, int64_t ts, int flags) noexcept nogil
    cdef int begin_parts(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil
    cdef int put_part(self, Msg* m, uint64_t seq, int64_t ts, bint last) noexcept nogil
    cdef int flush_parts(self) noexcept nogil
    cdef void end_parts(self) noexcept nogil
    cdef void drop_parts(self) noexcept nogil
    cdef void take_back_parts(self) noexcept
    cdef bint outgrown(self, Segment* s, size_t length, int64_t ts) noexcept nogil
    cdef Segment* tail(self) noexcept nogil
    cdef int jump_to(self, uint64_t seq) noexcept nogil
    cdef int commit(self) noexcept nogil
    cdef char* stage(self, size_t length) noexcept nogil
    cdef int stage_plain(self, int kind, int flags, uint64_t seq, const char* body, size_t n) noexcept nogil
    cdef int stage_state(self) noexcept nogil
    cdef int stage_meta(self) noexcept nogil
    cdef int begin_entry(self, uint64_t size) except -1
    cdef void end_entry(self, EntryMark mark)
    cdef int expect_step(self) noexcept nogil
    cdef int stage_mark(self) noexcept nogil
    cdef int stage_sequences(self, Sequences* list, int flags) noexcept nogil
    cdef int write_staged(self) noexcept nogil
    cdef void write_out(self) except *
    cdef void write_encrypted(self, Segment* s, int fd) except *
    cdef void fail(self, object error) noexcept
    cdef void forget_staged(self) noexcept nogil
    cdef int begin_segment(self) noexcept nogil
    cdef void new_segment(self) except *
    cdef int seal(self) noexcept nogil
    cdef FullSegment without_index(self, Segment* s, bint footer)
    cdef int note_removal(self, uint64_t seq, bint erased) noexcept nogil
    cdef void note_removals(self, uint64_t base, Found* found, uint32_t begin) noexcept nogil
    cdef int keep_recorded(self, Sequences* list, uint64_t bit) noexcept nogil
    cdef int record_erasure(self, uint64_t seq) noexcept nogil
    cdef bint has_news(self) noexcept nogil
    cdef void forget_removals(self) noexcept nogil
    cdef bint is_unindexed(self)
    cdef void go_on_behind(self, RecoveredSegment found) noexcept
    cdef void take_over(self, uint32_t next_number, object stored_tail, bint state_due) noexcept

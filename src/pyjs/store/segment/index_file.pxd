"""Index files: the contents of one segment, which a recovery can map. See docs/storage-format.md."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Entry, Segment
from pyjs.store.segment.contents cimport SegmentContents
from pyjs.store.segment.segment_files cimport SegmentFiles

cdef enum:
    INDEX_VERSION = 1
    INDEX_HEADER_SIZE = 128

cdef packed struct IndexHeader:
    char[8] magic
    uint32_t version
    uint32_t flags              # 0, or in the outer header of an encrypted file: the cipher
    uint64_t base_seq
    uint32_t number             # number of the segment, as in its file name
    uint32_t sealed             # 1: the segment ends with a FOOTER
    uint64_t incarnation
    uint64_t segment_size       # bytes of header and records
    uint64_t segment_checksum   # checksum of the segment's last record
    uint64_t floor
    int64_t first_ts
    int64_t last_ts
    uint64_t message_bytes
    uint32_t entry_size         # 40
    uint32_t entries
    uint32_t messages
    uint32_t with_headers
    uint32_t subject_size       # 24
    uint32_t subjects
    uint32_t names_size
    uint32_t removals
    uint64_t spare

cdef class FullSegment:
    """The data for the index file of a segment that gets no more records; another thread writes the file.

    The entries belong to the store, which neither changes nor frees them until the sync with this object ends.
    """
    cdef Catalogue catalogue
    cdef object retired  # store_sync.RetiredFiles, which keeps the entries in memory, as the catalogue does
    cdef readonly str path
    cdef readonly object key            # keys.StreamKey of the stream; None: not encrypted
    cdef uint64_t base_seq, incarnation, end, chain, floor
    cdef readonly uint32_t number
    cdef bint sealed
    cdef Entry* entries                 # NULL: some entries are dead, so the segment must be read
    cdef uint32_t n
    cdef uint64_t* removals
    cdef uint32_t n_removals

    cdef SegmentContents contents(self, const char* file, size_t size, char* room)
    cdef int fill(self, SegmentContents c, const char* file) noexcept nogil

cdef FullSegment full_segment(Catalogue catalogue, SegmentFiles files, object retired, Segment* s, bint footer,
                              uint64_t chain, bint whole)
cpdef bytes encode_index(SegmentContents c)
cpdef SegmentContents decode_index(data)

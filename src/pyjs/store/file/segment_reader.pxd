"""Records of a directory's segments, read by sequence."""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Entry, Segment
from pyjs.store.index.subjects cimport Subject, subject_by_id
from pyjs.store.segment.segment_files cimport SegmentFiles
from pyjs.store.file.segment_maps cimport SegmentMaps
from pyjs.store.file.segment_writer cimport SegmentWriter

cdef enum Trust:                # the checks of a record that may be skipped
    TRUST_NOTHING               # none, even if this process wrote the record
    TRUST_NONE                  # none, unless this process wrote or examined the record
    TRUST_READER                # only `check` in the record's header, which the client verifies
    TRUST_ALL                   # the checksum too, since this process wrote the record

cdef int failure_of(object error)

cdef inline bint has_subject(Catalogue catalogue, Segment* s, Entry* e, const char* name, size_t n) noexcept nogil:
    """Return whether the index has the subject `name` for the entry `e`."""
    cdef Subject* subject = subject_by_id(&catalogue.subjects.table,
                                          e.subject_id if s.locals == NULL else s.locals[e.subject_id].id)
    return subject != NULL and subject.len == n and memcmp(subject.name, name, n) == 0

cdef class SegmentReader:
    """A reader of records in maps, in views and in the writer's staging buffer."""
    cdef Catalogue catalogue
    cdef SegmentFiles files
    cdef SegmentMaps maps
    cdef SegmentWriter writer
    cdef uint32_t doubted       # number of the open segment if it has damaged messages in the catalogue; 0: none

    # Find the record of the live entry i. Return 0, 1 if it is damaged, -2 if it is unreadable, -3 if it is not
    # readable now.
    cdef int find(self, Segment* s, uint32_t i, const char** p, Trust trust) noexcept nogil
    cdef void read_ahead(self, uint64_t seq, uint64_t size) noexcept nogil
    cdef int map_segment(self, Segment* s, uint64_t wanted) noexcept nogil
    cdef int open_view(self, Segment* s, uint64_t wanted) except -1
    cdef int fill(self, Segment* s, uint64_t begin, uint64_t end) noexcept nogil

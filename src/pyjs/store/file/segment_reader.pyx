"""Records of a directory's segments, read by sequence.

A record is in the map of a plain file, in the view of a compressed or encrypted file, or in the staging buffer.

A record that this process did not write is checked before it is returned. If the record is damaged, the store
examines the whole segment.

This module knows nothing of writing. Compiled: benchmarks/, pull consumers.
"""
from libc.string cimport memcpy

from pyjs.base.bad_pages cimport is_readable
from pyjs.base.file_map cimport advise_reads
from pyjs.store.index.sequences cimport Entry, SeqIndex, index_at, index_last, index_place, is_filled
from pyjs.store.format.record cimport (
    CHECKSUM_SIZE, FLAG_ERASED, FLAG_EXTENDED, KIND_MSG, RECORD_HEADER_SIZE, RECORD_SIZE_MIN, RecordHeader,
    stored_checksum, whole,
)
from pyjs.store.segment.view cimport View, note_use

from pyjs.base.disk import UNOPENED, closing, read_around
from pyjs.base.errors import CorruptRecord
from pyjs.store.format.image import UNREADABLE, open_image, read_image


cdef int failure_of(object error):
    """Return the result code of a failed read: -3 if a later read may succeed, otherwise -2."""
    return -3 if isinstance(error, MemoryError) or getattr(error, "errno", 0) in UNOPENED else -2


cdef inline bint checks_out(const char* p, Entry* e, uint64_t room) noexcept nogil:
    """Return whether an intact record for the entry `e` is at `p`; `room` bytes can be read there."""
    cdef RecordHeader h
    cdef uint64_t before = 0
    memcpy(&h, p, RECORD_HEADER_SIZE)
    if h.length > room or h.seq != e.seq or h.kind != KIND_MSG or h.flags & FLAG_ERASED \
            or h.subject_len != e.subject_len or h.header_len != e.header_len:
        return False
    if h.length != RECORD_SIZE_MIN + (16 if h.flags & FLAG_EXTENDED else 0) + e.subject_len + e.size:
        return False
    memcpy(&before, p - CHECKSUM_SIZE, CHECKSUM_SIZE)
    return whole(p, before)


cdef inline int find_record(SegmentReader self, Segment* s, Entry* e, uint64_t end, Trust trust) noexcept nogil:
    """Map `s` up to `end`, the end of the record of `e`, and check the record.

    Return 0 if the record is intact, 1 if it is damaged, or a negative code if the file cannot be read.
    """
    cdef int failed = 0 if end <= s.map_size else self.map_segment(s, end)
    cdef RecordHeader h
    if failed == 0 and s.filled != NULL:
        note_use(self.maps.view_cache, s.filled)
        if not is_filled(s.filled, e.offset - CHECKSUM_SIZE, end):
            failed = self.fill(s, e.offset - CHECKSUM_SIZE, end)
    if failed:
        return failed
    if trust <= TRUST_NONE:
        return not checks_out(s.data + e.offset, e, s.map_size - e.offset)
    if not is_readable(s.data + e.offset, end - e.offset):
        return 1
    memcpy(&h, s.data + e.offset, RECORD_HEADER_SIZE)
    # After the end of a truncated file, the rest of its last page is zeros.
    return h.seq != e.seq or h.length > s.map_size - e.offset \
        or stored_checksum(s.data + e.offset, h.length) == 0


cdef inline bint is_named_right(SegmentReader self, Segment* s, Entry* e) noexcept nogil:
    """Return whether the record of `e` in the file has the same subject as in the index."""
    cdef RecordHeader h
    memcpy(&h, s.data + e.offset, RECORD_HEADER_SIZE)
    return has_subject(self.catalogue, s, e, s.data + e.offset + RECORD_HEADER_SIZE
                       + (16 if h.flags & FLAG_EXTENDED else 0), e.subject_len)


cdef inline int find_whole(SegmentReader self, Segment* s, Entry* e, const char** out, Trust trust) noexcept nogil:
    """Set `out` to the checked record of the live entry `e`.

    Return 0 if it is intact, 1 if it is damaged, -2 if it is unreadable, or -3 if a later read may succeed.
    """
    cdef uint64_t end = <uint64_t> e.offset + RECORD_SIZE_MIN + e.subject_len + e.size
    cdef bint last = s == index_last(&self.catalogue.index)
    cdef bint staged = last and e.offset >= self.writer.written
    cdef uint64_t seq = e.seq
    cdef const char* p
    cdef RecordHeader h
    cdef int damaged
    if staged:
        p = self.writer.staging + (e.offset - self.writer.written)
    else:
        # This process wrote or read all records that no index file covers.
        if s.examined:
            trust = TRUST_ALL
        elif last and trust != TRUST_ALL and s.number == self.doubted:
            trust = TRUST_NONE
        elif last and trust != TRUST_NOTHING and e.offset >= self.writer.indexed:
            trust = TRUST_ALL
        damaged = find_record(self, s, e, end, trust)
        if damaged == 0 and trust <= TRUST_NONE and not is_named_right(self, s, e):
            damaged = 1
        if damaged:
            return damaged
        p = s.data + e.offset
    memcpy(&h, p, RECORD_HEADER_SIZE)
    end += 16 if h.flags & FLAG_EXTENDED else 0
    if h.seq != seq or h.length != end - e.offset or h.subject_len != e.subject_len:
        return -2
    if not staged and end > s.map_size:
        return -2
    out[0] = p
    return 0


cdef class SegmentReader:
    def __init__(self, SegmentWriter writer not None) -> None:
        self.catalogue = writer.catalogue
        self.files = writer.files
        self.maps = writer.maps
        self.writer = writer

    cdef int find(self, Segment* s, uint32_t i, const char** p, Trust trust) noexcept nogil:
        return find_whole(self, s, &s.entries[i], p, trust)

    cdef void read_ahead(self, uint64_t seq, uint64_t size) noexcept nogil:
        """Make the kernel begin to read `size` bytes of plain segments into memory, from the record of `seq` on.

        Without this, a read of many old messages blocks the event loop while the kernel waits for the disk.
        """
        cdef SeqIndex* index = &self.catalogue.index
        cdef size_t at = index_at(index, seq)
        cdef Segment* s
        cdef uint64_t begin, end
        while size and at + 1 < index.n:        # the last segment was just written, so it is in memory
            s = index.segments[at]
            begin = s.entries[seq - s.base].offset if s.n and seq > s.base else 0
            end = min(begin + size, s.end)
            if s.encoding or end <= begin or (end > s.map_size and self.map_segment(s, end) != 0):
                return
            size -= end - begin
            advise_reads(s.data, begin, end)
            at += 1
            seq = 0

    # -- files -------------------------------------------------------------------------------------------------
    cdef int map_segment(self, Segment* s, uint64_t wanted) noexcept nogil:
        """Map at least `wanted` bytes of the file of `s`, or create a view if the file is not plain.

        Return 0 if it is mapped, 1 if it is damaged or too short, -2 if it is unreadable, or -3 if a later read may
        succeed.
        """
        cdef int failed = -2
        with gil:
            try:
                if s.encoding:
                    return self.open_view(s, wanted)
                with closing(self.files.disk, self.files.handles.open_to_read(self.files.path_of(s.number))) as fd:
                    size = self.files.disk.size_of(fd)
                    if size < wanted:
                        raise EOFError(f"{size} bytes where {wanted} were written")
                    self.maps.add_map(s, self.files.disk.map_file(fd, size), size)
                failed = 0
            except CorruptRecord:               # an examination will report the damage
                failed = 1
            except UNREADABLE + (EOFError,) as error:
                failed = 1 if isinstance(error, EOFError) else failure_of(error)
                self.files.log.error(f"{self.files.path_of(s.number)} cannot be read: {error}")
        return failed

    cdef int open_view(self, Segment* s, uint64_t wanted) except -1:
        """Create a view for at least `wanted` bytes of the image of `s`."""
        size = s.end if s.sealed else max(self.writer.segment_size, wanted)
        with closing(self.files.disk, self.files.handles.open_to_read(self.files.path_of(s.number))) as fd:
            image = open_image(self.files.disk, self.files.path_of(s.number), fd, self.files.key)
            return self.maps.add_view(s, View(self.maps.view_cache, self.maps, s.number, image, size))

    cdef int fill(self, Segment* s, uint64_t begin, uint64_t end) noexcept nogil:
        """Fill the view of `s` with the part of the image from `begin` to `end`.

        Return 0 if it is filled, 1 if some bytes are damaged, -2 if the file is unreadable, or -3 if a later read may
        succeed.
        """
        cdef int failed = -2
        cdef uint64_t limit = self.writer.written if s == index_last(&self.catalogue.index) else s.end
        with gil:
            try:
                with closing(self.files.disk, self.files.handles.open_to_read(self.files.path_of(s.number))) as fd:
                    failed = (<View> self.maps.views[s.number]).fill(fd, begin, end, limit)
            except (OSError, ValueError, MemoryError) as error:
                failed = failure_of(error)
                self.files.log.error(f"{self.files.path_of(s.number)} cannot be read: {error}")
        return failed

    def read_segment(self, uint32_t number) -> bytes:
        """Return the used bytes of a segment's plain image, with filler bytes for unreadable places.

        Raises the same errors as `read_image` and `read_around`.
        """
        cdef Segment* last = index_last(&self.catalogue.index)
        if self.catalogue.index.segments[index_place(&self.catalogue.index, number)].encoding:
            data = bytes(read_image(self.files.disk, self.files.path_of(number), self.files.key, True))
        else:
            data = read_around(self.files.disk, self.files.path_of(number))
        return data[:self.writer.written] if last.number == number else data

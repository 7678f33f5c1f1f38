"""Examination of damaged segments: when a record is damaged, its whole segment is read as at a start.

Damaged messages are counted, reported and dropped from the catalogue; the others are now known to be intact.
If the segment is intact but differs from its index file, that file is removed and the store must be reopened.
If another replica has the messages, the damaged ones stay in the catalogue, and reads of them wait for a new store.

Knows nothing of the code that read the record. Compiled: it compares every entry of a
segment (benchmarks/store_start.py).
"""
from pyjs.store.file.condition cimport STORE_CLOSED
from pyjs.store.file.eraser cimport is_overwritten
from pyjs.store.index.sequences cimport ENTRY_ERASED, ENTRY_MSG, index_find, index_last, index_place, is_dead
from pyjs.store.format.record cimport SEGMENT_HEADER_SIZE
from pyjs.store.file.segment_reader cimport failure_of, has_subject
from pyjs.store.segment.contents cimport SubjectRow

from pyjs.base.errors import CorruptRecord
from pyjs.store.format.image import UNREADABLE
from pyjs.store.segment.index_file import index_path, remove_file
from pyjs.store.segment.recovery import contents_of, report


cdef enum:
    LISTED_MAX = 1000           # lost sequences that are listed


cdef bint same_record(Entry* e, Entry* found) noexcept nogil:
    """Return whether the scan found an intact message at the place of an entry."""
    return (found.flags & (ENTRY_MSG | ENTRY_ERASED) == ENTRY_MSG and found.offset == e.offset
            and found.size == e.size and found.header_len == e.header_len and found.subject_len == e.subject_len)


cdef class Losses:
    def __init__(self) -> None:
        self.seqs = []


cdef class Examiner:
    def __init__(self, SegmentReader reader not None) -> None:
        self.catalogue = reader.catalogue
        self.files = reader.files
        self.writer = reader.writer
        self.reader = reader
        self.losses = Losses()

    cdef int examine(self, uint64_t seq) noexcept nogil:
        """Examine the segment of `seq` and drop its damaged messages. Return 0, -2 unreadable, -3 not now."""
        cdef Segment* s
        cdef int failed = -2
        if self.mistaken:
            return -3
        with gil:
            try:
                s = index_find(&self.catalogue.index, seq)
                c = self.contents_in(s)
                if self.contradicts(s, c):
                    self.distrust(s)
                else:
                    self.drop_damaged(s, c)
                failed = -3 if self.mistaken else 0
            except UNREADABLE as error:
                failed = failure_of(error)
                self.files.log.error(f"{self.files.directory}: message {seq} is damaged, "
                                     f"and its segment cannot be read: {error}")
        return failed

    def confirm(self, uint32_t number) -> int:
        """Examine a sealed segment that another reader found damaged; return the number of damaged places.

        The segment may have been changed or compacted meanwhile.

        Raises:
            OSError: the file cannot be read.
        """
        cdef size_t at = index_place(&self.catalogue.index, number)
        cdef Segment* s
        if at == self.catalogue.index.n or self.writer.condition.state == STORE_CLOSED:
            return 0
        s = self.catalogue.index.segments[at]
        if s.examined or not s.sealed or self.mistaken:
            return 0
        c = self.contents_in(s)
        if self.contradicts(s, c):
            self.distrust(s)
            return 1
        if c.problems:
            self.drop_damaged(s, c)
        return len(c.problems)

    cdef SegmentContents contents_in(self, Segment* s):
        """Return the contents of a segment's file, or only the damage if its header is damaged."""
        cdef SegmentContents c
        path = self.files.path_of(s.number)
        try:
            c = contents_of(path, self.reader.read_segment(s.number), s.number, self.files.incarnation, s.base, True)
        except CorruptRecord as error:              # its outer header is damaged
            self.files.log.warn(str(error))
            c = None
        if c is None:
            c = SegmentContents()
            c.problems.append((0, SEGMENT_HEADER_SIZE, "the header and what follows it are damaged"))
        return c

    cdef bint contradicts(self, Segment* s, SegmentContents c) noexcept:
        """Return whether the index has another place, time, size or subject for a message that is intact."""
        cdef bint last = s == index_last(&self.catalogue.index)
        cdef uint32_t i
        cdef uint64_t at
        cdef Entry* found
        cdef SubjectRow* row
        for i in range(s.n):
            if last and s.entries[i].offset >= self.writer.written:
                continue
            at = s.base + i - c.base_seq
            if is_dead(s, i) or at >= c.n:
                continue
            found = &c.entries[at]
            if found.flags & (ENTRY_MSG | ENTRY_ERASED) != ENTRY_MSG:
                continue
            row = &c.subjects[found.subject_id]
            if not same_record(&s.entries[i], found) or s.entries[i].ts != found.ts \
                    or not has_subject(self.catalogue, s, &s.entries[i], c.names + row.name_at, row.name_size):
                return True
        return False

    cdef void distrust(self, Segment* s) except *:
        """Stop reads that use the index, because the index file of the intact segment `s` is wrong.

        Nothing is lost: when the store is opened again, it reads the segment without that file.
        """
        path = index_path(self.files.path_of(s.number))
        self.files.log.error(f"{path} says something else than its segment, which counts: "
                             "it is removed and re-created")
        try:
            self.files.disk.unlink(path)
        except FileNotFoundError:
            pass
        self.mistaken = True
        if self.on_mistake is not None:
            self.on_mistake()

    cdef bint drop_erased(self, Segment* s, SegmentContents c) except -1:
        """Drop overwritten messages whose removal a power failure has taken; return whether there are any."""
        cdef uint32_t i
        cdef uint64_t at
        cdef bint found = False
        for i in range(s.n):
            at = s.base + i - c.base_seq
            if is_dead(s, i) or at >= c.n or not c.entries[at].flags & ENTRY_ERASED:
                continue
            if s.entries[i].offset != c.entries[at].offset or not is_overwritten(self.files, s, &s.entries[i]):
                continue
            self.catalogue.unlink(s, i)
            self.writer.note_removal(s.base + i, True)
            found = True
        return found

    cdef void drop_damaged(self, Segment* s, SegmentContents c) except *:
        """Drop and report the messages of the segment that are not intact in `c` at their indexed offset."""
        cdef bint last = s == index_last(&self.catalogue.index)
        cdef uint32_t i
        cdef uint64_t at
        cdef uint64_t end = self.writer.written if last and not s.sealed else s.end
        path = self.files.path_of(s.number)
        if self.drop_erased(s, c) and not c.problems and c.end >= end:
            return
        if c.end < end:                     # it was written up to `end`, so this is damage, not a torn write
            c.problems[:] = [problem for problem in c.problems if problem[0] != c.end]
            c.problems.append((c.end, end - c.end, "the end is missing or damaged"))
        report(self.files.log, path, c)
        self.reader.maps.drop_map(s.number)
        self.writer.compactor.outdate(s.number)
        remove_file(self.files.disk, self.files.log, index_path(path))    # the next start must find the damage too
        self.writer.syncs.forget_index(s.number)
        if self.on_loss is not None:
            self.mistaken = True
            self.on_loss()
            return
        s.examined = True
        self.losses.bytes += max(c.lost_bytes, end - c.end if c.end < end else 0)
        if last and not s.sealed and c.end < self.writer.written:
            self.writer.mend_tail()
        lost = []
        for i in range(s.n):
            if last and s.entries[i].offset >= self.writer.written:       # not written yet
                continue
            at = s.base + i - c.base_seq            # if the header was rebuilt, its base_seq may differ
            if not is_dead(s, i) and not (at < c.n and same_record(&s.entries[i], &c.entries[at])):
                lost.append(s.base + i)
                self.catalogue.unlink(s, i)
        if lost:
            self.note_lost(lost)

    cdef void note_lost(self, object seqs) except *:
        """Count dropped messages as lost, and log them."""
        self.losses.msgs += len(seqs)
        self.losses.seqs += seqs[:LISTED_MAX - len(self.losses.seqs)]
        self.files.log.error(f"{self.files.directory}: {len(seqs)} messages were damaged and are lost: {seqs[:20]}")

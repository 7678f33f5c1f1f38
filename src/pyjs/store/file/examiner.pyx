"""Examination of damaged segments: when a record is damaged, its whole segment is read as in a recovery.

Damaged messages are counted, reported and dropped from the catalogue; the rest of the segment is then known to be
intact. If the segment is intact but differs from its index file, this file is removed, and the store must be opened
again.

In the store of a replica, damaged messages stay in the catalogue, with everything known about them, because other
replicas have them: all counts then remain equal on all replicas. Reads of these messages wait until they are
repaired. The index file also stays, so that the next start knows the messages.

This module knows nothing of the code that read the record. Compiled: it compares every entry of a segment
(benchmarks/store_start.py).
"""
from pyjs.store.file.condition cimport STORE_CLOSED
from pyjs.store.file.eraser cimport is_overwritten
from pyjs.store.index.sequences cimport ENTRY_ERASED, ENTRY_MSG, index_find, index_last, index_place, is_dead
from pyjs.store.format.record cimport SEGMENT_HEADER_SIZE
from pyjs.store.file.segment_reader cimport failure_of, has_subject
from pyjs.store.segment.contents cimport ERASED_BIT, SubjectRow
from pyjs.store.store cimport StoredMessage

from pyjs.base.errors import CorruptRecord
from pyjs.store.format.image import UNREADABLE
from pyjs.store.segment.index_file import index_path, remove_file
from pyjs.store.segment.recovery import contents_of, report


cdef enum:
    LISTED_MAX = 1000           # maximum number of lost sequences that are listed


cdef bint same_record(Entry* e, Entry* found) noexcept nogil:
    """Return whether `found`, from a scan, is an intact message with the place and sizes of the entry `e`."""
    return (found.flags & (ENTRY_MSG | ENTRY_ERASED) == ENTRY_MSG and found.offset == e.offset
            and found.size == e.size and found.header_len == e.header_len and found.subject_len == e.subject_len)


cdef class Losses:
    def __init__(self) -> None:
        self.seqs, self.every = [], []


cdef class Examiner:
    def __init__(self, SegmentReader reader not None, dict damaged not None, bint keeps) -> None:
        self.damaged, self.keeps = damaged, keeps
        self.catalogue = reader.catalogue
        self.files = reader.files
        self.writer = reader.writer
        self.reader = reader
        self.losses = Losses()

    cdef int examine(self, uint64_t seq) noexcept nogil:
        """Examine the segment of the message `seq`; drop the damaged messages or, in a replica, keep and list them.

        Return 0 if the segment was examined, -2 if it is unreadable, or -3 if the message can only be read later.
        """
        cdef Segment* s
        cdef int failed = -2
        if self.mistaken:
            return -3
        with gil:
            try:
                s = index_find(&self.catalogue.index, seq)
                if seq in self.damaged.get(s.number, ()):
                    return -3
                c = self.contents_in(s)
                if self.contradicts(s, c):
                    self.distrust(s)
                else:
                    self.settle(s, c)
                failed = -3 if self.mistaken or seq in self.damaged.get(s.number, ()) else 0
            except UNREADABLE as error:
                failed = failure_of(error)
                self.files.log.error(f"{self.files.directory}: message {seq} is damaged, "
                                     f"and its segment cannot be read: {error}")
        return failed

    def confirm(self, uint32_t number) -> int:
        """Examine a segment that another reader found damaged; return the number of damaged places.

        The open segment is examined only in the store of a replica. The segment may have been changed or compacted
        since the damage was found.

        Raises:
            OSError: the file cannot be read.
        """
        cdef size_t at = index_place(&self.catalogue.index, number)
        cdef Segment* s
        if at == self.catalogue.index.n or self.writer.condition.state == STORE_CLOSED:
            return 0
        s = self.catalogue.index.segments[at]
        if s.examined or not (s.sealed or self.keeps) or self.mistaken:
            return 0
        c = self.contents_in(s)
        if self.contradicts(s, c):
            self.distrust(s)
            return 1
        if c.problems:
            self.settle(s, c)
        return len(c.problems)

    def wanted(self, uint32_t number) -> list:
        """Return the sequences of the damaged messages of a segment that are still in the stream."""
        cdef list found = []
        cdef Segment* s
        for seq in self.damaged.get(number, ()):
            s = index_find(&self.catalogue.index, seq)
            if s != NULL and not is_dead(s, <uint32_t> (seq - s.base)):
                found.append(seq)
        return found

    def fits(self, StoredMessage message not None) -> bool:
        """Return whether a message from another replica is the one that the catalogue has under its sequence."""
        cdef Segment* s = index_find(&self.catalogue.index, message.seq)
        cdef Entry* e
        if s == NULL or is_dead(s, <uint32_t> (message.seq - s.base)):
            return False
        e = &s.entries[message.seq - s.base]
        return (e.ts == message.ts and e.header_len == <size_t> len(message.headers)
                and e.size == <size_t> (len(message.headers) + len(message.payload))
                and has_subject(self.catalogue, s, e, message.subject, len(message.subject)))

    def give_up(self) -> None:
        """Make the next start count the damaged messages as lost, since no other replica has them."""
        for number in self.damaged:
            remove_file(self.files.disk, self.files.log, index_path(self.files.path_of(number)))

    cdef SegmentContents contents_in(self, Segment* s):
        """Return the contents of a segment's file; if the file's header is damaged, they list only this damage."""
        cdef SegmentContents c
        path = self.files.path_of(s.number)
        try:
            c = contents_of(path, self.reader.read_segment(s.number), s.number, self.files.incarnation, s.base, True)
        except CorruptRecord as error:              # the outer header is damaged
            self.files.log.warn(str(error))
            c = None
        if c is None:
            c = SegmentContents()
            c.problems.append((0, SEGMENT_HEADER_SIZE, "the header and what follows it are damaged"))
        return c

    cdef bint contradicts(self, Segment* s, SegmentContents c) noexcept:
        """Return whether index and segment differ in the place, time, sizes or subject of an intact message."""
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
        """Remove the wrong index file of the intact segment `s`, and set `mistaken`, so that the store is reopened.

        No message is lost: when the store is reopened, it reads the segment without the index file.
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
        """Drop overwritten messages whose removal a power failure has undone; return whether there are any."""
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

    cdef void settle(self, Segment* s, SegmentContents c) except *:
        """Report the damage of a segment, and drop its damaged messages; a replica keeps them in its catalogue."""
        cdef bint last = s == index_last(&self.catalogue.index)
        cdef uint64_t end = self.writer.written if last and not s.sealed else s.end
        path = self.files.path_of(s.number)
        if self.drop_erased(s, c) and not c.problems and c.end >= end:
            return
        if c.end < end:                     # the segment was written up to `end`, so this is damage, not a torn write
            c.problems[:] = [problem for problem in c.problems if problem[0] != c.end]
            c.problems.append((c.end, end - c.end, "the end is missing or damaged"))
        lost = self.lost_in(s, c)
        if self.keeps and self.damaged.get(s.number) == lost:
            return
        report(self.files.log, path, c)
        self.reader.maps.drop_map(s.number)
        self.writer.compactor.outdate(s.number)
        self.writer.syncs.forget_index(s.number)
        if self.keeps:
            self.keep_damaged(s, lost)
            return
        if not self.record_again(s, c):     # otherwise the next start needs the index file
            remove_file(self.files.disk, self.files.log, index_path(path))  # so that it finds the damage too
        s.examined = True
        self.losses.bytes += max(c.lost_bytes, end - c.end if c.end < end else 0)
        if last and not s.sealed and c.end < self.writer.written:
            self.writer.mend_tail()
        self.drop_damaged(s, lost)

    cdef bint record_again(self, Segment* s, SegmentContents c) except -1:
        """Queue records of removals and of a first_seq that only damaged bytes had; return whether there are any."""
        cdef list lost = c.lacks(s.removed, s.n_removed)
        for removal in lost:
            if index_find(&self.catalogue.index, removal & ~ERASED_BIT) != NULL:
                self.writer.note_removal(removal & ~ERASED_BIT, removal & ERASED_BIT != 0)
        if s.floor > c.floor:
            self.writer.state_due = True
        return bool(lost) or s.floor > c.floor

    cdef list lost_in(self, Segment* s, SegmentContents c):
        """Return the sequences of the live messages that are not intact in `c`, or not at the offset in the index."""
        cdef bint last = s == index_last(&self.catalogue.index)
        cdef list lost = []
        cdef uint32_t i
        cdef uint64_t at
        for i in range(s.n):
            if last and s.entries[i].offset >= self.writer.written:       # not written yet
                continue
            at = s.base + i - c.base_seq  # if the header was rebuilt, its base_seq may differ from the real one
            if not is_dead(s, i) and not (at < c.n and same_record(&s.entries[i], &c.entries[at])):
                lost.append(s.base + i)
        return lost

    cdef void keep_damaged(self, Segment* s, list lost) except *:
        """Keep the damaged messages of a replica in the catalogue, and list them in `damaged`."""
        self.files.log.error(f"{self.files.path_of(s.number)}: {len(lost)} messages are damaged; "
                             f"another replica may have them: {lost[:20]}")
        self.damaged[s.number] = lost
        if s == index_last(&self.catalogue.index):
            self.reader.doubted = s.number
        if self.on_loss is not None:
            self.on_loss()

    cdef void drop_damaged(self, Segment* s, list lost) except *:
        """Drop damaged messages, and count them as lost."""
        for seq in lost:
            self.catalogue.unlink(s, <uint32_t> (seq - s.base))
        if lost:
            self.note_lost(lost)

    cdef void note_lost(self, object seqs) except *:
        """Count dropped messages as lost, and log them."""
        self.losses.msgs += len(seqs)
        if self.keeps:
            self.losses.every += seqs
        self.losses.seqs += seqs[:LISTED_MAX - len(self.losses.seqs)]
        self.files.log.error(f"{self.files.directory}: {len(seqs)} messages were damaged and are lost: {seqs[:20]}")

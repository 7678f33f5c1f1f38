"""Records of a directory's segments, read by sequence.

They are in the map of a plain file, in a view of another one, or in what is not written yet.

A record that this process did not write itself is checked before it is believed. What does not check out has its
whole segment read (store/recovery): what is damaged is counted, and gone.

Knows nothing of writing. Compiled: benchmarks/, pull consumers.
"""
import errno

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from pyjs.base.bad_pages cimport is_readable
from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.store.index cimport Entry, Segment, index_find, index_last, is_dead, is_filled
from pyjs.store.record cimport (
    CHECKSUM_SIZE, FLAG_ERASED, FLAG_EXTENDED, KIND_MSG, RECORD_HEADER_SIZE, RECORD_SIZE_MIN, RecordHeader,
    stored_checksum, whole,
)
from pyjs.store.store cimport Record, StreamStore
from pyjs.store.subjects cimport Subject, subject_by_id
from pyjs.store.view cimport View, note_use

from pyjs.base.disk import SHORTAGES, read_around
from pyjs.base.errors import CorruptRecord
from pyjs.store.form import open_image, read_image
from pyjs.store.meta import UnknownFormat
from pyjs.store.vault import Locked

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    MAPS_MAX = 4096             # maps held at once, far below the kernel's limit of a process
    LOST_LISTED_MAX = 1000      # sequences named in lost_seqs
# A file that could not be opened: clients may hold all descriptors, or permissions are wrong. Nothing was lost.
UNOPENED = (*SHORTAGES, errno.EACCES)


cdef enum Trust:                # what is not checked of a record in a file
    TRUST_NONE                  # nothing
    TRUST_READER                # its check: whoever gets it does that
    TRUST_ALL                   # its checksums: this process knows them


cdef int failure_of(object error):
    """Return what a segment is that could not be read: -2: unreadable, -3: not now."""
    return -3 if isinstance(error, MemoryError) or getattr(error, "errno", 0) in UNOPENED else -2


cdef inline bint checks_out(const char* p, Entry* e, uint64_t room) noexcept nogil:
    """Whether the record at `p` is the one that `e` tells of, and whole. Costs 15-40 ns for 128 bytes."""
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
    """Have the record of `e`, which ends at `end`, in the map of `s`: 0, 1: damaged, below 0: no map."""
    cdef int failed = 0 if end <= s.map_size else self.map_segment(s, end)
    cdef RecordHeader h
    if failed == 0 and s.filled != NULL:
        note_use(self.view_cache, s.filled)
        if not is_filled(s.filled, e.offset - CHECKSUM_SIZE, end):
            failed = self.fill(s, e.offset - CHECKSUM_SIZE, end)
    if failed:
        return failed
    if trust == TRUST_NONE:
        return not checks_out(s.data + e.offset, e, s.map_size - e.offset)
    if not is_readable(s.data + e.offset, end - e.offset):
        return 1
    memcpy(&h, s.data + e.offset, RECORD_HEADER_SIZE)
    # Behind the end of a file that was cut its last page shows zeros.
    return h.seq != e.seq or h.length > s.map_size - e.offset \
        or stored_checksum(s.data + e.offset, h.length) == 0


cdef inline bint has_subject(SegmentReader self, Segment* s, Entry* e) noexcept nogil:
    """Whether the record of `e`, which was found, has the subject that the index says. Costs a look at its name."""
    cdef RecordHeader h
    cdef Subject* subject = subject_by_id(&self.catalogue.subjects.table,
                                          e.subject_id if s.locals == NULL else s.locals[e.subject_id].id)
    cdef const char* name = s.data + e.offset + RECORD_HEADER_SIZE
    memcpy(&h, s.data + e.offset, RECORD_HEADER_SIZE)
    name += 16 if h.flags & FLAG_EXTENDED else 0
    return subject != NULL and subject.len == e.subject_len and memcmp(subject.name, name, e.subject_len) == 0


cdef inline int find_whole(SegmentReader self, Segment* s, Entry* e, const char** out, Trust trust) noexcept nogil:
    """Have the record of the live entry `e` at `out`, checked: 0, -2: it is damaged, -3: not readable now."""
    cdef uint64_t end = <uint64_t> e.offset + RECORD_SIZE_MIN + e.subject_len + e.size
    cdef bint last = s == index_last(&self.catalogue.index)
    cdef bint staged = last and e.offset >= self.written
    cdef uint64_t seq = e.seq
    cdef const char* p
    cdef RecordHeader h
    cdef int damaged
    if staged:
        p = self.staging + (e.offset - self.written)
    else:
        # This process has just written or read what no index file tells of.
        trust = TRUST_ALL if s.examined or (last and e.offset >= self.indexed) else trust
        damaged = find_record(self, s, e, end, trust)
        if damaged == 0 and trust == TRUST_NONE and not has_subject(self, s, e):
            damaged = 1
        if damaged > 0:
            damaged = self.examine(seq)
            if damaged == 0:
                damaged = -2 if is_dead(s, <uint32_t> (seq - s.base)) else find_record(self, s, e, end, TRUST_ALL)
        if damaged:
            return damaged if damaged < 0 else -2
        p = s.data + e.offset
    memcpy(&h, p, RECORD_HEADER_SIZE)
    end += 16 if h.flags & FLAG_EXTENDED else 0
    if h.seq != seq or h.length != end - e.offset or h.subject_len != e.subject_len:
        return -2
    if not staged and end > s.map_size:
        return -2
    out[0] = p
    return 0


cdef class SegmentReader(StreamStore):
    cdef int load(self, uint64_t seq, Record* r) noexcept nogil:
        cdef Segment* s = index_find(&self.catalogue.index, seq)
        cdef Entry* e
        cdef const char* p = NULL
        cdef uint32_t length = 0
        cdef int failed
        if s == NULL or is_dead(s, <uint32_t> (seq - s.base)):
            return -1
        e = &s.entries[seq - s.base]
        failed = find_whole(self, s, e, &p, TRUST_NONE)
        if failed:
            return failed
        memcpy(&length, p, sizeof(length))
        r.subject = p + length - CHECKSUM_SIZE - e.size - e.subject_len     # behind term and index, if there
        r.body = r.subject + e.subject_len
        r.seq = seq
        r.ts = e.ts
        r.subject_len = e.subject_len
        r.header_len = e.header_len
        r.size = e.size
        return 0

    cdef int find_stored(self, Segment* s, uint32_t i, const char** p) noexcept nogil:
        return find_whole(self, s, &s.entries[i], p, TRUST_NONE)

    cdef int find_unchecked(self, Segment* s, uint32_t i, const char** p) noexcept nogil:
        return find_whole(self, s, &s.entries[i], p, TRUST_READER)

    cdef int examine(self, uint64_t seq) noexcept nogil:
        """Find out what is damaged in the segment of `seq`, and drop it: 0, -2: unreadable, -3: not now."""
        cdef int failed = -2
        if self.mistaken:
            return -3
        with gil:
            from pyjs.store.recovery import examine

            try:
                examine(self, seq)
                failed = -3 if self.mistaken else 0
            except (OSError, ValueError, MemoryError, Locked, UnknownFormat) as error:
                failed = failure_of(error)
                self.log.error(f"{self.directory}: message {seq} is damaged, and its segment cannot be read: {error}")
        return failed

    # -- files -------------------------------------------------------------------------------------------------
    def path_of(self, uint32_t number) -> str:
        """Return the path of a segment's file."""
        return f"{self.directory}/{number:08d}.seg"

    cdef size_t place_of(self, uint32_t number) noexcept nogil:
        """Return where the segment of that number is in the index; its length: it is gone."""
        cdef size_t at = 0
        while at < self.catalogue.index.n and self.catalogue.index.segments[at].number != number:
            at += 1
        return at

    cdef int map_segment(self, Segment* s, uint64_t wanted) noexcept nogil:
        """Map the file of `s` up to `wanted` bytes at least: 0, 1: it is not so long, -2: unreadable, -3: not now."""
        cdef int failed = -2
        cdef const unsigned char[::1] view
        with gil:
            try:
                if s.form:
                    return self.open_view(s, wanted)
                if len(self.maps) >= MAPS_MAX:
                    self.drop_maps()
                fd = self.files.open_to_read(self.path_of(s.number))
                try:
                    size = self.disk.size_of(fd)
                    if size < wanted:
                        raise EOFError(f"{size} bytes where {wanted} were written")
                    view = self.disk.map_file(fd, size)
                finally:
                    self.disk.close_file(fd)
                self.maps[s.number] = view
                s.data = <const char*> &view[0]
                s.map_size = size
                failed = 0
            except CorruptRecord:               # told when it is examined
                failed = 1
            except (OSError, ValueError, EOFError, MemoryError, Locked, UnknownFormat) as error:
                failed = 1 if isinstance(error, EOFError) else failure_of(error)
                self.log.error(f"{self.path_of(s.number)} cannot be read: {error}")
        return failed

    cdef int open_view(self, Segment* s, uint64_t wanted) except -1:
        """Have memory for the image of `s`, `wanted` bytes of it at least."""
        cdef View view
        size = s.end if s.sealed else max(self.segment_size, wanted)
        fd = self.files.open_to_read(self.path_of(s.number))
        try:
            image = open_image(self.disk, self.path_of(s.number), fd, self.key)
            view = View(self.view_cache, self, s.number, image, size)
        finally:
            self.disk.close_file(fd)
        self.forget_map(s)
        self.views[s.number] = view
        s.data, s.filled, s.map_size = view.memory, &view.filled, view.size
        return 0

    cdef int fill(self, Segment* s, uint64_t begin, uint64_t end) noexcept nogil:
        """Have the bytes begin..end of the image of `s` in its view: 0, 1: damaged, -2: unreadable, -3: not now."""
        cdef int failed = -2
        cdef bint last = s == index_last(&self.catalogue.index)
        with gil:
            try:
                fd = self.files.open_to_read(self.path_of(s.number))
                try:
                    failed = (<View> self.views[s.number]).fill(fd, begin, end, self.written if last else s.end)
                finally:
                    self.disk.close_file(fd)
            except (OSError, ValueError, MemoryError) as error:
                failed = failure_of(error)
                self.log.error(f"{self.path_of(s.number)} cannot be read: {error}")
        return failed

    cdef void forget_map(self, Segment* s) noexcept:
        """Give up the map or the view of `s`."""
        cdef View view = self.views.pop(s.number, None)
        if view is not None:
            view.leave()
        self.maps.pop(s.number, None)
        s.data, s.filled, s.map_size = NULL, NULL, 0

    def drop_map(self, uint32_t number) -> None:
        """Give the map of one segment back: unreadable pages in it became zeros for good."""
        cdef size_t at = self.place_of(number)
        if at < self.catalogue.index.n:
            self.forget_map(self.catalogue.index.segments[at])

    def drop_maps(self) -> None:
        """Give all maps back; they are made again when they are needed."""
        cdef size_t i
        cdef View view
        for i in range(self.catalogue.index.n):
            self.catalogue.index.segments[i].data = NULL
            self.catalogue.index.segments[i].map_size = 0
            self.catalogue.index.segments[i].filled = NULL
        self.maps.clear()
        for view in self.views.values():
            view.leave()
        self.views.clear()

    def read_segment(self, uint32_t number) -> bytes:
        """Return the bytes of a segment's plain image that are in use. Raises OSError."""
        cdef Segment* last = index_last(&self.catalogue.index)
        if self.catalogue.index.segments[self.place_of(number)].form:
            data = bytes(read_image(self.disk, self.path_of(number), self.key, True))
        else:
            data = read_around(self.disk, self.path_of(number))
        return data[:self.written] if last.number == number else data

    cdef int distrust(self, Segment* s) except -1:
        """Read nothing more by the index: the file that it was made of says something else than its segment `s`.

        The segment is whole, so nothing is lost: the next opening of the store reads it without that file.
        """
        path = f"{self.path_of(s.number).removesuffix('.seg')}.idx"
        self.log.error(f"{path} says something else than its segment, which counts: it is removed and made anew")
        try:
            self.disk.unlink(path)
        except FileNotFoundError:
            pass
        self.mistaken = True
        if self.on_mistake is not None:
            self.on_mistake()
        return 0

    # -- losses ------------------------------------------------------------------------------------------------
    def note_lost(self, seqs) -> None:
        """Count damaged messages that are gone from the index, and tell the operator."""
        self.lost_msgs += len(seqs)
        self.lost_seqs += seqs[:LOST_LISTED_MAX - len(self.lost_seqs)]
        self.log.error(f"{self.directory}: {len(seqs)} messages were damaged and are lost: {seqs[:20]}")

    @property
    def lost(self):
        """What was found damaged: (messages, sequences of the first of them, bytes); None: nothing was."""
        return (self.lost_msgs, self.lost_seqs, self.lost_bytes) if self.lost_msgs or self.lost_bytes else None

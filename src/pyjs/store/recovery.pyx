"""Reading the segments of a directory back into a FileStore.

Each segment comes from its index file, if there is one that fits, or else from its records: after a clean stop no
record is read, after a kill those of the open segment. What both give is the same (store/segment), so what follows
does not ask where it came from. A segment whose index file is missing or unusable is read, and gets a new one; one
with damage in it never has one, so that every start finds and tells it.

An index file also bears witness: it names the messages of a segment that is missing, or of an end that was cut off.

A record that an index file vouched for is checked when it is loaded; if it is damaged, `examine` reads the whole
segment as a start would have done.

Knows nothing of how the store is used.
Long because what a segment, its index file and the segments around it tell is put together in one place.
Compiled: a start takes over millions of entries (benchmarks/store_start.py).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.store.filestore cimport FileStore
from pyjs.store.index cimport (
    ENTRY_ERASED, ENTRY_MSG, PRESENCE_MASK, Entry, Local, Segment, gap_at, index_find, index_last, index_place,
    index_push, is_dead, segment_mark, segment_mark_range, segment_new,
)
from pyjs.store.record cimport (
    FOOTER_SIZE, RECORD_SIZE_MIN, SEGMENT_HEADER_SIZE, SegmentHeader, check_segment_header, make_segment_header,
)
from pyjs.store.segment cimport ERASED_BIT, SegmentContents, SubjectRow, mend_header, salvage_header
from pyjs.store.subjects cimport Subject, subject_by_id, subjects_add

from pyjs.base.disk import is_shortage, read_around
from pyjs.base.errors import CorruptRecord
from pyjs.store.form import MARK, open_image, unknown_format
from pyjs.store.index_claims import begins_alike
from pyjs.store.index_file import (
    IndexUnusable, decode_index, decrypted, encode_index, encrypted, index_path, load_index, map_whole, remove_file,
    store_index,
)
from pyjs.store.layout import DAMAGED
from pyjs.store.recast import NEW
from pyjs.store.store import sync_path

SOURCE_HASH = PYJS_SOURCE_HASH

cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence
cdef enum:
    INDEX_MAPS_MAX = 8192       # of one store; more are copied, far below the kernel's limit of a process
    CODEC_MASK = 0xff00         # of a form: it is compressed
    UNSYNCED_MAX = 16           # segments that a killed process may have left unsynced


def recover_steps(FileStore store):
    """Fill `store` from the segments of its directory, a segment at each step; damage is logged and counted in it."""
    recovery = Recovery(store)
    names = store.files.disk.list_dir(store.files.directory)
    recovery.expect_tail(names)
    names.sort(key=len)                 # of the same length they are in order
    store.set_aside += [f"{store.files.directory}/{name}" for name in names if name.startswith(DAMAGED)]
    segments = [name for name in names if is_segment(name)]
    present = set(segments)
    for name in names:
        path = f"{store.files.directory}/{name}"
        if name in present:
            recovery.read_segment(path, int(name[:-4]), name == segments[-1])
        elif name.endswith(".idx") and f"{name[:-4]}.seg" not in present:
            recovery.miss_segment(path)
        elif name.endswith(NEW):
            remove_file(store.files.disk, store.files.log, path)
        yield
    recovery.settle()


def is_segment(str name) -> bool:
    """Whether a file has the name of a segment; others are not ours."""
    digits = name[:-4]
    return (name.endswith(".seg") and digits.isascii() and digits.isdigit()
            and int(digits) <= 0xffffffff and name == f"{int(digits):08d}.seg")


def contents_of(str path, data, uint32_t number, uint64_t incarnation, uint64_t next_seq, sure=False,
                image=None):
    """Return what the segment `path` holds by its bytes; None: its header is damaged, and its records do not tell it.

    `data` are the bytes of `image`, which says how they stand in the file; None: as they are. With `sure` the header
    is known to have been of `number`, `incarnation` and `next_seq`: where the records in front are damaged as well,
    those behind are taken.

    Raises:
        UnknownFormat: another version wrote it.
    """
    cdef const unsigned char[::1] view = data or b"\0"
    cdef const char* p = <const char*> &view[0]
    cdef size_t size = len(data)
    cdef SegmentContents c = SegmentContents()
    cdef SegmentHeader header
    cdef int found = check_segment_header(p, size)
    if found == -2:
        raise unknown_format(bytes(view[:SEGMENT_HEADER_SIZE]), path)
    if image is not None:
        c.shift, c.unread = image.shift, image.unread
    if found == 0:
        c.scan(p, size)
        return c
    c.problems.append((0, SEGMENT_HEADER_SIZE, "the header is damaged; the records behind it tell what it was"))
    if mend_header(&header, p, size, number, incarnation, next_seq) == 0:
        c.scan_behind(&header, p, size)
        return c
    if sure and size > SEGMENT_HEADER_SIZE:
        make_segment_header(&header, next_seq, number, incarnation)
        c.scan_behind(&header, p, size)
        return c if c.messages else None
    if salvage_header(&header, p, size, number, incarnation, next_seq) != 0:
        return None
    c.scan_behind(&header, p, size)
    return c


def report(FileStore store, str path, SegmentContents c) -> None:
    """Tell the operator what is damaged in a segment."""
    for at, size, what in c.problems:
        store.files.log.warn(f"{path} at {at}: {size} bytes: {what}")


def examine(FileStore store, uint64_t seq) -> None:
    """Read the whole segment of `seq`, of which a record did not check out; what is damaged is dropped.

    Raises:
        OSError, UnknownFormat, Locked: the file cannot be read.
    """
    cdef Segment* s = index_find(&store.catalogue.index, seq)
    settle_doubts(store, s, contents_in(store, s))


cdef int settle_doubts(FileStore store, Segment* s, SegmentContents c) except -1:
    """Drop what of a segment is damaged; where what is known of it is wrong, and not the segment, nothing is lost."""
    if contradicts(store, s, c):
        store.distrust(s)
    else:
        drop_damaged(store, s, c)
    return 0


cdef bint contradicts(FileStore store, Segment* s, SegmentContents c) noexcept:
    """Whether a message was found whole, and the index has another place, time, size or subject for it, or none."""
    cdef bint last = s == index_last(&store.catalogue.index)
    cdef uint32_t i
    cdef uint64_t at
    cdef Entry* found
    for i in range(s.n):
        if last and s.entries[i].offset >= store.writer.written:
            continue
        at = s.base + i - c.base_seq
        if is_dead(s, i) or at >= c.n:
            continue
        found = &c.entries[at]
        if found.flags & (ENTRY_MSG | ENTRY_ERASED) != ENTRY_MSG:
            continue
        if not same_record(&s.entries[i], found) or s.entries[i].ts != found.ts \
                or not same_subject(store, s, &s.entries[i], &c.subjects[found.subject_id], c.names):
            return True
    return False


cdef bint same_subject(FileStore store, Segment* s, Entry* e, SubjectRow* row, const char* names) noexcept nogil:
    cdef Subject* subject = subject_by_id(&store.catalogue.subjects.table,
                                          e.subject_id if s.locals == NULL else s.locals[e.subject_id].id)
    return subject != NULL and subject.len == row.name_size \
        and memcmp(subject.name, names + row.name_at, row.name_size) == 0


def confirm(FileStore store, uint32_t number) -> int:
    """Read a sealed segment that was seen to be damaged; what is, is dropped. Returns how many places are.

    It may have been changed, or written anew, while somebody else looked at it.

    Raises:
        OSError: the file cannot be read.
    """
    cdef size_t at = index_place(&store.catalogue.index, number)
    cdef Segment* s
    if at == store.catalogue.index.n or store.closed:
        return 0
    s = store.catalogue.index.segments[at]
    if s.examined or not s.sealed or store.mistaken:
        return 0
    c = contents_in(store, s)
    if contradicts(store, s, c):
        store.distrust(s)
        return 1
    if c.problems:
        drop_damaged(store, s, c)
    return len(c.problems)


cdef SegmentContents contents_in(FileStore store, Segment* s):
    """Return what a segment's file holds; nothing but the damage when even its header is."""
    cdef SegmentContents c
    path = store.files.path_of(s.number)
    try:
        c = contents_of(path, store.reader.read_segment(s.number), s.number, store.files.incarnation, s.base, True)
    except CorruptRecord as error:              # what tells its form
        store.files.log.warn(str(error))
        c = None
    if c is None:
        c = SegmentContents()
        c.problems.append((0, SEGMENT_HEADER_SIZE, "the header and what follows it are damaged"))
    return c


cdef int drop_damaged(FileStore store, Segment* s, SegmentContents c) except -1:
    """Drop the messages of a segment that are not found, whole, where they should be; and tell of it."""
    cdef bint last = s == index_last(&store.catalogue.index)
    cdef uint32_t i
    cdef uint64_t at
    cdef uint64_t end = store.writer.written if last and not s.sealed else s.end
    path = store.files.path_of(s.number)
    if c.end < end:                     # all of it was written: no write was cut short
        c.problems[:] = [problem for problem in c.problems if problem[0] != c.end]
        c.problems.append((c.end, end - c.end, "the end is missing or damaged"))
    s.examined = True
    store.maps.drop_map(s.number)
    store.compactor.outdate(s.number)
    remove_file(store.files.disk, store.files.log, index_path(path))           # the next start shall find it too
    store.syncs.forget_index(s.number)
    report(store, path, c)
    store.lost_bytes += max(c.lost_bytes, end - c.end if c.end < end else 0)
    if last and not s.sealed and c.end < store.writer.written:
        store.writer.mend_tail()
    lost = []
    for i in range(s.n):
        if last and s.entries[i].offset >= store.writer.written:       # not in the file yet
            continue
        at = s.base + i - c.base_seq            # a header that was made anew may begin elsewhere
        if not is_dead(s, i) and not (at < c.n and same_record(&s.entries[i], &c.entries[at])):
            lost.append(s.base + i)
            store.catalogue.unlink(s, i)
    if lost:
        store.note_lost(lost)
    return 0


cdef bint same_record(Entry* e, Entry* found) noexcept nogil:
    """Whether the message of an entry was found, whole, where the entry says."""
    return (found.flags & (ENTRY_MSG | ENTRY_ERASED) == ENTRY_MSG and found.offset == e.offset
            and found.size == e.size and found.header_len == e.header_len and found.subject_len == e.subject_len)


cdef class Recovery:
    def __init__(self, FileStore store) -> None:
        self.store = store
        self.lost = []
        self.erased = []
        self.scanned = []
        self.unrecorded = []
        self.witnesses = []
        self.ends = []

    # -- files -------------------------------------------------------------------------------------------------
    def expect_tail(self, names) -> None:
        """Have a file of the index that bears witness for a segment which is not among the `names` of its place."""
        if self.store.writer.stored_tail is not None:
            stem = f"{self.store.writer.stored_tail[0]:08d}"
            if f"{stem}.seg" not in names:
                self.keep_tail(f"{self.store.files.directory}/{stem}.seg")
                if f"{stem}.idx" not in names:
                    names.append(f"{stem}.idx")

    def has_stored(self, path) -> bool:
        """Whether the index file of a segment was kept elsewhere."""
        stored = self.store.writer.stored_tail
        return stored is not None and f"{stored[0]:08d}.seg" == path.rpartition("/")[2]

    def keep_tail(self, path) -> None:
        """Write the index file that was kept elsewhere: its segment is not as it was, and it tells what was in it."""
        (_, data), self.store.writer.stored_tail = self.store.writer.stored_tail, None
        store_index(self.store.files.disk, index_path(path), data)

    def read_segment(self, path, number, last) -> None:
        """Take everything that one file holds."""
        cdef SegmentContents c, known = None
        cdef bint restored = False
        store = self.store
        store.writer.next_number = max(store.writer.next_number, number + 1)
        c, indexed, image, size, reason = None, False, None, 0, "its header is damaged"
        fd = store.files.disk.open_read_only(path)
        try:
            size = store.files.disk.size_of(fd)
            image = open_image(store.files.disk, path, fd, store.files.key)
            size = image.size
            c, known, indexed = self.contents_in(path, number, image)
        except CorruptRecord as error:
            reason = error
            if self.has_stored(path):
                self.keep_tail(path)
            known = self.witness(index_path(path))
        finally:
            store.files.disk.close_file(fd)
        if c is None and known is not None:
            self.set_aside(path, size, reason, True)
            self.mourn(index_path(path), known)
            return
        if c is None:
            self.set_aside(path, size, reason)
            return
        if c.incarnation != store.files.incarnation or c.base_seq <= store.catalogue.last_seq:
            self.set_aside(path, size, "it belongs to another stream or repeats sequences")
            return
        if c.base_seq > SEQ_MAX and c.n:
            self.set_aside(path, size, "its sequences are behind the last that there can be")
            return
        if c.number != number:
            self.store.files.log.warn(f"{path} says that it is number {c.number}: "
                                      "it was renamed, and its name counts")
            c.number = number
        ended = image.marked and c.end == size and not last    # encrypted: each start begins another without a footer
        if not indexed:
            self.scanned.append(number)
            restored = known is not None and self.restore_end(c, known)
            report(store, path, c)
            self.keep_index(path, c, ended)
        self.bridge(c.base_seq)
        self.cut = 0 if indexed or restored or ended or c.sealed \
            else max(<uint64_t> size, store.writer.segment_size) // (RECORD_SIZE_MIN + 1)
        if c.problems and c.problems[-1][:2] == (c.end, FOOTER_SIZE):
            self.cut = 0                # its footer is all that it lost
        if not (last or c.sealed or c.problems or ended):
            self.ends.append((path, c.end, c.base_seq + c.n))
        self.adopt(c, ended)
        self.keep_form(image)
        # The file just read is the one that is appended to, until another follows.
        store.writer.allocated = size
        store.writer.written = c.end
        store.writer.chain = store.writer.chain_written = c.chain
        store.writer.indexed = c.end if indexed else 0

    def contents_in(self, path, number, image):
        """Return what a segment holds, what its index file knew of it, and whether it is the index file that tells.

        None for the first: the header is damaged, and nothing tells what it was. None for the second: nothing.
        """
        cdef SegmentContents c, known
        if image.problem:
            self.store.files.log.warn(f"{path}: {image.problem}")
        c = self.from_index(path, image)
        if c is not None:
            return c, None, True
        c, known = self.from_records(path, number, image), self.witness(index_path(path))
        if c is None and known is not None and known.base_seq > self.store.catalogue.last_seq:
            c = self.from_records(path, number, image, known)
        return c, known, False

    cdef int keep_form(self, image) except -1:
        """Note in what form the segment is that was just taken over, and where its image begins."""
        cdef Segment* s = index_last(&self.store.catalogue.index)
        s.form = image.form.flags if image.form is not None else 0
        self.shift, self.marked = image.shift, image.marked
        return 0

    def from_index(self, path, image):
        """Return the contents by the index file; None: read the segment."""
        if self.has_stored(path):
            try:
                stored = self.store.writer.stored_tail[1]
                return load_index(self.store.files.disk, path, image, self.store.files.key, stored)
            except IndexUnusable as unusable:
                self.store.files.log.debug(f"{path} is read, for its index is not used: {unusable}")
                self.keep_tail(path)
        try:
            return load_index(self.store.files.disk, path, image, self.store.files.key)
        except IndexUnusable as unusable:
            tell = self.store.files.log.debug if unusable.ordinary else self.store.files.log.warn
            tell(f"{index_path(path)} is not used and made anew from its segment: {unusable}")
            if not unusable.ordinary:
                remove_file(self.store.files.disk, self.store.files.log, index_path(path))
        return None

    def from_records(self, path, number, image, SegmentContents known=None):
        """Return the contents by the segment itself; None: its header is damaged, and its records do not tell it.

        With `known` its index file tells what the header was.
        """
        next_seq = self.store.catalogue.last_seq + 1 if known is None else known.base_seq
        return contents_of(path, image.whole(True), number, self.store.files.incarnation, next_seq, known is not None,
                           image)

    def keep_index(self, path, SegmentContents c not None, left) -> None:
        """Write the index file of a segment that was read whole and is sealed or `left`, once its bytes are safe.

        The next start does not read a segment that has one, and so would not sync what a killed process left.
        """
        if c.problems or c.sparse or not (c.sealed or left):
            return
        if not self.sync(path):
            return
        self.scanned.remove(c.number)
        try:
            data = encode_index(c)
            store_index(self.store.files.disk, index_path(path),
                        data if self.store.files.key is None else encrypted(data, self.store.files.key))
        except OSError as error:
            self.store.files.log.warn(f"{index_path(path)} cannot be written: {error}")

    def witness(self, path):
        """Return what a whole index file of this stream says, whatever its segment is like; None: nothing."""
        cdef SegmentContents known
        try:
            known = decode_index(decrypted(map_whole(self.store.files.disk, path), self.store.files.key))
        except (OSError, ValueError, IndexUnusable) as error:
            if is_shortage(error):
                raise
            return None
        return known if known.incarnation == self.store.files.incarnation else None

    def miss_segment(self, path) -> None:
        """Take note of an index file without its segment: in ordinary work it is the index file that goes first."""
        cdef SegmentContents known = self.witness(path)
        if known is None or known.base_seq <= self.store.catalogue.last_seq:
            remove_file(self.store.files.disk, self.store.files.log, path)
            return
        self.store.writer.next_number = max(self.store.writer.next_number, known.number + 1)
        what = f"{path.removesuffix('.idx')}.seg is missing; {path} tells what was in it, and is kept"
        self.mourn(path, known, what)

    def mourn(self, path, SegmentContents known, what="") -> None:
        """Count the messages of a segment that is gone as lost, and go on behind its sequences."""
        self.bridge(known.base_seq)
        before = len(self.lost)
        self.miss(known, 0)
        self.store.catalogue.last_seq = max(self.store.catalogue.last_seq, known.base_seq + known.n - 1)
        missed = [first for first, _ in self.lost[before:]]
        self.witnesses.append((path, known.base_seq + known.n - 1, missed, known.message_bytes, what))

    def restore_end(self, SegmentContents c, SegmentContents known) -> bool:
        """Let an open segment that is shorter than when its index file was written end where it did, in losses."""
        if c.sealed or c.end >= known.end or c.base_seq != known.base_seq or c.number != known.number \
                or not begins_alike(known, c):
            return False
        if not c.problems or c.problems[-1][0] != c.end:
            c.problems.append((c.end, known.end - c.end, "the end is missing; its index file tells what was in it"))
        c.lost_bytes = max(c.lost_bytes, known.end - c.end)
        self.miss(known, c.n)
        c.after_damage = 0              # what was there is known
        if c.fill_gap(known.base_seq + known.n) != 0:
            raise MemoryError
        c.end_damaged = False
        self.store.writer.state_due = True         # nothing in the file says how far the sequences went
        return True

    cdef int miss(self, SegmentContents known, uint32_t start) except -1:
        """Count the messages from entry `start` on as lost, and keep what else only their segment said."""
        cdef uint32_t i
        for i in range(start, known.n):
            if known.entries[i].flags & ENTRY_MSG:
                self.lost.append((known.base_seq + i, known.base_seq + i))
        self.floor = max(self.floor, known.floor)
        for i in range(known.n_removals):
            self.unrecorded.append(known.removals[i])
        return 0

    def set_aside(self, path, size, reason, witnessed=False) -> None:
        """Give an unreadable file another name; an empty one was never used."""
        directory, _, name = path.rpartition("/")
        if not witnessed:
            remove_file(self.store.files.disk, self.store.files.log, index_path(path))
        if size and any(read_around(self.store.files.disk, path)):
            self.store.files.log.error(f"{path} is set aside as .damaged-{name}: {reason}")
            self.store.lost_bytes += size
            self.store.files.disk.rename(path, f"{directory}/.damaged-{name}")
            self.store.set_aside.append(f"{directory}/.damaged-{name}")
        else:
            self.store.files.disk.unlink(path)
        self.store.files.names_unsynced = True

    def bridge(self, base_seq) -> None:
        """Go on at `base_seq`; what lies between was lost if the end of the file before is gone and it fits there."""
        if self.cut and self.store.catalogue.last_seq + 1 < base_seq:
            last_seq = self.store.catalogue.last_seq
            self.lost.append((last_seq + 1, min(base_seq - 1, last_seq + self.cut)))
        self.cut = 0
        self.end_damaged = False
        self.store.catalogue.last_seq = max(self.store.catalogue.last_seq, base_seq - 1)

    # -- one segment -------------------------------------------------------------------------------------------
    cdef int adopt(self, SegmentContents c, bint ended) except -1:
        """Make the contents a segment of the store, which takes their entries; one that `ended` grows no more."""
        cdef Segment* s = segment_new(c.base_seq, c.number)
        if s == NULL or index_push(&self.store.catalogue.index, s) != 0:
            raise MemoryError
        self.end_damaged = c.end_damaged
        self.floor = max(self.floor, c.floor)
        self.lost.extend(c.lost)
        self.store.lost_bytes += c.lost_bytes
        if c.source is not None and (not c.sealed or c.messages < c.n or c.erased
                                     or len(self.store.maps.index_maps) >= INDEX_MAPS_MAX):
            c.own_entries()             # they grow, or not all of them stay as they are
        if c.source is not None:
            self.store.maps.index_maps[c.number] = c.source
            s.locals = <Local*> malloc((c.n_subjects + 1) * sizeof(Local))
            s.n_locals = c.n_subjects
            if s.locals == NULL:
                raise MemoryError
        self.adopt_subjects(c, s)
        s.entries, s.n, s.cap = c.entries, c.n, (c.n + 63) & ~<uint32_t> 63
        s.roomy = c.sparse
        s.removed, s.n_removed, s.removed_room = c.removals, c.n_removals, c.removals_cap
        c.entries = NULL
        c.removals = NULL
        s.end = c.end
        s.floor = c.floor
        s.sealed = c.sealed or ended
        s.examined = bool(c.problems)
        return self.count(c, s)

    cdef int adopt_subjects(self, SegmentContents c, Segment* s) except -1:
        """Give the entries the subject ids of the store, and link them with those before."""
        cdef uint32_t* ids = <uint32_t*> malloc((c.n_subjects + 1) * sizeof(uint32_t))
        cdef uint32_t i, prev
        cdef SubjectRow* row
        cdef Subject* subject = NULL
        cdef uint64_t seq
        if ids == NULL:
            raise MemoryError
        with nogil:
            for i in range(c.n_subjects):
                row = &c.subjects[i]
                subject = subjects_add(&self.store.catalogue.subjects.table, c.names + row.name_at, row.name_size)
                if subject == NULL:
                    break
                ids[i] = subject.id
                seq = c.base_seq + row.first
                if subject.count == 0:
                    subject.first = seq
                prev = <uint32_t> (seq - subject.last) if subject.count and seq - subject.last < 0xffffffffu else 0
                if s.locals != NULL:
                    s.locals[i].id, s.locals[i].prev = subject.id, prev
                else:
                    c.entries[row.first].prev = prev
                subject.count += row.count
                subject.last = c.base_seq + row.last
                s.presence[(subject.id & PRESENCE_MASK) >> 6] |= <uint64_t> 1 << (subject.id & 63)
            if subject != NULL and s.locals == NULL:
                i = 0
                while i < c.n:
                    if c.entries[i].flags & ENTRY_MSG:
                        c.entries[i].subject_id = ids[c.entries[i].subject_id]
                    i += max(gap_at(&c.entries[i]), <uint32_t> 1)
            free(ids)
        if c.n_subjects and subject == NULL:
            raise MemoryError
        return 0

    cdef int count(self, SegmentContents c, Segment* s) except -1:
        """Add the entries up, as StreamStore.add_entry and add_gap would have done one by one."""
        cdef FileStore store = self.store
        cdef int64_t ts = store.catalogue.last_ts
        cdef Entry* e
        cdef Entry* first = NULL
        cdef uint32_t i
        s.dead = <uint64_t*> calloc((s.cap >> 6) + 1, 8)
        if s.dead == NULL:
            raise MemoryError
        if s.locals != NULL:            # all are messages, whole and in order
            first, ts = s.entries, c.last_ts
        i = s.n if s.locals != NULL else 0
        while i < s.n:
            e = &s.entries[i]
            i += 1
            if e.flags & ENTRY_MSG:
                ts = e.ts
                if first == NULL:
                    first = e
                if e.flags & ENTRY_ERASED:
                    self.erased.append(e.seq)
            elif gap_at(e):
                segment_mark_range(s, i - 1, i - 1 + gap_at(e))
                i += gap_at(e) - 1
            else:
                ts = max(ts, e.ts)      # its own is of this file only
                e.ts = ts
                segment_mark(s, i - 1)
        s.live = c.messages
        s.live_bytes = c.message_bytes + <uint64_t> store.catalogue.overhead * c.messages \
            + <uint64_t> store.catalogue.header_overhead * c.with_headers
        s.first_ts, s.last_ts = c.first_ts, ts
        store.catalogue.last_seq += s.n
        store.catalogue.last_ts = c.last_ts if c.messages else max(store.catalogue.last_ts, c.last_ts)
        if store.catalogue.msgs == 0 and first != NULL:
            store.catalogue.first_seq, store.catalogue.first_ts = first.seq, first.ts
        elif store.catalogue.msgs == 0 and s.n:
            store.catalogue.first_seq = store.catalogue.last_seq + 1
        store.catalogue.msgs += s.live
        store.catalogue.bytes += s.live_bytes
        return 0

    # -- all of them -------------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Apply what was removed, and open the last segment for appending."""
        store = self.store
        if self.end_damaged:
            self.lose_end()
        removed = self.removed_seqs() if self.lost else set()
        self.finish_erasure()
        store.drop_below(self.floor)
        self.drop_removed()
        self.hear_witnesses(removed)
        for seq in self.erased:
            if store.drop(seq, False) == 0:
                self.lost.append((seq, seq))
                store.files.log.error(f"{store.files.directory}: message {seq} is overwritten but was never removed")
        if store.catalogue.msgs == 0 and (store.catalogue.last_seq or self.floor):
            store.catalogue.first_seq = store.catalogue.last_seq + 1
        store.condition.recovered()
        if self.sync_error is not None:
            store.sync_failed(self.sync_error)
        self.retire_empty()
        for removal in self.unrecorded:
            if index_find(&store.catalogue.index, removal & ~ERASED_BIT) != NULL:
                store.writer.note_removal(removal & ~ERASED_BIT, removal & ERASED_BIT != 0)
        self.count_lost(removed)
        self.tell_ends()
        self.reopen()
        self.sync_later()
        self.find_sparse()

    def hear_witnesses(self, removed) -> None:
        """Tell of segments that are missing, unless all that was in them would be gone by now.

        A power loss may bring back the index file of one that was removed.
        """
        store = self.store
        for path, last_seq, missed, size, what in self.witnesses:
            if any(seq >= self.floor and seq not in removed for seq in missed):
                store.lost_bytes += size
                if what:
                    store.files.log.error(what)
            elif last_seq < self.floor:
                remove_file(store.files.disk, store.files.log, path)

    def retire_empty(self) -> None:
        """Have segments go in which there never was a message: a purge left them, and a kill came before the end."""
        cdef size_t at = self.store.catalogue.index.n
        while at > 1:
            at -= 1
            if self.store.catalogue.index.segments[at - 1].live == 0:
                self.store.retire(at - 1)

    def tell_ends(self) -> None:
        """Report segments without the footer that they had when the next was begun; a purged one never had it."""
        for path, end, next_seq in self.ends:
            if next_seq > self.floor:
                self.store.files.log.warn(f"{path} at {end}: the end of the segment is missing")

    def find_sparse(self) -> None:
        """Have segments written anew that are mostly dead, or not in the form that the stream wants."""
        cdef size_t at
        for at in range(self.store.catalogue.index.n):
            self.store.compactor.note_sparse(self.store.catalogue.index.segments[at])
            self.store.compactor.note_form(self.store.catalogue.index.segments[at])

    def lose_end(self) -> None:
        """Use up a sequence for the damaged record that nothing follows."""
        store = self.store
        if store.catalogue.add_gap(index_last(&store.catalogue.index)) != 0:
            raise MemoryError
        self.lost.append((store.catalogue.last_seq, store.catalogue.last_seq))
        store.writer.state_due = True

    cdef int finish_erasure(self) except -1:
        """Overwrite the message that was erased last: the record of its removal comes first, a kill may follow."""
        cdef FileStore store = self.store
        cdef Segment* s = index_last(&store.catalogue.index)
        cdef uint64_t seq
        if s == NULL or store.writer.indexed or s.n_removed == 0 or not s.removed[s.n_removed - 1] & ERASED_BIT:
            return 0
        seq = s.removed[s.n_removed - 1] & ~ERASED_BIT
        s = index_find(&store.catalogue.index, seq)
        if s != NULL and s.entries[seq - s.base].flags & ENTRY_MSG:
            store.overwrite(s, <uint32_t> (seq - s.base))
        return 0

    cdef int drop_removed(self) except -1:
        """Drop what the DELETES records name. Segments may go with that, so their lists are copied first."""
        cdef FileStore store = self.store
        cdef Segment* s
        cdef size_t at, n = 0
        cdef uint64_t* removed
        for at in range(store.catalogue.index.n):
            n += store.catalogue.index.segments[at].n_removed
        removed = <uint64_t*> malloc((n + 1) * 8)
        if removed == NULL:
            raise MemoryError
        n = 0
        for at in range(store.catalogue.index.n):
            s = store.catalogue.index.segments[at]
            memcpy(removed + n, s.removed, s.n_removed * 8)
            n += s.n_removed
        with nogil:
            for at in range(n):
                store.drop(removed[at] & ~ERASED_BIT, False)
        free(removed)
        for removal in self.unrecorded:
            store.drop(removal & ~ERASED_BIT, False)
        return 0

    def removed_seqs(self) -> set:
        """Return what the DELETES records name."""
        cdef size_t at
        cdef uint32_t i
        cdef Segment* s
        seqs = {removal & ~ERASED_BIT for removal in self.unrecorded}
        for at in range(self.store.catalogue.index.n):
            s = self.store.catalogue.index.segments[at]
            for i in range(s.n_removed):
                seqs.add(s.removed[i] & ~ERASED_BIT)
        return seqs

    def count_lost(self, removed) -> None:
        """Count the damaged messages, those excepted that were gone anyway."""
        lost = [seq for first, last in self.lost for seq in range(max(first, self.floor), last + 1)
                if seq not in removed]
        if lost:
            self.store.note_lost(lost)

    def reopen(self) -> None:
        """Open the last segment, if it may grow."""
        cdef Segment* s
        store = self.store
        if store.catalogue.index.n == 0:
            return
        s = index_last(&store.catalogue.index)
        if s.sealed:
            return
        if s.form:
            self.leave_last(s)
            return
        # Old bytes behind the end must not look like records later.
        if store.writer.allocated > store.writer.written:
            store.writer.cut()
            store.writer.allocated = store.writer.written
        if store.files.key is not None or s.roomy:    # what comes next is encrypted, or would copy the gaps
            store.writer.seal()

    cdef int leave_last(self, Segment* s) except -1:
        """Have the next record begin a new segment: what is encrypted is never written twice at one place.

        What was written behind the records, and never acknowledged, is cut off as it is in a plain segment.
        """
        store = self.store
        s.sealed = store.writer.left = True
        if s.form & CODEC_MASK or (store.writer.allocated == store.writer.written and self.marked):
            return 0
        fd = store.files.disk.open_file(store.files.path_of(s.number))
        try:
            store.files.disk.truncate(fd, self.shift + store.writer.written)
            store.files.disk.write_at(fd, MARK, self.shift + store.writer.written)
        finally:
            store.files.disk.close_file(fd)
        store.writer.allocated = store.writer.written
        return 0

    def sync_later(self) -> None:
        """Have the first sync cover what was read: a process that was killed may not have synced it.

        Otherwise a publish that is repeated would be acknowledged for a message that a power loss takes away.
        """
        cdef size_t at
        cdef Segment* s
        store = self.store
        newest = set(self.scanned[-UNSYNCED_MAX:])
        for at in range(store.catalogue.index.n):
            s = store.catalogue.index.segments[at]
            if s.number in newest:
                store.files.found.append(store.files.path_of(s.number))

    def sync(self, path) -> bool:
        """Bring the bytes of a file to the medium; the store refuses messages if that fails."""
        try:
            sync_path(self.store.files.disk, path)
        except OSError as error:
            self.sync_error = error
            return False
        return True

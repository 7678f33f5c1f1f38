"""Recovery, which reads the segments of a directory when a store is opened.

The contents of a segment come from its index file if that matches, otherwise from a scan of its records. So
after a clean stop no records are read, and after a kill only those of the open segment. Both ways give the
same contents (store/segment/scan). A complete segment whose index file is missing or unusable gets a new
one after its scan. A damaged segment gets none, so that every start finds and reports the damage.

Index files also reveal losses: the messages of a missing segment, or of a segment end that was cut off.

`steps` yields the segments, which the store adopts; after the last one, the Recovery has the losses, the removals and
the next sequence. This module knows nothing of stores.
Compiled, because a starting server adopts millions of entries (measured by benchmarks/store_start.py).
"""
from pyjs.base.borrow cimport borrowed
from pyjs.store.index.sequences cimport ENTRY_MSG
from pyjs.store.format.record cimport (
    FOOTER_SIZE, RECORD_SIZE_MIN, SEGMENT_HEADER_SIZE, SegmentHeader, check_segment_header,
    make_segment_header,
)
from pyjs.store.segment.scan cimport SegmentScan, told_header

from pyjs.base.disk import closing, is_shortage, read_around
from pyjs.base.errors import CorruptRecord
from pyjs.store.format.outer_header import unknown_format
from pyjs.store.format.image import open_image
from pyjs.store.segment.index_claims import begins_alike, lost_removals
from pyjs.store.segment.index_file import (
    IndexUnusable, decode_index, decrypted, encode_index, encrypted, index_path, load_index, map_whole, remove_file,
    store_index,
)
from pyjs.store.format.layout import DAMAGED, UNSYNCED
from pyjs.store.format.recast import NEW
from pyjs.store.store import sync_path

cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence


def is_segment(str name) -> bool:
    """Return whether `name` is the file name of a segment."""
    digits = name[:-4]
    return (name.endswith(".seg") and digits.isascii() and digits.isdigit()
            and int(digits) <= 0xffffffff and name == f"{int(digits):08d}.seg")


def contents_of(str path, data, uint32_t number, uint64_t incarnation, uint64_t next_seq, sure=False,
                image=None):
    """Return the contents of the segment `path` by a scan, or None if its header is damaged and cannot be rebuilt.

    `data` has the bytes of `image`; without `image`, the file is plain. `sure` means that the header is known to have
    had `number`, `incarnation` and `next_seq`. A damaged header is then rebuilt from these, if the scan finds a
    message.

    Raises:
        UnknownFormat: another version wrote it.
    """
    cdef size_t size = 0
    cdef const char* p = borrowed(data, &size)
    cdef SegmentScan scan = SegmentScan()
    cdef SegmentContents c
    cdef SegmentHeader header
    cdef int found = check_segment_header(p, size)
    if found == -2:
        raise unknown_format(p[:SEGMENT_HEADER_SIZE], path)
    if image is not None:
        scan.shift, scan.unread = image.shift, image.unread
    if found == 0:
        return scan.whole(p, size)
    scan.c.problems.append((0, SEGMENT_HEADER_SIZE, "the header is damaged; the records after it tell what it was"))
    if sure and size > SEGMENT_HEADER_SIZE:
        make_segment_header(&header, next_seq, number, incarnation)
    elif told_header(&header, p, size, number, incarnation, next_seq) != 0:
        return None
    c = scan.without_header(&header, p, size)
    return c if c.messages or not sure else None


def report(log, str path, SegmentContents c) -> None:
    """Log each damaged place of a segment."""
    for at, size, what in c.problems:
        log.warn(f"{path} at {at}: {size} bytes: {what}")


cdef class RecoveredSegment:
    pass


cdef class Recovery:
    def __init__(self, SegmentFiles files not None, uint64_t segment_size, stored_tail) -> None:
        self.files = files
        self.segment_size = segment_size
        self.stored_tail = stored_tail
        self.next_number = 1
        self.lost = []
        self.scanned = []
        self.unrecorded = []
        self.witnesses = []
        self.ends = []
        self.damaged_paths = []

    def steps(self):
        """Yield each segment as a RecoveredSegment, oldest first; a step that found no segment yields None.

        Raises, at any step:
            OSError, UnknownFormat, Locked, MemoryError: the files cannot be read.
        """
        directory = self.files.directory
        names = self.files.disk.list_dir(directory)
        self.has_lost_sync = UNSYNCED in names
        self._expect_tail(names)
        names.sort(key=len)                 # sorted by name before; a longer number is higher
        self.damaged_paths += [f"{directory}/{name}" for name in names if name.startswith(DAMAGED)]
        segments = [name for name in names if is_segment(name)]
        present = set(segments)
        for name in names:
            path = f"{directory}/{name}"
            found = None
            if name in present:
                found = self._read_segment(path, int(name[:-4]), name == segments[-1])
            elif name.endswith(".idx") and f"{name[:-4]}.seg" not in present:
                self._miss_segment(path)
            elif name.endswith(NEW):
                remove_file(self.files.disk, self.files.log, path)
            yield found

    # -- files -------------------------------------------------------------------------------------------------
    def _expect_tail(self, names) -> None:
        """If the segment of the stored index file is missing in `names`, write the index file to the directory.

        Then add the name of the index file to `names`, so that the loss of the segment is counted.
        """
        if self.stored_tail is not None:
            stem = f"{self.stored_tail[0]:08d}"
            if f"{stem}.seg" not in names:
                self._keep_tail(f"{self.files.directory}/{stem}.seg")
                if f"{stem}.idx" not in names:
                    names.append(f"{stem}.idx")

    def _has_stored(self, path) -> bool:
        """Return whether the index file of a segment was stored in the common file of the account."""
        stored = self.stored_tail
        return stored is not None and f"{stored[0]:08d}.seg" == path.rpartition("/")[2]

    def _keep_tail(self, path) -> None:
        """Write the stored index file of a segment to a separate file, so that it can show losses of the segment."""
        (_, data), self.stored_tail = self.stored_tail, None
        store_index(self.files.disk, index_path(path), data)

    def _read_segment(self, path, number, last):
        """Return one file as a RecoveredSegment, or None if it was set aside."""
        cdef SegmentContents c, known = None
        cdef bint restored = False
        self.next_number = max(self.next_number, number + 1)
        c, indexed, image, size, reason = None, False, None, 0, "its header is damaged"
        self.distrusted = None
        with closing(self.files.disk, self.files.disk.open_read_only(path)) as fd:
            try:
                size = self.files.disk.size_of(fd)
                image = open_image(self.files.disk, path, fd, self.files.key)
                size = image.size
                c, known, indexed = self._contents_in(path, number, image)
            except CorruptRecord as error:
                reason = error
                if self._has_stored(path):
                    self._keep_tail(path)
                known = self._witness(index_path(path))
        if c is None and known is not None:
            self._set_aside(path, size, reason, True)
            self._add_lost_segment(index_path(path), known)
            return None
        if c is None:
            self._set_aside(path, size, reason)
            return None
        if c.incarnation != self.files.incarnation or c.base_seq <= self.last_seq:
            self._set_aside(path, size, "it belongs to another stream or repeats sequences")
            return None
        if c.base_seq > SEQ_MAX and c.n:
            self._set_aside(path, size, "its sequences are after the last that there can be")
            return None
        if c.number != number:
            self.files.log.warn(f"{path} says that it is number {c.number}: it was renamed, and its name counts")
            c.number = number
        # an encrypted file that is complete: each start begins a new segment
        ended = image.marked and c.end == size and not last
        if not indexed:
            self.scanned.append(number)
            restored = known is not None and self._restore_end(c, known)
            is_needed = restored or (known is not None and self._restore_removals(path, c, known))
            if self.distrusted is not None and not is_needed:
                self._drop_index(path)
            report(self.files.log, path, c)
            self._keep_index(path, c, ended)
        self._bridge(c.base_seq)
        self.cut = 0 if indexed or restored or ended or c.sealed \
            else max(<uint64_t> size, self.segment_size) // (RECORD_SIZE_MIN + 1)
        if c.problems and c.problems[-1][:2] == (c.end, FOOTER_SIZE):
            self.cut = 0                # only the FOOTER is missing
        if not (last or c.sealed or c.problems or ended):
            self.ends.append((path, c.end, c.base_seq + c.n))
        return self.take(c, image, size, ended, c.end if indexed else 0)

    cdef RecoveredSegment take(self, SegmentContents c, image, uint64_t size, bint ended, uint64_t indexed):
        """Add the losses of a segment to the results, and return the segment as a RecoveredSegment."""
        cdef RecoveredSegment found = RecoveredSegment()
        found.contents, found.ended, found.size, found.indexed = c, ended, size, indexed
        found.encoding = image.outer.flags if image.outer is not None else 0
        self.shift, self.marked = image.shift, image.marked
        self.end_damaged = c.end_damaged
        self.floor = max(self.floor, c.floor)
        self.note_run(c, indexed != 0)
        self.lost.extend(c.lost)
        self.lost_bytes += c.lost_bytes
        self.last_seq += c.n
        return found

    cdef void note_run(self, SegmentContents c, bint indexed) noexcept:
        """Add the last run of a segment. Nothing is known of the run in a segment whose index file was read."""
        if indexed or c.run.changed:
            self.run.first_seq, self.run.ended = 0, True
        elif c.messages == 0:
            self.run.ended = self.run.ended or c.run.ended
        else:
            if not c.run.joins or self.run.ended or self.run.first_seq == 0:
                self.run.first_seq = c.run.first_seq
            self.run.ended = c.run.ended

    def _contents_in(self, path, number, image):
        """Return (contents, witness, from_index): the contents of the segment, and those of its index file.

        `contents` is None if the header is damaged and cannot be rebuilt. `witness` is None if there is no
        index file. If `from_index` is True, the contents are from the index file, the segment was not
        read, and `witness` is None.
        """
        cdef SegmentContents c, known
        if image.problem:
            self.files.log.warn(f"{path}: {image.problem}")
        c = self._from_index(path, image)
        if c is not None:
            return c, None, True
        c, known = self._from_records(path, number, image), self._witness(index_path(path))
        if c is None and known is not None and known.base_seq > self.last_seq:
            c = self._from_records(path, number, image, known)
        return c, known, False

    def _from_index(self, path, image):
        """Return the contents from the index file, or None if the segment itself must be read."""
        if self._has_stored(path):
            try:
                stored = self.stored_tail[1]
                return load_index(self.files.disk, path, image, self.files.key, stored)
            except IndexUnusable as unusable:
                self.files.log.debug(f"{path} is read, for its index is not used: {unusable}")
                self._keep_tail(path)
        try:
            return load_index(self.files.disk, path, image, self.files.key)
        except IndexUnusable as unusable:
            if unusable.ordinary:
                self.files.log.debug(f"{index_path(path)} is not used: {unusable}")
            else:
                self.distrusted = unusable
        return None

    def _drop_index(self, path) -> None:
        """Remove an index file that contradicts its segment and shows no loss."""
        self.files.log.warn(f"{index_path(path)} is not used and re-created from its segment: {self.distrusted}")
        remove_file(self.files.disk, self.files.log, index_path(path))

    def _from_records(self, path, number, image, SegmentContents known=None):
        """Return the contents by a scan, or None if the header is damaged and cannot be rebuilt.

        `known` has the contents of the index file, which repeats the fields of the header.
        """
        next_seq = self.last_seq + 1 if known is None else known.base_seq
        return contents_of(path, image.whole(True), number, self.files.incarnation, next_seq, known is not None,
                           image)

    def _keep_index(self, path, SegmentContents c not None, left) -> None:
        """Sync a scanned segment that is sealed or `left`, and then write its index file.

        The next start does not read a segment with an index file, so it would not sync the writes of a killed
        process. If the sync fails here, the store refuses messages.
        """
        if c.problems or c.sparse or not (c.sealed or left):
            return
        try:
            sync_path(self.files.disk, path)
        except OSError as error:
            self.sync_error = error
            return
        self.scanned.remove(c.number)
        try:
            data = encode_index(c)
            store_index(self.files.disk, index_path(path),
                        data if self.files.key is None else encrypted(data, self.files.key))
        except OSError as error:
            self.files.log.warn(f"{index_path(path)} cannot be written: {error}")

    def _witness(self, path):
        """Return the contents of an intact index file of this stream at `path`, or None.

        The contents may not match the segment.
        """
        cdef SegmentContents known
        try:
            known = decode_index(decrypted(map_whole(self.files.disk, path), self.files.key))
        except (OSError, ValueError, IndexUnusable) as error:
            if is_shortage(error):
                raise
            return None
        return known if known.incarnation == self.files.incarnation else None

    def _miss_segment(self, path) -> None:
        """Count the messages of a missing segment as lost, according to its index file.

        A normal removal deletes the index file first, so none is left. Delete an index file that is unusable
        or begins with a known sequence.
        """
        cdef SegmentContents known = self._witness(path)
        if known is None or known.base_seq <= self.last_seq:
            remove_file(self.files.disk, self.files.log, path)
            return
        self.next_number = max(self.next_number, known.number + 1)
        what = f"{path.removesuffix('.idx')}.seg is missing; {path} tells what was in it, and is kept"
        self._add_lost_segment(path, known, what)

    def _add_lost_segment(self, path, SegmentContents known, what="") -> None:
        """Count the messages of a missing segment as lost; the next segment must continue after their sequences."""
        self._bridge(known.base_seq)
        before = len(self.lost)
        self.miss(known, 0)
        self.last_seq = max(self.last_seq, known.base_seq + known.n - 1)
        missed = [first for first, _ in self.lost[before:]]
        ids_ns = known.last_ts if known.with_headers else 0
        self.witnesses.append((path, known.base_seq + known.n - 1, missed, known.message_bytes, ids_ns, what))

    def _restore_end(self, SegmentContents c, SegmentContents known) -> bool:
        """Count the messages in the missing end of an open segment as lost, according to its index file `known`.

        Return False if the index file does not show that the end is missing.
        """
        if c.sealed or c.end >= known.end or c.base_seq != known.base_seq or c.number != known.number \
                or not begins_alike(known, c):
            return False
        if not c.problems or c.problems[-1][0] != c.end:
            c.problems.append((c.end, known.end - c.end, "the end is missing; its index file tells what was in it"))
        c.lost_bytes = max(c.lost_bytes, known.end - c.end)
        self.miss(known, c.n)
        if c.add_gap(known.base_seq + known.n) != 0:
            raise MemoryError
        c.end_damaged = False
        self.state_due = True         # no file records the last used sequence
        return True

    def _restore_removals(self, path, SegmentContents c, SegmentContents known) -> bool:
        """Take from the index file those removals whose records are damaged; return whether there are any.

        The index file stays: the next start needs it if the server is killed before the removals are recorded again.
        """
        lost = lost_removals(known, c)
        if lost is None:
            return False
        self.files.log.warn(f"{path}: the damaged bytes recorded removals; they are taken from {index_path(path)}")
        self.unrecorded += lost
        if known.floor > c.floor:
            self.floor = max(self.floor, known.floor)
            self.state_due = True
        return True

    cdef void miss(self, SegmentContents known, uint32_t start) except *:
        """Count the messages from entry `start` on as lost; note the removals that the segment had recorded."""
        cdef uint32_t i
        for i in range(start, known.n):
            if known.entries[i].flags & ENTRY_MSG:
                self.lost.append((known.base_seq + i, known.base_seq + i))
        self.floor = max(self.floor, known.floor)
        for i in range(known.n_removals):
            self.unrecorded.append(known.removals[i])

    def _set_aside(self, path, size, reason, witnessed=False) -> None:
        """Rename an unreadable segment so that no server reads it again; remove a segment without nonzero bytes."""
        directory, _, name = path.rpartition("/")
        if not witnessed:
            remove_file(self.files.disk, self.files.log, index_path(path))
        if size and any(read_around(self.files.disk, path)):
            self.files.log.error(f"{path} is set aside as .damaged-{name}: {reason}")
            self.lost_bytes += size
            self.files.disk.rename(path, f"{directory}/.damaged-{name}")
            self.damaged_paths.append(f"{directory}/.damaged-{name}")
        else:
            self.files.disk.unlink(path)
        self.files.names_unsynced = True

    def _bridge(self, base_seq) -> None:
        """Continue at sequence `base_seq`.

        If the previous file may lack its end, the sequences between the two files count as lost, as far as they fit
        in the missing end.
        """
        if self.cut and self.last_seq + 1 < base_seq:
            last_seq = self.last_seq
            self.lost.append((last_seq + 1, min(base_seq - 1, last_seq + self.cut)))
        self.cut = 0
        self.end_damaged = False
        self.last_seq = max(self.last_seq, base_seq - 1)

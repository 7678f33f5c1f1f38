"""Index files: the contents of one segment, which a recovery can map.

    index  = header (128 bytes)  entry*  subject*  removal u64*  names  zeros up to a multiple of 8  checksum u64

Numbers are little-endian; every part begins at a multiple of 8, so that numpy and Arrow can map it. An index file is
a cache: all of it is also in the segment. If the index file is missing, damaged or does not match the segment, the
segment is read instead. The index file matches if it has the stream and base sequence in the segment's header, the
size of the segment, and the checksum of the segment's last record. By the chain, this checksum covers all records.
The FOOTER of a sealed segment must agree too.

In an encrypted stream, the whole index is encrypted, and follows an outer header. The file is then not mapped, but
read into memory:

    file   = "PYJSIDX\n"  1 u32  algorithm u32  nonce (16)  index, encrypted

This module knows nothing of stores. The thread that syncs a sealed segment writes its index file; a stopping server
writes missing ones. Compiled, because a server that starts after a clean stop copies and checks each entry (measured
by benchmarks/store_start.py).
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from pyjs.base.borrow cimport borrowed
from pyjs.base.xxh64 cimport xxh64
from pyjs.store.index.sequences cimport ENTRY_ERASED, ENTRY_MSG
from pyjs.store.format.record cimport (
    CHECKSUM_SIZE, FOOTER_SIZE, KIND_FOOTER, RECORD_HEADER_SIZE, RECORD_SIZE_MIN, SEGMENT_HEADER_SIZE, RecordHeader,
    SegmentHeader, check_segment_header, intact, plausible,
)
from pyjs.store.segment.contents cimport ERASED_BIT, NO_PLACE, SubjectRow, subject_at
from pyjs.store.segment.scan cimport SegmentScan, sendable
from pyjs.store.index.subjects cimport SubjectTable, subject_by_id

from pyjs.base.disk import closing, is_shortage
from pyjs.base.errors import PyjsError
from pyjs.base.file_map import FileMap
from pyjs.store.format.image import UNREADABLE, open_image
from pyjs.store.format.lost_sync import forget_lost_sync
from pyjs.store.segment.index_claims import confirmed
from pyjs.store.store import SyncJob
from pyjs.store.crypt.keys import BLOCK_SIZES


cdef enum:
    BUFFER_SIZE = 65536         # bytes of the buffer for the parts before and after the entries
    BUFFER_KEPT_MAX = 4194304
    OUTER_SIZE = 32             # bytes of the header of an encrypted file
    SMALL_ENTRIES = 16    # maximum number of entries of an index in the common file (store/format/tail_file)
    SMALL_SIZE = 2048           # maximum bytes of such an index
cdef uint64_t SEQ_MAX = 0xfffffffffffffffeu     # no message has a higher sequence
# at most one buffer: getting fresh pages for each segment takes longer than filling them
cdef list spare_buffers = []


class IndexUnusable(PyjsError):
    """Raised if an index file cannot be used; `ordinary` means that damage is not the cause."""

    def __init__(self, reason, ordinary=False) -> None:
        super().__init__(reason)
        self.ordinary = ordinary


cdef inline size_t padded(size_t size) noexcept nogil:
    return (size + 7) & ~<size_t> 7


# -- bytes -----------------------------------------------------------------------------------------------------
cpdef bytes encode_index(SegmentContents c):
    """Return the bytes of an unencrypted index file for the contents `c` of a segment."""
    cdef size_t size = encoded_size(c)
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    cdef char* out = PyBytes_AS_STRING(data)
    with nogil:
        encode_into(c, out)
    return data


cdef size_t encoded_size(SegmentContents c) noexcept nogil:
    return (INDEX_HEADER_SIZE + c.n * sizeof(Entry) + c.n_subjects * sizeof(SubjectRow)
            + <size_t> c.n_removals * 8 + padded(c.names_size) + CHECKSUM_SIZE)


cdef void encode_into(SegmentContents c, char* out) noexcept nogil:
    """Write the index file to `out`, in which the entries may already be in place."""
    cdef IndexHeader h
    cdef char* p = out + INDEX_HEADER_SIZE
    cdef uint64_t checksum
    memset(&h, 0, sizeof(h))
    memcpy(h.magic, b"PYJSIDX\n", 8)
    h.version = INDEX_VERSION
    h.base_seq, h.number, h.sealed, h.incarnation = c.base_seq, c.number, c.sealed, c.incarnation
    h.segment_size, h.segment_checksum = c.end, c.chain
    h.floor, h.first_ts, h.last_ts = c.floor, c.first_ts, c.last_ts
    h.messages, h.with_headers, h.message_bytes = c.messages, c.with_headers, c.message_bytes
    h.entry_size, h.entries = sizeof(Entry), c.n
    h.subject_size, h.subjects, h.names_size = sizeof(SubjectRow), c.n_subjects, <uint32_t> c.names_size
    h.removals = c.n_removals
    memcpy(out, &h, INDEX_HEADER_SIZE)
    if <char*> c.entries != p:
        memcpy(p, c.entries, c.n * sizeof(Entry))
    p += c.n * sizeof(Entry)
    memcpy(p, c.subjects, c.n_subjects * sizeof(SubjectRow))
    p += c.n_subjects * sizeof(SubjectRow)
    memcpy(p, c.removals, c.n_removals * 8)
    p += c.n_removals * 8
    memcpy(p, c.names, c.names_size)
    memset(p + c.names_size, 0, padded(c.names_size) - c.names_size)
    p += padded(c.names_size)
    checksum = xxh64(out, p - out, 0)
    memcpy(p, &checksum, CHECKSUM_SIZE)


cpdef SegmentContents decode_index(data):
    """Return the contents in an index file. Entries are not copied; the contents hold a reference to `data`.

    Raises:
        IndexUnusable: the file is damaged, or of another version.
    """
    cdef IndexHeader h
    cdef size_t size = 0
    cdef const char* p = borrowed(data, &size)
    cdef SegmentContents c
    cdef uint64_t checksum = 0
    if size < INDEX_HEADER_SIZE + CHECKSUM_SIZE or memcmp(p, b"PYJSIDX\n", 8) != 0:
        raise IndexUnusable(f"{size} bytes that are no index file")
    memcpy(&checksum, p + size - CHECKSUM_SIZE, CHECKSUM_SIZE)
    if checksum != xxh64(p, size - CHECKSUM_SIZE, 0):
        raise IndexUnusable("its checksum does not match")
    memcpy(&h, p, INDEX_HEADER_SIZE)
    if h.version != INDEX_VERSION or h.flags \
            or h.entry_size != sizeof(Entry) or h.subject_size != sizeof(SubjectRow):
        raise IndexUnusable(f"it is of version {h.version}", ordinary=True)
    if size != (INDEX_HEADER_SIZE + h.entries * sizeof(Entry) + h.subjects * sizeof(SubjectRow)
                + <size_t> h.removals * 8 + padded(h.names_size) + CHECKSUM_SIZE):
        raise IndexUnusable("its parts do not add up")
    c = SegmentContents()
    c.base_seq, c.number, c.sealed, c.incarnation = h.base_seq, h.number, h.sealed, h.incarnation
    c.end, c.chain = h.segment_size, h.segment_checksum
    c.floor, c.first_ts, c.last_ts = h.floor, h.first_ts, h.last_ts
    c.messages, c.with_headers, c.message_bytes = h.messages, h.with_headers, h.message_bytes
    c.entries, c.n, c.borrowed, c.source = <Entry*> (p + INDEX_HEADER_SIZE), h.entries, True, data
    copy_parts(c, &h, p + INDEX_HEADER_SIZE + h.entries * sizeof(Entry))
    if not consistent(c):
        raise IndexUnusable("its entries and subjects do not agree")
    return c


cdef void copy_parts(SegmentContents c, IndexHeader* h, const char* p) except *:
    if c.reserve(h.subjects, h.names_size, h.removals) != 0:
        raise MemoryError
    c.n_subjects, c.names_size, c.n_removals = h.subjects, h.names_size, h.removals
    memcpy(c.subjects, p, c.n_subjects * sizeof(SubjectRow))
    p += c.n_subjects * sizeof(SubjectRow)
    memcpy(c.removals, p, c.n_removals * 8)
    p += c.n_removals * 8
    memcpy(c.names, p, c.names_size)


cdef bint consistent(SegmentContents c) except *:
    """Return whether the entries and subjects of `c` are valid, so that a recovery can use them unchecked."""
    cdef SubjectRow* rows = <SubjectRow*> calloc(c.n_subjects + 1, sizeof(SubjectRow))
    cdef SubjectRow* row
    cdef uint32_t i, messages = 0, with_headers = 0
    cdef uint64_t size = 0
    cdef bint good = c.floor <= c.base_seq + c.n and 0 < c.base_seq <= SEQ_MAX - c.n
    if rows == NULL:
        raise MemoryError
    for i in range(c.n_removals):
        good = good and c.removals[i] & ~ERASED_BIT < c.base_seq + c.n
    with nogil:
        for i in range(c.n):
            if not follows(c, rows, i):
                good = False
                break
            if c.entries[i].flags & ENTRY_MSG:
                messages += 1
                with_headers += c.entries[i].header_len != 0
                size += c.entries[i].subject_len + <uint64_t> c.entries[i].size
            c.erased |= c.entries[i].flags & ENTRY_ERASED != 0
        for i in range(c.n_subjects):
            row = &c.subjects[i]
            if row.count != rows[i].count or row.first != rows[i].first or row.last != rows[i].last \
                    or row.count == 0 or <uint64_t> row.name_at + row.name_size > c.names_size \
                    or not sendable(c.names + row.name_at, row.name_size):
                good = False
        free(rows)
    return good and messages == c.messages and with_headers == c.with_headers and size == c.message_bytes


cdef inline bint follows(SegmentContents c, SubjectRow* rows, uint32_t i) noexcept nogil:
    """Return whether entry i is consistent with the entries before it, which `rows` counts; if so, count it too."""
    cdef Entry* e = &c.entries[i]
    cdef SubjectRow* row
    if e.seq != c.base_seq + i:
        return False
    if not e.flags & ENTRY_MSG:
        return True
    if e.subject_id >= c.n_subjects or e.header_len > e.size or e.offset < SEGMENT_HEADER_SIZE \
            or <uint64_t> e.offset + RECORD_SIZE_MIN + e.subject_len + e.size > c.end \
            or e.subject_len != c.subjects[e.subject_id].name_size:
        return False
    row = &rows[e.subject_id]
    if e.prev != (i - row.last if row.count else 0):
        return False
    if row.count == 0:
        row.first = i
    row.last = i
    row.count += 1
    return True


# -- files -----------------------------------------------------------------------------------------------------
def index_path(str segment_path) -> str:
    """Return the path of the index file of a segment."""
    return f"{segment_path.removesuffix('.seg')}.idx"


def encrypted(data, key) -> bytes:
    """Return the encrypted index file for the unencrypted one, `data`."""
    nonce = key.new_nonce()
    head = b"PYJSIDX\n" + INDEX_VERSION.to_bytes(4, "little") + key.algorithm.to_bytes(4, "little") + nonce
    return head + key.stream(key.algorithm, nonce).apply(data, 0)


def decrypted(data, key):
    """Return the plain index of a file, decrypting it if necessary.

    Raises:
        IndexUnusable: another key encrypted the file.
    """
    algorithm = int.from_bytes(data[12:16], "little")
    if len(data) < OUTER_SIZE or algorithm == 0:
        return data
    nonce = bytes(data[16:OUTER_SIZE])
    if key is None or not key.fits(nonce) or algorithm not in BLOCK_SIZES:
        raise IndexUnusable("it is encrypted with another key")
    return key.stream(algorithm, nonce).apply(data[OUTER_SIZE:], 0)


def load_index(disk, str path, image, key, stored=None) -> SegmentContents:
    """Return the contents of the segment `path`, whose plain image is `image`, from its index file.

    If the index file was in the account's common file, `stored` has its bytes.

    Raises:
        IndexUnusable: the index file cannot be used, so the caller must read the segment.
        OSError: out of file descriptors or memory.
    """
    cdef SegmentContents c
    try:
        mapped = map_whole(disk, index_path(path)) if stored is None else stored
        file = memoryview(mapped)
        data = decrypted(file, key)
    except FileNotFoundError:
        raise IndexUnusable("there is none", ordinary=True) from None
    except (OSError, ValueError) as error:
        if is_shortage(error):
            raise
        raise IndexUnusable(str(error)) from None
    if data is file and image.outer is not None and image.outer.cipher:
        raise IndexUnusable("it is not encrypted, and its segment is", ordinary=True)
    c = decode_index(data)
    size = image.size
    if not SEGMENT_HEADER_SIZE <= c.end <= size:
        raise IndexUnusable("it is not of the segment as it is now", ordinary=True)
    at = max(c.end, FOOTER_SIZE + CHECKSUM_SIZE) - FOOTER_SIZE - CHECKSUM_SIZE
    try:
        fits = fits_segment(c, size, image.read(0, SEGMENT_HEADER_SIZE), image.read(at, c.end - at))
        agrees = fits and confirmed(c, image)
    except OSError as error:
        if is_shortage(error):
            raise
        raise IndexUnusable(f"its segment cannot be read: {error}", ordinary=True) from None
    if not fits:
        raise IndexUnusable("it is not of the segment as it is now", ordinary=True)
    if not agrees:
        raise IndexUnusable("it says something else than its segment")
    if data is file and isinstance(mapped, FileMap):
        mapped.unguard()        # later reads are unchecked, and must not get zeros for an unreadable page
    return c


def map_whole(disk, str path) -> object:
    """Return a read-only map of a file. Raises OSError, or ValueError if the file is empty."""
    with closing(disk, disk.open_read_only(path)) as fd:
        return disk.map_file(fd, disk.size_of(fd))


def fits_segment(SegmentContents c not None, uint64_t size, bytes head, bytes tail) -> bool:
    """Return whether the index `c` matches a segment of `size` bytes with the header `head` and the end `tail`."""
    cdef SegmentHeader header
    cdef RecordHeader footer
    cdef uint64_t[6] summary
    cdef uint64_t before = 0, last = 0
    cdef const char* p = tail
    cdef size_t n = len(tail)
    if check_segment_header(head, len(head)) != 0 or n < CHECKSUM_SIZE or size < c.end:
        return False
    memcpy(&header, <const char*> head, SEGMENT_HEADER_SIZE)
    memcpy(&last, p + n - CHECKSUM_SIZE, CHECKSUM_SIZE)
    if header.base_seq != c.base_seq or header.number != c.number or header.incarnation != c.incarnation:
        return False
    if last != c.chain:
        return False
    if not c.sealed:
        return size == c.end
    if n != FOOTER_SIZE + CHECKSUM_SIZE:
        return False
    memcpy(&before, p, CHECKSUM_SIZE)
    p += CHECKSUM_SIZE
    if not plausible(p, FOOTER_SIZE) or not intact(p, before):
        return False
    memcpy(&footer, p, RECORD_HEADER_SIZE)
    memcpy(summary, p + RECORD_HEADER_SIZE, sizeof(summary))
    return (footer.kind == KIND_FOOTER and footer.length == FOOTER_SIZE and summary[0] == c.base_seq
            and summary[2] == c.n and summary[5] == c.end - FOOTER_SIZE)


def store_index(disk, str path, data) -> None:
    """Write an index file without a sync; its checksum reveals an incomplete file. Raises OSError.

    An existing file at `path` is removed, not overwritten, since it may be mapped.
    """
    try:
        disk.unlink(path)
    except FileNotFoundError:
        pass
    with closing(disk, disk.open_file(path, create=True)) as fd:
        disk.write_at(fd, data, 0)


def small_index(FullSegment f not None):
    """Return the index file of a small segment, made from memory alone, or None if this is not possible.

    Call this in the thread of the store.
    """
    cdef SegmentContents c
    cdef Entry[SMALL_ENTRIES] room
    if f.entries == NULL or f.n > SMALL_ENTRIES:
        return None
    c = SegmentContents()
    c.entries, c.room, c.borrowed = room, f.n, True
    try:
        if f.fill(c, NULL) != 0:
            raise MemoryError
        data = encode_index(c) if encoded_size(c) <= SMALL_SIZE else None
    finally:
        c.entries = NULL        # they are valid only during this function
    return data if data is None or f.key is None else encrypted(data, f.key)


cdef object unset_buffer(size_t size):
    """Return a buffer of `size` bytes; its pages are first touched when it is filled, without the GIL."""
    return PyByteArray_FromStringAndSize(NULL, size)


def index_segment(disk, FullSegment f not None) -> None:
    """Write the index file of a segment; any thread may call this.

    Raises:
        IndexUnusable: the segment is damaged, or belongs to another stream; the next start must read it.
        OSError, ValueError, CorruptRecord, UnknownFormat, Locked: the segment cannot be read.
    """
    cdef SegmentContents c
    cdef size_t size = 0
    cdef const char* image
    cdef char* p
    cdef object room
    cdef object buffer = spare_buffers.pop() if spare_buffers else unset_buffer(BUFFER_SIZE)
    whole = whole_image(disk, f.path, f.key)
    image = borrowed(whole, &size)
    if <size_t> len(buffer) < INDEX_HEADER_SIZE + f.n * sizeof(Entry):
        buffer = unset_buffer(INDEX_HEADER_SIZE + f.n * sizeof(Entry) + BUFFER_SIZE)
    room = buffer                           # `c` points into the buffer, which must stay in memory
    c = f.contents(image, size, PyByteArray_AS_STRING(room))
    size = encoded_size(c)
    if size > <size_t> len(buffer):
        buffer = unset_buffer(size)
    p = PyByteArray_AS_STRING(buffer)
    with nogil:
        encode_into(c, p)
    data = memoryview(buffer)[:size]
    store_index(disk, index_path(f.path), data if f.key is None else encrypted(data, f.key))
    if len(buffer) <= BUFFER_KEPT_MAX and not spare_buffers:
        spare_buffers.append(buffer)  # the buffer itself: with a view of a view, each use would make the chain longer


def whole_image(disk, str path, key):
    """Return the plain image of a segment, as a map if the file is plain. Raises ValueError if it is empty."""
    with closing(disk, disk.open_read_only(path)) as fd:
        image = open_image(disk, path, fd, key)
        if image.size == 0:
            raise ValueError("it is empty")
        return image.whole()


def index_segments(disk, segments) -> list:
    """Write the index files of segments; return the errors, whose only effect is a slower start."""
    problems = []
    for segment in segments:
        try:
            index_segment(disk, segment)
        except UNREADABLE + (IndexUnusable,) as error:
            problems.append(f"{segment.path} gets no index file: {error}")
    return problems


cdef FullSegment full_segment(Catalogue catalogue, SegmentFiles files, object retired, Segment* s, bint footer,
                              uint64_t chain, bint whole):
    """Return the data for the index file of `s`; `whole` means that the file of `s` lacks no record."""
    cdef FullSegment f = FullSegment()
    f.catalogue, f.retired = catalogue, retired
    f.path, f.key = files.path_of(s.number), files.key
    f.base_seq, f.number, f.incarnation, f.sealed = s.base, s.number, files.incarnation, footer
    f.end, f.chain, f.floor = s.end, chain, s.floor
    # A dead entry may lack a message in the file, and its subject id may now belong to another subject.
    if whole and s.n and s.live == s.n:
        f.entries, f.n = s.entries, s.n
        f.removals, f.n_removals = s.removed, s.n_removed
    return f


cdef class FullSegment:
    cdef SegmentContents contents(self, const char* file, size_t size, char* room):
        """Return the contents of the segment whose image is at `file`, from the entries if possible, else by a scan.

        The entries are copied to `room`, their place in the index file; this memory must not be freed before the
        contents are.

        Raises:
            IndexUnusable: the segment is damaged or incomplete, or has wide gaps.
        """
        cdef SegmentContents c
        cdef int failed
        if self.entries == NULL:
            if check_segment_header(file, size) != 0:
                raise IndexUnusable("its header is damaged")
            c = SegmentScan().whole(file, size)
            if c.problems or c.incarnation != self.incarnation:
                raise IndexUnusable(f"the segment is damaged: {c.problems}")
            if c.sparse:
                raise IndexUnusable("the segment has gaps that an index file would spell out")
            return c
        if size < self.end:
            raise IndexUnusable(f"it has {size} bytes where {self.end} were written")
        c = SegmentContents()
        c.entries, c.room, c.borrowed = <Entry*> (room + INDEX_HEADER_SIZE), self.n, True
        with nogil:
            failed = self.fill(c, file)
        if failed:
            raise MemoryError
        return c

    cdef int fill(self, SegmentContents c, const char* file) noexcept nogil:
        """Fill `c` from the entries; read the name of each subject from one of its records in the file.

        If `file` is NULL, the store gives the names, which is allowed only in the store's thread.
        """
        cdef SubjectTable* table = &self.catalogue.subjects.table
        cdef uint32_t* places
        cdef uint32_t i, ids = 0
        cdef Entry* e
        cdef const char* name
        if c.reserve(0, 0, self.n_removals) != 0:
            return -1
        c.base_seq, c.number, c.incarnation, c.sealed = self.base_seq, self.number, self.incarnation, self.sealed
        c.end, c.chain, c.floor = self.end, self.chain, self.floor
        c.n, c.n_removals = self.n, self.n_removals
        memcpy(c.entries, self.entries, c.n * sizeof(Entry))
        memcpy(c.removals, self.removals, c.n_removals * 8)
        for i in range(c.n):
            ids = max(ids, c.entries[i].subject_id + 1)
        places = <uint32_t*> calloc(ids, sizeof(uint32_t))      # subject id -> 1 + position
        if places == NULL:
            return -1
        for i in range(c.n):
            e = &c.entries[i]
            ids = e.subject_id
            if places[ids] == 0:
                name = name_in(file, e) if file != NULL else subject_by_id(table, ids).name
                if c.add_subject(name, e.subject_len) == NO_PLACE:
                    break
                places[ids] = c.n_subjects
            c.count_message(e, places[ids] - 1)
        free(places)
        return 0 if c.messages == c.n else -1


cdef inline const char* name_in(const char* file, Entry* e) noexcept nogil:
    return file + subject_at(e)


def remove_file(disk, log, str path) -> None:
    """Remove a file if it exists. An error is only logged."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warn(f"{path} could not be removed: {error}")


class SegmentSync(SyncJob):
    """A SyncJob that also writes the index files of newly sealed segments, after the sync.

    An index file is only a cache, so a failure to write one is not an error.
    """

    def __init__(self, disk, files, directory, mark, sealed) -> None:
        super().__init__(disk, files, directory, mark)
        self.sealed = sealed            # FullSegments
        self.problems = []              # errors while writing index files

    def __call__(self):
        """Sync, then write index files; return the first error of the sync, or None if everything is durable."""
        error = super().__call__()
        if error is None:
            if self.found:
                forget_lost_sync(self.disk, self.found[0].rpartition("/")[0])
            self.problems = index_segments(self.disk, self.sealed)
        return error

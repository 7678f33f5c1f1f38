"""Bulk reads: a range of a store as chunks that have an index and raw log records.

A chunk is a header, entries as in an index file, and their log records without gaps, as in a segment's plain
image (docs/bulk-read.md). Each record is found and checked as in any other read, unless the client checks it itself;
adjacent records are copied together. A message of a memory store gets the record header that it would have in a file,
without checksums.

A reader reads one range from its start to its end. A call stops after the work that one turn allows; skipped messages
and decompression count as work too. Nothing here yields, so borrowed pointers stay valid during the copy.

This module knows nothing of requests and clients. Compiled: it creates no object per message
(benchmarks/bulk_read.py).
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pyjs.base.bad_pages cimport bad_pages
from pyjs.base.grow cimport grow
from pyjs.store.file.store cimport FileStore
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.sequences cimport (
    CHUNK_BITS,
    ENTRY_EXTENDED,
    ENTRY_MSG,
    Entry,
    Segment,
    index_at,
    is_dead,
    is_filled,
    segment_count_from,
    segment_next_live,
    subject_of,
)
from pyjs.store.format.record cimport (
    CHECKSUM_SIZE, FLAG_EXTENDED, KIND_MSG, RECORD_HEADER_SIZE, RECORD_SIZE_MIN, RecordHeader,
)
from pyjs.store.store cimport StreamStore
from pyjs.store.segment.view cimport View

from pyjs.base.errors import NotNow

cdef enum:
    HEADER_SIZE = 64
    FLAGS_AT = 6
    FLAG_LAST = 1               # this is the last chunk of the answer
    FLAG_END = 2                # the end of the range or of the stream was reached
    FLAG_ENTRIES_ONLY = 4
    DATA_MAX = 0x7fffffff
    ASKED = 2048                # size of `asked`
# Approximate costs in nanoseconds; they limit the work of one request (tests/unit/store/file/test_bulk.py).
cdef enum:
    WORK_MAX = 1500000
    WORK_SKIPPED = 10           # a message that the filter does not match
    WORK_ENTRY = 8              # a message in a chunk that has only entries
    WORK_PATTERN = 15           # a comparison of a subject with one pattern of the filter
    WORK_RECORD = 30            # a record that is checked and copied; its bytes are counted in addition
    WORK_SEGMENT = 2000
    WORK_FILL = 60000           # decompression or decryption of 64 KiB
    BYTES_PER_WORK = 2          # bytes checked and copied per nanosecond

cdef packed struct ChunkHeader:
    char[4] magic
    uint16_t version
    uint16_t flags
    uint64_t first
    uint64_t next
    uint64_t stream_first_seq
    uint64_t stream_last_seq
    uint32_t entries
    uint32_t data_size
    uint32_t segment
    uint32_t lost
    uint64_t incarnation

cdef struct Run:                # adjacent bytes to copy
    const char* p
    size_t size

cdef enum Stop:
    STOP_END                    # the range has ended
    STOP_FULL                   # the chunk is full, and more messages follow
    STOP_WORK                   # the work allowed for one request is used up
    STOP_NOT_NOW                # the next message cannot be read for the moment
    STOP_NO_MEMORY


@cython.final
cdef class BulkReader:
    """The unread part of one range of a store, from `next_seq` on."""
    cdef StreamStore store
    cdef FileStore files                # the store, if it has files; None: it is in memory
    cdef StoreFilter wanted
    cdef readonly uint64_t next_seq
    cdef uint64_t end                   # the end of the range, exclusive
    cdef uint64_t incarnation
    cdef bint entries_only
    cdef bint unchecked                 # the client checks the records from files
    cdef uint32_t[ASKED] asked          # ids + 1 of subjects whose filter result is cached, by the low bits of the id
    cdef int64_t work                   # work that this request may still do, in ns
    cdef Stop stop                      # the reason why the last chunk ended

    # The chunk that is being composed.
    cdef Entry* entries
    cdef size_t n, room
    cdef Run* runs
    cdef size_t n_runs, runs_room
    cdef size_t data_size
    cdef uint32_t segment, lost
    cdef bint damaged                   # damage was found in the current segment since this chunk was begun
    cdef const char* kept               # first byte of the map that was added last to `keep`
    cdef list keep                      # owners of the memory that the runs point into

    def __init__(self, StreamStore store not None, StoreFilter wanted not None, uint64_t seq, uint64_t end_seq,
                 bint entries_only=False, uint64_t incarnation=0, bint unchecked=False) -> None:
        """Read from `seq` up to, but not including, `end_seq`; an `end_seq` of 0 means the current end.

        With `unchecked`, the client must check each record itself.
        """
        self.store = store
        self.files = store if isinstance(store, FileStore) else None
        self.wanted = wanted
        self.next_seq = seq
        self.end = store.catalogue.last_seq + 1 if end_seq == 0 else min(end_seq, store.catalogue.last_seq + 1)
        self.entries_only = entries_only
        self.unchecked = unchecked and self.files is not None
        self.incarnation = incarnation
        self.work = WORK_MAX
        self.keep = []

    def __dealloc__(self):
        free(self.entries)
        free(self.runs)

    def read(self, size_t size_max, size_t chunk_size) -> list:
        """Return one or more chunks; each has up to `chunk_size` bytes, and together they have up to `size_max`.

        Only a single large message may exceed these sizes. If `size_max` is 0, return one chunk without messages.

        Raises:
            NotNow: the first message cannot be read for the moment.
        """
        cdef size_t limit
        cdef bytes chunk
        cdef list chunks = []
        cdef int flags = 0
        while not flags & FLAG_LAST:
            limit = min(chunk_size, size_max)
            chunk = self.next_chunk(limit, chunks == [])
            size_max -= min(<size_t> len(chunk), size_max)
            flags = FLAG_LAST if self.stop != STOP_FULL or self.work < 0 or size_max * 4 < limit else 0
            flags |= FLAG_END if self.stop == STOP_END else 0
            PyBytes_AS_STRING(chunk)[FLAGS_AT] |= flags
            chunks.append(chunk)
        return chunks

    cdef bytes next_chunk(self, size_t limit, bint is_first):
        """Compose and return the next chunk; set `stop` to the reason for its end."""
        cdef uint64_t first = self.next_seq, unreadable
        cdef bytes chunk = None
        while chunk is None:
            self.next_seq = first
            self.n = self.n_runs = self.data_size = 0
            self.lost = 0
            self.stop = self.gather(limit)
            if self.stop == STOP_NO_MEMORY:
                raise MemoryError
            if self.stop == STOP_NOT_NOW and self.n == 0 and is_first:
                raise NotNow(f"message {self.next_seq} cannot be read now")
            unreadable = bad_pages()
            chunk = self.compose(first)
            if bad_pages() != unreadable:       # a page became unreadable after the check, before the copy
                chunk = None
            self.keep.clear()
            self.kept = NULL
        return chunk

    # -- contents of a chunk -----------------------------------------------------------------------------------
    cdef Stop gather(self, size_t limit) noexcept nogil:
        """Collect messages from next_seq on until a chunk of `limit` bytes is full; return the reason for the end."""
        cdef Stop stop
        cdef size_t at
        cdef Segment* s
        if limit == 0 and self.next_seq < self.end:
            return STOP_WORK
        while self.next_seq < self.end:
            at = index_at(&self.store.catalogue.index, self.next_seq)
            if at == self.store.catalogue.index.n or self.store.catalogue.index.segments[at].base >= self.end:
                break
            s = self.store.catalogue.index.segments[at]
            if self.n == 0:
                self.segment = s.number
            elif self.entries_only and s.number != self.segment:
                return STOP_FULL
            self.work -= WORK_SEGMENT
            stop = self.gather_segment(s, limit)
            if stop != STOP_END:
                return stop
            if self.work < 0 and self.next_seq < self.end:
                return STOP_WORK
        self.next_seq = max(self.next_seq, self.end)
        return STOP_END

    cdef Stop gather_segment(self, Segment* s, size_t limit) noexcept nogil:
        """Collect the matching messages of one segment; STOP_END means that the whole segment was searched."""
        cdef uint32_t begin = <uint32_t> (self.next_seq - s.base) if self.next_seq > s.base else 0
        cdef uint32_t behind = <uint32_t> (self.end - s.base) if self.end - s.base < s.n else s.n
        cdef uint32_t i = segment_next_live(s, begin)
        cdef uint64_t live = segment_count_from(s, begin)
        cdef Stop stop = STOP_END
        cdef bint viewed = s.filled != NULL
        self.damaged = False
        while i < behind and stop == STOP_END:
            if self.work < 0:
                stop = STOP_WORK
            elif not (self.wanted.all or self.is_wanted(subject_of(s, i))):
                self.work -= WORK_SKIPPED
            else:
                stop = self.take_entry(s, i, limit) if self.entries_only else self.take_record(s, i, limit)
            if stop == STOP_END:
                i = segment_next_live(s, i + 1)
        if self.damaged:
            self.lost += <uint32_t> (live - segment_count_from(s, begin))
        self.next_seq = s.base + (behind if stop == STOP_END else i)
        if s.filled != NULL and (not viewed or self.next_seq == s.base + s.n):
            with gil:
                self.pass_view(s, viewed)
        return stop

    cdef void pass_view(self, Segment* s, bint known) noexcept:
        """After the last message of a view that only bulk reads used, free the view to make room for other views."""
        cdef View view = self.files.maps.views.get(s.number)
        if view is not None:
            view.passing |= not known
            if view.passing and self.next_seq == s.base + s.n:
                self.files.maps.forget(s)

    cdef bint is_wanted(self, uint32_t id) noexcept nogil:
        """Return whether the filter matches the subject with this id; count the work unless the result is cached."""
        if self.asked[id & (ASKED - 1)] != id + 1:
            self.asked[id & (ASKED - 1)] = id + 1
            self.work -= <int64_t> self.wanted.n * WORK_PATTERN
        return self.wanted.matches(&self.store.catalogue.subjects.table, id)

    cdef Stop take_entry(self, Segment* s, uint32_t i, size_t limit) noexcept nogil:
        """Add only the entry of a message to the chunk, if there is room."""
        if self.n and HEADER_SIZE + (self.n + 1) * sizeof(Entry) > limit:
            return STOP_FULL
        self.work -= WORK_ENTRY
        return self.add_entry(s, i, s.entries[i].offset, s.entries[i].flags & ENTRY_EXTENDED)

    cdef Stop take_record(self, Segment* s, uint32_t i, size_t limit) noexcept nogil:
        """Add a message with its record to the chunk, if there is room; skip a damaged message."""
        cdef Entry* e = &s.entries[i]
        cdef size_t length = RECORD_SIZE_MIN + (16 if e.flags & ENTRY_EXTENDED else 0) + e.subject_len + e.size
        cdef size_t size = HEADER_SIZE + (self.n + 1) * sizeof(Entry) + self.data_size + length
        cdef const char* p = NULL
        cdef RecordHeader h
        cdef bint examined = s.examined
        cdef int found, extended
        if self.n and (size > limit or self.data_size + length > DATA_MAX):
            return STOP_FULL
        self.note_work(s, e, length)
        found = self.files.find_unchecked(s, i, &p) if self.unchecked else self.store.find_stored(s, i, &p)
        if found < 0 or s.examined != examined:
            self.damaged = True
            self.work = -1                      # stop here, since a whole segment may have been read
        if found == -3:
            return STOP_NOT_NOW
        if found < 0:
            self.lost += not is_dead(s, i)
            return STOP_END
        h.flags = 0
        if found == 0:
            memcpy(&h, p, RECORD_HEADER_SIZE)
            length = h.length
            if s.data != self.kept:
                self.hold(s)
        extended = ENTRY_EXTENDED if h.flags & FLAG_EXTENDED else 0
        if self.add_entry(s, i, <uint32_t> self.data_size, extended) != STOP_END:
            return STOP_NO_MEMORY
        self.data_size += length
        return self.add_run(p, length if found == 0 else length - RECORD_SIZE_MIN, found == 0)

    cdef void note_work(self, Segment* s, Entry* e, size_t length) noexcept nogil:
        """Count the work of checking and copying a record."""
        cdef uint64_t begin = e.offset - CHECKSUM_SIZE, end = e.offset + length
        self.work -= WORK_RECORD + length // BYTES_PER_WORK
        if s.encoding and (s.filled == NULL or not is_filled(s.filled, begin, end)):
            self.work -= ((end >> CHUNK_BITS) - (begin >> CHUNK_BITS) + 1) * WORK_FILL

    cdef void hold(self, Segment* s) noexcept nogil:
        """Hold a reference to the map or view of `s` until the chunk is composed, since later reads may drop it."""
        self.kept = s.data
        if s.data != NULL:
            with gil:
                self.keep.append(self.files.maps.maps.get(s.number))
                self.keep.append(self.files.maps.views.get(s.number))

    cdef Stop add_entry(self, Segment* s, uint32_t i, uint32_t offset, int flags) noexcept nogil:
        cdef Entry* e
        if grow(<void**> &self.entries, &self.room, self.n + 1, sizeof(Entry)) != 0:
            return STOP_NO_MEMORY
        e = &self.entries[self.n]
        self.n += 1
        e[0] = s.entries[i]
        e.seq = s.base + i
        e.offset = offset
        e.flags = <uint16_t> (ENTRY_MSG | flags)
        e.subject_id = subject_of(s, i)
        e.prev = 0
        return STOP_END

    cdef Stop add_run(self, const char* p, size_t size, bint whole) noexcept nogil:
        """Queue bytes for the copy; whole records that are adjacent are merged into one run."""
        cdef Run* run = &self.runs[self.n_runs - 1] if self.n_runs else NULL
        if whole and run != NULL and run.p + run.size == p:
            run.size += size
            return STOP_END
        if grow(<void**> &self.runs, &self.runs_room, self.n_runs + 1, sizeof(Run)) != 0:
            return STOP_NO_MEMORY
        self.runs[self.n_runs].p = p
        self.runs[self.n_runs].size = size
        self.n_runs += 1
        return STOP_END

    # -- the chunk ---------------------------------------------------------------------------------------------
    cdef bytes compose(self, uint64_t first):
        """Return the collected messages as one chunk."""
        cdef size_t size = HEADER_SIZE + self.n * sizeof(Entry) + self.data_size
        cdef bytes chunk = PyBytes_FromStringAndSize(NULL, size)
        cdef char* out = PyBytes_AS_STRING(chunk)
        cdef ChunkHeader h
        memcpy(h.magic, b"PYJB", 4)
        h.version = 1
        h.flags = FLAG_ENTRIES_ONLY if self.entries_only else 0
        h.first, h.next = first, self.next_seq
        h.stream_first_seq, h.stream_last_seq = self.store.catalogue.first_seq, self.store.catalogue.last_seq
        h.entries, h.data_size = <uint32_t> self.n, <uint32_t> self.data_size
        h.segment, h.lost = self.segment, self.lost
        h.incarnation = self.incarnation
        memcpy(out, &h, HEADER_SIZE)
        if self.n:
            memcpy(out + HEADER_SIZE, self.entries, self.n * sizeof(Entry))
        out += HEADER_SIZE + self.n * sizeof(Entry)
        out += self.put_runs(out) if self.files is not None else self.put_records(out)
        assert out == PyBytes_AS_STRING(chunk) + size
        return chunk

    cdef size_t put_runs(self, char* out) noexcept nogil:
        """Copy the collected records to `out` unchanged; return their size in bytes."""
        cdef size_t k, size = 0
        for k in range(self.n_runs):
            memcpy(out + size, self.runs[k].p, self.runs[k].size)
            size += self.runs[k].size
        return size

    cdef size_t put_records(self, char* out) noexcept nogil:
        """Write the records to `out` as in a file, but without checksums; return their size in bytes."""
        cdef size_t k, size = 0
        cdef RecordHeader h
        memset(&h, 0, sizeof(h))
        h.kind = KIND_MSG
        for k in range(self.n_runs):
            h.length = <uint32_t> (RECORD_SIZE_MIN + self.runs[k].size)
            h.subject_len = self.entries[k].subject_len
            h.seq, h.ts, h.header_len = self.entries[k].seq, self.entries[k].ts, self.entries[k].header_len
            memcpy(out + size, &h, RECORD_HEADER_SIZE)
            memcpy(out + size + RECORD_HEADER_SIZE, self.runs[k].p, self.runs[k].size)
            memset(out + size + h.length - CHECKSUM_SIZE, 0, CHECKSUM_SIZE)
            size += h.length
        return size


def segment_count(StreamStore store not None) -> int:
    """Return the number of segments of a store."""
    return store.catalogue.index.n


def describe_segments(StreamStore store not None, size_t offset, size_t limit) -> list:
    """Return descriptions of up to `limit` segments, oldest first, without the first `offset` ones.

    If a segment has no messages, its first and last sequences and times are 0.
    """
    cdef size_t at
    cdef Segment* s
    cdef list rows = []
    for at in range(min(offset, store.catalogue.index.n), min(offset + limit, store.catalogue.index.n)):
        s = store.catalogue.index.segments[at]
        rows.append(describe(s, isinstance(store, FileStore)))
    return rows


cdef dict describe(Segment* s, bint in_file):
    cdef uint32_t first = segment_next_live(s, 0), last = s.n
    cdef bint live = s.live != 0
    cdef dict row
    while live and is_dead(s, last - 1):
        last -= 1
    row = {
        "number": s.number, "base_seq": s.base,
        "first_seq": s.base + first if live else 0, "last_seq": s.base + last - 1 if live else 0,
        "messages": s.live, "bytes": s.live_bytes,
        "first_ts": s.entries[first].ts if live else 0, "last_ts": s.entries[last - 1].ts if live else 0,
    }
    return row | {"sealed": s.sealed != 0, "file_bytes": s.end, "form": s.encoding} if in_file else row

"""Reading the segments of a directory back into a FileStore.

Every record is checked. Where one does not check out there are three cases. Its checksum alone is damaged: the next
record, whose seed is that checksum, fits the one computed, and nothing is lost. Valid records follow somewhere: the
bytes between are damage, counted and reported, and what follows is kept. Nothing valid follows: the last write was
cut short, its messages were never acknowledged, and the file is cut there; unless a whole record stands there, then
it is damage as well and its sequence is not used again.

Knows the format (store/record) and nothing of how the store is used. Compiled: a start reads millions of records
(benchmarks/: JetStream rows).
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.base.xxh64 cimport xxh64
from pyjs.store.filestore cimport FileStore
from pyjs.store.index cimport Entry, Segment, index_push, segment_new
from pyjs.store.record cimport (
    CHECKSUM_SIZE, FLAG_ERASED, FLAG_EXTENDED, KIND_DELETES, KIND_MSG, KIND_STATE, RECORD_HEADER_SIZE,
    RECORD_SIZE_MIN, SEGMENT_HEADER_SIZE, RecordHeader, SegmentHeader, check_segment_header, intact, plausible,
    stored_checksum,
)

from pyjs.base.errors import CorruptRecord

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    LOST_LISTED_MAX = 1000      # sequences named in lost_seqs
    GAP_MAX = 10000000          # a larger jump inside one segment is damage
    SECTOR_SIZE = 512           # writes are cut at sectors by a power loss, at pages by a kill


cdef inline size_t end_of_bytes(const char* p, size_t at, size_t size) noexcept nogil:
    """Where the zeros begin that fill the rest of the file."""
    while size > at and p[size - 1] == 0:
        size -= 1
    return size


def recover(FileStore store) -> None:
    """Fill `store` from the segments of its directory; damage is logged and counted in it."""
    cdef Scan scan = Scan(store)
    for name in store.disk.list_dir(store.directory):
        if name.endswith(".seg") and name[:-4].isdigit():
            scan.read_segment(f"{store.directory}/{name}", int(name[:-4]))
    scan.settle()


cdef class Scan:
    def __init__(self, FileStore store) -> None:
        self.store = store
        self.removed = []
        self.erased_seen = set()

    def read_segment(self, path, number) -> None:
        """Take everything that one file holds."""
        cdef const unsigned char[::1] view
        cdef SegmentHeader header
        cdef int found
        cdef size_t end
        store = self.store
        store.next_number = max(store.next_number, number + 1)
        fd = store.disk.open_read_only(path)
        try:
            size = store.disk.size_of(fd)
            view = store.disk.map_file(fd, size) if size else b"\0"
        finally:
            store.disk.close_file(fd)
        found = check_segment_header(<const char*> &view[0], size)
        if found == -2:
            raise CorruptRecord(path, 0, "written by a newer format; this file needs a newer pyjs-server")
        if found != 0:
            self.set_aside(path, size, "its header is damaged")
            return
        memcpy(&header, &view[0], SEGMENT_HEADER_SIZE)
        if header.incarnation != store.incarnation or header.base_seq <= store.last_seq:
            self.set_aside(path, size, "it belongs to another stream or repeats sequences")
            return
        if header.base_seq > store.last_seq + 1:
            store.last_seq = header.base_seq - 1
        self.segment = segment_new(header.base_seq, number)
        if self.segment == NULL or index_push(&store.index, self.segment) != 0:
            raise MemoryError
        self.segment.last_ts = store.last_ts
        self.p = <const char*> &view[0]
        self.size = size
        self.chain = header.checksum
        end = self.records()
        self.segment.end = end
        self.reopen(path, end, size)

    def set_aside(self, path, size, reason) -> None:
        """Give an unreadable file another name; an empty one was never used."""
        directory, _, name = path.rpartition("/")
        if size and any(self.store.disk.read_file(path)):
            self.store.log.error(f"{path} is set aside as .damaged-{name}: {reason}")
            self.store.lost_bytes += size
            self.store.disk.rename(path, f"{directory}/.damaged-{name}")
        else:
            self.store.disk.unlink(path)
        self.store.names_unsynced = True

    def reopen(self, path, end, size) -> None:
        """Make the file just read the one that is appended to, until another follows."""
        store = self.store
        store.allocated = size
        store.written = end
        store.chain = store.chain_written = self.chain

    cdef size_t records(self) except? 0:
        """Take record after record; returns where they end."""
        cdef size_t at = SEGMENT_HEADER_SIZE, next_at, used
        cdef RecordHeader h
        while at < self.size:
            if plausible(self.p + at, self.size - at):
                memcpy(&h, self.p + at, RECORD_HEADER_SIZE)
                if intact(self.p + at, self.chain) or h.flags & FLAG_ERASED or self.only_checksum_damaged(at):
                    self.take(self.p + at)
                    self.chain = stored_checksum(self.p + at, h.length)
                    at += h.length
                    if self.segment.sealed:
                        return at
                    continue
            used = end_of_bytes(self.p, at, self.size)
            if used == at:
                return at
            next_at = self.resync(at + 1)
            if next_at == 0:
                self.end_in_the_middle(at, used)
                return at
            self.report(at, next_at - at, "damaged bytes between records")
            self.store.lost_bytes += next_at - at
            self.after_damage = True
            memcpy(&self.chain, self.p + next_at - CHECKSUM_SIZE, CHECKSUM_SIZE)
            at = next_at
        return at

    def end_in_the_middle(self, at, used) -> None:
        """Judge the bytes at..used, behind which nothing valid stands."""
        cdef RecordHeader h
        cdef bint whole = plausible(self.p + <size_t> at, self.size - <size_t> at)
        if whole:
            memcpy(&h, self.p + <size_t> at, RECORD_HEADER_SIZE)
            whole = at + h.length - CHECKSUM_SIZE < used
        if not whole and used - at < RECORD_SIZE_MIN:
            self.report(at, used - at, "the last write was cut short; it was never acknowledged")
            return
        if not whole and used - at >= RECORD_HEADER_SIZE:
            memcpy(&h, self.p + <size_t> at, RECORD_HEADER_SIZE)
            cut = used % SECTOR_SIZE == 0           # where a write can stop; elsewhere it is damage
            if cut and RECORD_SIZE_MIN <= h.length and h.seq == self.store.last_seq + 1 and h.length > used - at:
                self.report(at, used - at, "the last write was cut short; it was never acknowledged")
                return
        self.report(at, used - at, "the last record is damaged")
        self.store.lost_bytes += used - at
        self.lose(self.store.last_seq + 1, self.store.last_seq + 1, 0)      # its sequence field may be the damage
        self.store.state_due = True

    def report(self, at, size, what) -> None:
        """Tell the operator."""
        path = self.store.path_of(self.segment.number)
        self.store.log.warn(f"{path} at {at}: {size} bytes: {what}")

    cdef bint only_checksum_damaged(self, size_t at) noexcept nogil:
        """Whether the record after the one at `at` was chained to the checksum that its bytes have."""
        cdef uint32_t length = 0
        cdef uint64_t computed
        memcpy(&length, self.p + at, 4)
        if not plausible(self.p + at + length, self.size - at - length):
            return False
        computed = xxh64(self.p + at, length - CHECKSUM_SIZE, self.chain)
        return intact(self.p + at + length, computed)

    cdef size_t resync(self, size_t at) noexcept nogil:
        """The next place where a record stands that fits the checksum in front of it; 0: none."""
        cdef uint64_t before = 0
        while at + RECORD_SIZE_MIN <= self.size:
            if plausible(self.p + at, self.size - at):
                memcpy(&before, self.p + at - CHECKSUM_SIZE, CHECKSUM_SIZE)
                if intact(self.p + at, before):
                    return at
            at += 1
        return 0

    cdef int take(self, const char* record) except -1:
        cdef RecordHeader h
        cdef uint64_t[2] state
        cdef uint64_t seq = 0
        cdef size_t i
        memcpy(&h, record, RECORD_HEADER_SIZE)
        if h.kind == KIND_MSG:
            return self.take_message(record)
        if h.kind == KIND_STATE:
            memcpy(state, record + RECORD_HEADER_SIZE, 16)
            self.fill_gap(h.seq + 1)
            self.floor = max(self.floor, state[0])
            self.store.last_ts = max(self.store.last_ts, <int64_t> state[1])
        elif h.kind == KIND_DELETES:
            for i in range((h.length - RECORD_SIZE_MIN) // 8):
                memcpy(&seq, record + RECORD_HEADER_SIZE + i * 8, 8)
                self.removed.append((seq, h.flags & FLAG_ERASED != 0))
                self.store.keep_removed(self.segment, seq | (<uint64_t> 1 << 63 if h.flags & FLAG_ERASED else 0))
        else:
            self.segment.sealed = True
        self.after_damage = False
        return 0

    cdef int take_message(self, const char* record) except -1:
        cdef RecordHeader h
        cdef size_t fixed = RECORD_HEADER_SIZE
        cdef Entry* e
        memcpy(&h, record, RECORD_HEADER_SIZE)
        if h.seq <= self.store.last_seq or h.seq - self.store.last_seq > GAP_MAX:
            self.report(record - self.p, h.length, f"sequence {h.seq} after {self.store.last_seq}: not taken")
            return 0
        if h.flags & FLAG_EXTENDED:
            fixed += 16
        self.fill_gap(h.seq)
        e = self.store.add_entry(self.segment, record + fixed, h.subject_len, h.header_len,
                                 h.length - <uint32_t> (fixed + CHECKSUM_SIZE) - h.subject_len, h.ts)
        if e == NULL:
            raise MemoryError
        e.offset = <uint32_t> (record - self.p)
        if h.flags & FLAG_ERASED:
            self.erased_seen.add(h.seq)
        return 0

    cdef int fill_gap(self, uint64_t before) except -1:
        """Make last_seq + 1 equal to `before`: the sequences between hold nothing, or were lost just now."""
        if self.after_damage and self.store.last_seq + 1 < before:
            self.lose(self.store.last_seq + 1, before - 1, 0)
        self.after_damage = False
        while self.store.last_seq + 1 < before:
            if self.store.add_gap(self.segment) != 0:
                raise MemoryError
        return 0

    cdef int lose(self, uint64_t first, uint64_t last, size_t size) except -1:
        """Count sequences first..last as lost; they stay used."""
        cdef uint64_t seq = first
        while seq <= last:
            if seq >= self.floor:
                self.store.lost_msgs += 1
                if len(self.store.lost_seqs) < LOST_LISTED_MAX:
                    self.store.lost_seqs.append(seq)
            if self.store.add_gap(self.segment) != 0:
                raise MemoryError
            seq += 1
        return 0

    def settle(self) -> None:
        """Apply what was removed, and open the last segment for appending."""
        cdef Segment* s
        store = self.store
        store.recovering = True
        erased = {seq for seq, was_erased in self.removed if was_erased}
        store.drop_below(self.floor)
        for seq, _ in self.removed:
            store.drop(seq, False)
        for seq in sorted(self.erased_seen - erased):
            if store.drop(seq, False) == 0:
                store.lost_msgs += 1
                store.lost_seqs.append(seq)
                store.log.error(f"{store.directory}: message {seq} is overwritten but was never removed")
        if store.msgs == 0 and (store.last_seq or self.floor):
            store.first_seq = store.last_seq + 1
        store.recovering = False
        if store.lost_msgs:
            store.log.error(f"{store.directory}: {store.lost_msgs} messages were damaged and are lost: "
                            f"{store.lost_seqs[:20]}")
        if store.index.n == 0:
            return
        s = store.index.segments[store.index.n - 1]
        if s.sealed:
            return
        s.fd = store.disk.open_file(store.path_of(s.number))
        if store.allocated > store.written:         # old bytes behind the end must not look like records later
            store.disk.truncate(s.fd, store.written)
            store.allocated = store.written

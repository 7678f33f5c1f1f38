"""The sequences of one store: dense segments of fixed-width entries, with one bit per entry that marks dead ones."""
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef enum:
    PRESENCE_WORDS = 64
    PRESENCE_MASK = 4095

cdef struct Entry:              # 40 bytes, as in an .idx file
    uint64_t seq
    int64_t ts
    uint32_t offset             # offset of the record in its segment file
    uint32_t size               # bytes of headers and payload
    uint32_t header_len
    uint16_t subject_len
    uint16_t flags              # ENTRY_...
    uint32_t subject_id
    uint32_t prev  # distance to the previous message of the subject; 0: there is none, or it is too far away

cdef enum:
    ENTRY_MSG = 1               # not set: the sequence has no message
    ENTRY_EXTENDED = 2          # the record has term and index before its subject
    ENTRY_ERASED = 4            # headers and payload were erased already when the file was read

cdef struct Local:    # a subject of a segment whose entries are in a map; these entries name the subject by its row
    uint32_t id                 # subject id in the store
    # as Entry.prev: distance from the subject's first entry here to its previous message in another segment
    uint32_t prev

cdef enum:
    CHUNK_BITS = 16             # a view of a compressed or encrypted segment is filled in chunks of 1 << CHUNK_BITS

cdef struct Filled:             # the filled part of a view's memory
    uint64_t begin, end         # bytes that are filled, even if `chunks` lacks them
    uint64_t* chunks            # one bit for each filled chunk
    uint64_t used               # number of the last read in the view (store/segment/view)

cdef struct Segment:
    uint64_t base               # sequence of entries[0]
    uint32_t n                  # number of entries
    uint32_t cap
    uint32_t live
    uint32_t number             # number of the segment file
    uint64_t live_bytes         # as nats-server counts bytes
    int64_t first_ts
    int64_t last_ts
    uint64_t end                # in a file: offset of the next record
    uint64_t floor              # in a file: highest first_seq of its STATE records
    Entry* entries
    uint64_t* dead              # one bit per entry; NULL only while n is 0
    char** bodies               # in a memory store: subject | headers | payload of each entry; NULL: none
    const char* data            # in a file: its map or view; NULL until something is read
    Filled* filled              # in a file: the filled part of `data`; NULL: all is filled
    uint32_t encoding               # in a file: flags of its outer header; 0: plain
    Local* locals    # in a file: set if `entries` is in the read-only map of an .idx file, else NULL
    uint32_t n_locals
    bint sealed
    bint examined  # in a file: it was examined because of damage, so its live messages are known to be intact
    bint in_memory              # `bodies` has an item for each entry
    bint roomy                  # in a file: it has wide gaps
    bint sparse                 # in a file: over half of it is dead, and it is queued for compaction
    uint64_t* removed           # in a file: sequences whose removal its records have
    uint32_t n_removed
    size_t removed_room
    uint64_t map_size           # in a file: bytes of `data`
    uint64_t[64] presence       # if bit (subject id & 4095) is set, the segment may have messages of the subject

cdef enum:
    FOUND_MAX = 4096            # a multiple of 64; that many entries and what is found in them fit in the cache

cdef struct Found:              # some entries of a segment, ascending
    uint32_t n
    uint32_t[FOUND_MAX] entries

cdef struct SeqIndex:
    Segment** segments          # ascending bases, no overlaps
    size_t n
    size_t cap
    size_t hot                  # index of the segment that the last search found

# A wide gap inside a recovered segment is one entry with the length of the gap, followed by zeros on pages
# that were never touched. In the first entry, `size` is the length, and `seq` and `flags` are 0. The other entries of
# the gap are only marked as dead.

cdef inline uint32_t gap_at(Entry* e) noexcept nogil:
    """Return the length of the wide gap that begins with this entry, or 0 if no wide gap begins here."""
    return e.size if e.flags == 0 and e.seq == 0 else 0

cdef inline bint is_dead(Segment* s, uint32_t i) noexcept nogil:
    return (s.dead[i >> 6] >> (i & 63)) & 1

cdef inline bint is_filled(Filled* f, uint64_t begin, uint64_t end) noexcept nogil:
    cdef uint64_t chunk
    if begin >= f.begin and end <= f.end:
        return True
    for chunk in range(begin >> CHUNK_BITS, ((end - 1) >> CHUNK_BITS) + 1):
        if not (f.chunks[chunk >> 6] >> (chunk & 63)) & 1:
            return False
    return True

cdef inline uint32_t subject_of(Segment* s, uint32_t i) noexcept nogil:
    """Return the subject id of entry i, which must have a message."""
    return s.entries[i].subject_id if s.locals == NULL else s.locals[s.entries[i].subject_id].id

cdef inline uint32_t prev_of(Segment* s, uint32_t i) noexcept nogil:
    """Return the distance from entry i to the previous message of its subject.

    Return 0 if there is none, or if it is too far away.
    """
    cdef Entry* e = &s.entries[i]
    return e.prev if e.prev or s.locals == NULL else s.locals[e.subject_id].prev

cdef inline bint may_hold(Segment* s, uint32_t subject_id) noexcept nogil:
    return (s.presence[(subject_id & PRESENCE_MASK) >> 6] >> (subject_id & 63)) & 1

cdef inline int by_seq(const void* a, const void* b) noexcept nogil:
    """Compare two sequences, for qsort."""
    cdef uint64_t x = (<const uint64_t*> a)[0], y = (<const uint64_t*> b)[0]
    return (x > y) - (x < y)

cdef inline Segment* index_last(SeqIndex* x) noexcept nogil:
    """Return the segment with the highest sequences, or NULL if there is none."""
    return x.segments[x.n - 1] if x.n else NULL

cdef Segment* segment_new(uint64_t base, uint32_t number) noexcept nogil
cdef void segment_free(Segment* s) noexcept nogil
cdef Entry* segment_add(Segment* s) noexcept nogil          # the next entry, not initialized; NULL: out of memory
# the number by which entries name the subject; ~0: they cannot
cdef uint32_t segment_place(Segment* s, uint32_t id) noexcept nogil
cdef void segment_mark(Segment* s, uint32_t i) noexcept nogil       # set the dead bit of entry i
# set the dead bits of entries i .. end - 1
cdef void segment_mark_range(Segment* s, uint32_t i, uint32_t end) noexcept nogil
# set the dead bits before `end`, and free the bodies
cdef void segment_clear_front(Segment* s, uint32_t end) noexcept nogil
# copy to zeroed memory; skip pages of zeros
cdef void copy_sparse(Entry* to, Entry* entries, size_t n) noexcept nogil
cdef uint32_t segment_next_live(Segment* s, uint32_t i) noexcept nogil      # first live entry >= i; n: none
cdef uint64_t segment_count_from(Segment* s, uint32_t i) noexcept nogil     # number of live entries >= i
# set `found` to the live entries of a subject in begin .. end - 1; end - begin <= FOUND_MAX, begin % 64 == 0.
# `place` is that of the subject (segment_place).
cdef void segment_find(Segment* s, uint32_t place, uint32_t begin, uint32_t end, Found* found) noexcept nogil

cdef int index_push(SeqIndex* x, Segment* s) noexcept nogil         # -1: out of memory
cdef void index_remove(SeqIndex* x, size_t at) noexcept nogil       # does not free the segment
cdef void index_free(SeqIndex* x) noexcept nogil
# position of the segment with this number; n: none
cdef size_t index_place(SeqIndex* x, uint32_t number) noexcept nogil
cdef size_t index_at(SeqIndex* x, uint64_t seq) noexcept nogil    # first segment that ends after seq; n: none
cdef Segment* index_find(SeqIndex* x, uint64_t seq) noexcept nogil  # the segment that covers seq; NULL: none
cdef Entry* index_live(SeqIndex* x, uint64_t seq) noexcept nogil    # NULL: absent or dead
cdef uint64_t index_next_live(SeqIndex* x, uint64_t seq) noexcept nogil     # first live sequence >= seq; 0: none
cdef uint64_t index_prev_live(SeqIndex* x, uint64_t seq) noexcept nogil     # last live sequence <= seq; 0: none
cdef uint64_t index_count_from(SeqIndex* x, uint64_t seq) noexcept nogil
cdef uint64_t index_seq_at(SeqIndex* x, int64_t ts) noexcept nogil  # first live sequence with a time >= ts; 0: none

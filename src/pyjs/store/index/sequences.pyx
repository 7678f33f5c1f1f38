"""The sequences of one store: the place of each message, and whether the message is live.

This module knows nothing of the names of subjects, of files or of the memory of bodies. Removing a message sets one
bit. Entries of sealed segments never change, so they may be in a read-only map.

Invariants: a segment covers the sequences base .. base + n - 1 without gaps (a sequence that never had a
message is a dead entry); segments are in ascending order and do not overlap, but there may be gaps between
them; live <= n.

Compiled, because it runs for every append, load and search of a consumer (measured in benchmarks/: JetStream rows).
"""
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from pyjs.base.grow cimport grow

cdef enum:
    BLOCK_SIZE = 4096           # a page
cdef char[BLOCK_SIZE] ZEROS

cdef extern from *:
    int ctz "__builtin_ctzll"(unsigned long long) nogil
    int clz "__builtin_clzll"(unsigned long long) nogil
    int popcount "__builtin_popcountll"(unsigned long long) nogil


cdef Segment* segment_new(uint64_t base, uint32_t number) noexcept nogil:
    cdef Segment* s = <Segment*> calloc(1, sizeof(Segment))
    if s != NULL:
        s.base = base
        s.number = number
    return s


cdef void segment_free(Segment* s) noexcept nogil:
    cdef uint32_t i
    if s.bodies != NULL:
        for i in range(s.n):
            free(s.bodies[i])
    free(s.bodies)
    if s.locals == NULL:
        free(s.entries)
    free(s.locals)
    free(s.dead)
    free(s.removed)
    free(s)


cdef bint segment_grow(Segment* s) noexcept nogil:
    cdef uint32_t cap = s.cap * 2 if s.cap else 64
    cdef void* entries = realloc(s.entries, cap * sizeof(Entry))
    if entries == NULL:
        return 0
    s.entries = <Entry*> entries
    cdef void* dead = realloc(s.dead, cap >> 3)
    cdef void* bodies
    if dead == NULL:
        return 0
    s.dead = <uint64_t*> dead
    memset(<char*> dead + (s.cap >> 3), 0, (cap - s.cap) >> 3)
    if s.in_memory:
        bodies = realloc(s.bodies, cap * sizeof(char*))
        if bodies == NULL:
            return 0
        s.bodies = <char**> bodies
        memset(s.bodies + s.cap, 0, (cap - s.cap) * sizeof(char*))
    s.cap = cap
    return 1


cdef Entry* segment_add(Segment* s) noexcept nogil:
    if s.n == s.cap and not segment_grow(s):
        return NULL
    s.n += 1
    return &s.entries[s.n - 1]


cdef uint32_t segment_place(Segment* s, uint32_t id) noexcept nogil:
    cdef uint32_t place
    if s.locals == NULL:
        return id
    for place in range(s.n_locals):
        if s.locals[place].id == id:
            return place
    return <uint32_t> -1


cdef void segment_mark(Segment* s, uint32_t i) noexcept nogil:
    s.dead[i >> 6] |= <uint64_t> 1 << (i & 63)


cdef void segment_mark_range(Segment* s, uint32_t i, uint32_t end) noexcept nogil:
    while i < end and i & 63:
        segment_mark(s, i)
        i += 1
    if i + 64 <= end:
        memset(&s.dead[i >> 6], 0xff, (end - i) >> 6 << 3)
        i += (end - i) >> 6 << 6
    while i < end:
        segment_mark(s, i)
        i += 1


cdef void segment_clear_front(Segment* s, uint32_t end) noexcept nogil:
    cdef uint32_t i
    segment_mark_range(s, 0, end)
    for i in range(end if s.bodies != NULL else 0):
        free(s.bodies[i])
        s.bodies[i] = NULL


cdef void copy_sparse(Entry* to, Entry* entries, size_t n) noexcept nogil:
    cdef const char* p = <const char*> entries
    cdef size_t at = 0, size = n * sizeof(Entry), some
    while at < size:
        some = min(<size_t> BLOCK_SIZE, size - at)
        if memcmp(p + at, ZEROS, some) != 0:
            memcpy(<char*> to + at, p + at, some)
        at += some


cdef uint32_t segment_next_live(Segment* s, uint32_t i) noexcept nogil:
    cdef uint32_t word = i >> 6
    cdef uint64_t bits
    if i >= s.n:
        return s.n
    bits = ~s.dead[word] & (~<uint64_t> 0 << (i & 63))
    while bits == 0:
        word += 1
        if word << 6 >= s.n:
            return s.n
        bits = ~s.dead[word]
    i = (word << 6) + ctz(bits)
    return i if i < s.n else s.n


cdef uint64_t segment_count_from(Segment* s, uint32_t i) noexcept nogil:
    cdef uint64_t count = 0
    cdef uint32_t word, words = (s.n + 63) >> 6
    if i >= s.n:
        return 0
    if i == 0:
        return s.live
    for word in range(i >> 6, words):
        count += popcount(s.dead[word])
    # Subtract the bits below i in the same word, which were counted too.
    count -= popcount(s.dead[i >> 6] & ~(~<uint64_t> 0 << (i & 63)))
    return s.n - i - count


cdef void segment_find(Segment* s, uint32_t place, uint32_t begin, uint32_t end, Found* found) noexcept nogil:
    cdef uint32_t i = begin, n = 0, stop
    cdef uint64_t live
    while i < end:
        live = ~s.dead[i >> 6]
        stop = i + 64 if end - i > 64 else end
        if live == 0:                   # this also skips wide gaps, whose entries are not in memory
            i = stop
        while i < stop:
            found.entries[n] = i        # no branch, since successive subjects are hard to predict; n <= i - begin
            n += (live & 1) & (s.entries[i].subject_id == place)
            live >>= 1
            i += 1
    found.n = n


cdef int index_push(SeqIndex* x, Segment* s) noexcept nogil:
    if grow(<void**> &x.segments, &x.cap, x.n + 1, sizeof(Segment*)) != 0:
        return -1
    x.segments[x.n] = s
    x.n += 1
    return 0


cdef void index_remove(SeqIndex* x, size_t at) noexcept nogil:
    memmove(x.segments + at, x.segments + at + 1, (x.n - at - 1) * sizeof(Segment*))
    x.n -= 1
    x.hot = 0


cdef void index_free(SeqIndex* x) noexcept nogil:
    cdef size_t i
    for i in range(x.n):
        segment_free(x.segments[i])
    free(x.segments)
    memset(x, 0, sizeof(SeqIndex))


cdef size_t index_place(SeqIndex* x, uint32_t number) noexcept nogil:
    cdef size_t at = 0
    while at < x.n and x.segments[at].number != number:
        at += 1
    return at


cdef size_t index_at(SeqIndex* x, uint64_t seq) noexcept nogil:
    cdef size_t low = 0, high = x.n, mid
    cdef Segment* s
    if x.hot < x.n:
        s = x.segments[x.hot]
        if seq >= s.base and seq < s.base + s.n:
            return x.hot
    while low < high:
        mid = (low + high) >> 1
        s = x.segments[mid]
        if s.base + s.n <= seq:
            low = mid + 1
        else:
            high = mid
    x.hot = low
    return low


cdef Segment* index_find(SeqIndex* x, uint64_t seq) noexcept nogil:
    cdef size_t at = index_at(x, seq)
    if at == x.n or x.segments[at].base > seq:
        return NULL
    return x.segments[at]


cdef Entry* index_live(SeqIndex* x, uint64_t seq) noexcept nogil:
    cdef Segment* s = index_find(x, seq)
    if s == NULL or is_dead(s, <uint32_t> (seq - s.base)):
        return NULL
    return &s.entries[seq - s.base]


cdef uint64_t index_next_live(SeqIndex* x, uint64_t seq) noexcept nogil:
    cdef size_t at = index_at(x, seq)
    cdef uint32_t i
    cdef Segment* s
    while at < x.n:
        s = x.segments[at]
        if s.live:
            i = segment_next_live(s, <uint32_t> (seq - s.base) if seq > s.base else 0)
            if i < s.n:
                return s.base + i
        at += 1
    return 0


cdef uint64_t index_prev_live(SeqIndex* x, uint64_t seq) noexcept nogil:
    cdef size_t at = index_at(x, seq)
    cdef uint32_t i, word
    cdef uint64_t bits
    cdef Segment* s
    if at == x.n or x.segments[at].base > seq:
        if at == 0:
            return 0
        at -= 1
    while True:
        s = x.segments[at]
        if s.live:
            i = s.n - 1 if seq - s.base >= s.n else <uint32_t> (seq - s.base)
            word = i >> 6
            bits = ~s.dead[word] & (~<uint64_t> 0 >> (63 - (i & 63)))
            while bits == 0 and word > 0:
                word -= 1
                bits = ~s.dead[word]
            if bits:
                return s.base + (word << 6) + (63 - clz(bits))
        if at == 0:
            return 0
        at -= 1


cdef uint64_t index_count_from(SeqIndex* x, uint64_t seq) noexcept nogil:
    cdef size_t at = index_at(x, seq)
    cdef uint64_t count = 0
    cdef Segment* s
    while at < x.n:
        s = x.segments[at]
        count += segment_count_from(s, <uint32_t> (seq - s.base) if seq > s.base else 0)
        at += 1
    return count


cdef uint64_t index_seq_at(SeqIndex* x, int64_t ts) noexcept nogil:
    cdef size_t at
    cdef uint32_t first, last, i, live
    cdef Segment* s
    # Times ascend within a segment, but not from one segment to the next: the wall clock may have been set back in
    # between.
    for at in range(x.n):
        s = x.segments[at]
        if s.live == 0 or s.last_ts < ts or (s.entries[s.n - 1].seq and s.entries[s.n - 1].ts < ts):
            continue
        first, last = 0, s.n
        while first < last:
            i = (first + last) >> 1
            live = segment_next_live(s, i)          # dead entries may lack a time
            if live < last and s.entries[live].ts < ts:
                first = live + 1
            else:
                last = i
        live = segment_next_live(s, first)
        if live < s.n:
            return s.base + live
    return 0

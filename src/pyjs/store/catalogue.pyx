"""What a store holds, by sequence and by subject, and every search in it.

Knows nothing of where bodies live, of appends and removals (store.pyx) and of who asks. Sequences are dense in
segments (index.pyx); each segment knows by a 4096-bit set which subject ids it may hold, each entry the distance to
the message before of the same subject, each subject its count, first and last. First and last are searched only
when the known ones were dropped.

A search looks at a few thousand sequences. Where they hold no match it asks the subjects: when the matches behind
the gap are not many, the filter remembers all of them, so that what a delivery costs depends neither on gaps nor on
the stream's length. Subjects that match a filter with wildcards are found in a trie of tokens.

Compiled because consumers ask for the next match per message (benchmarks/: pull 500, KV, scaling).
Long because every search of both stores is here.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset

from pyjs.base.fast cimport PYJS_SOURCE_HASH
from pyjs.store.filter cimport StoreFilter
from pyjs.store.index cimport (
    Segment,
    index_at,
    index_count_from,
    index_find,
    index_free,
    index_live,
    index_next_live,
    index_prev_live,
    index_seq_at,
    is_dead,
    may_hold,
    prev_of,
    segment_next_live,
    segment_place,
    subject_of,
)
from pyjs.store.subject_index cimport (
    Matches,
    matches_push,
    subject_index_add,
    subject_index_collect,
    subject_index_free,
    subject_index_is_every,
    subject_index_new,
)
from pyjs.store.subjects cimport (
    Subject,
    subject_by_id,
    subject_matches,
    subjects_find,
    subjects_free,
    subjects_init,
)

SOURCE_HASH = PYJS_SOURCE_HASH

cdef enum:
    SCAN_MAX = 4096             # sequences that a search looks at before it asks the subjects
    AHEAD_MAX = 16384           # matches that a filter remembers; more of them are found by looking
    AHEAD_GAP = 65536           # sequences to go on when looking ahead had no point
    FEW_SUBJECTS = 1000         # are asked one by one


cdef int by_number(const void* a, const void* b) noexcept nogil:
    return (<const uint64_t*> a)[0] > (<const uint64_t*> b)[0]


cdef class Catalogue:
    def __cinit__(self):
        subjects_init(&self.subject_table)

    def __dealloc__(self):
        index_free(&self.index, 1)
        subject_index_free(self.by_token)
        subjects_free(&self.subject_table)

    cdef uint64_t next_seq(self, uint64_t from_seq, StoreFilter f) noexcept nogil:
        cdef Subject* s
        if self.msgs == 0 or from_seq > self.last_seq:
            return 0
        if f.all:
            return index_next_live(&self.index, from_seq)
        if not f.literal:
            return self.search(from_seq, f)
        s = subjects_find(&self.subject_table, f.patterns[0], f.lengths[0])
        if s == NULL or s.last < from_seq:
            return 0
        if not s.first_stale and s.first >= from_seq:
            return s.first
        if s.last == from_seq and not s.last_stale:
            return s.last
        return self.search(from_seq, f)

    cdef uint64_t count_from(self, uint64_t from_seq, StoreFilter f) noexcept nogil:
        cdef Subject* s
        cdef uint64_t count = 0
        if self.msgs == 0 or from_seq > self.last_seq:
            return 0
        if f.all or (not f.literal and self.is_every(f)):
            return self.msgs if from_seq <= self.first_seq else index_count_from(&self.index, from_seq)
        if f.literal:
            s = subjects_find(&self.subject_table, f.patterns[0], f.lengths[0])
            if s == NULL or s.last < from_seq:
                return 0
            if from_seq <= s.first:
                return s.count
        if from_seq <= self.first_seq:
            return self.count_all_of(f)
        if self.last_seq - from_seq > SCAN_MAX and self.count_chains(from_seq, f, &count) == 0:
            return count
        if from_seq - self.first_seq < self.last_seq - from_seq:
            return self.count_all_of(f) - self.count_range(self.first_seq, from_seq, f)
        return self.count_range(from_seq, self.last_seq + 1, f)

    cdef uint64_t next_with_headers(self, uint64_t from_seq) noexcept nogil:
        cdef uint64_t seq = index_next_live(&self.index, from_seq)
        while seq and index_live(&self.index, seq).header_len == 0:
            seq = index_next_live(&self.index, seq + 1)
        return seq

    cdef uint64_t last_seq_of(self, const char* subject, size_t n) noexcept nogil:
        cdef Subject* s = subjects_find(&self.subject_table, subject, n)
        if s == NULL:
            return 0
        self.settle_last(s)
        return s.last

    cdef uint64_t first_seq_of(self, const char* subject, size_t n) noexcept nogil:
        cdef Subject* s = subjects_find(&self.subject_table, subject, n)
        if s == NULL:
            return 0
        self.settle_first(s)
        return s.first

    cdef const char* subject_at(self, uint64_t seq, uint32_t* n) noexcept nogil:
        cdef Segment* segment = index_find(&self.index, seq)
        cdef Subject* s
        if segment == NULL or is_dead(segment, <uint32_t> (seq - segment.base)):
            return NULL
        s = subject_by_id(&self.subject_table, subject_of(segment, <uint32_t> (seq - segment.base)))
        n[0] = s.len
        return s.name

    cdef uint64_t count_of(self, const char* subject, size_t n) noexcept nogil:
        cdef Subject* s = subjects_find(&self.subject_table, subject, n)
        return 0 if s == NULL else s.count

    # -- searches ----------------------------------------------------------------------------------------------
    cdef uint64_t next_of_id(self, uint64_t seq, uint64_t end, uint32_t id) noexcept nogil:
        """Return the first live sequence of the subject in seq .. end - 1, 0: none."""
        cdef size_t at = index_at(&self.index, seq)
        cdef Segment* s
        cdef uint32_t i, stop, place
        while at < self.index.n and self.index.segments[at].base < end:
            s = self.index.segments[at]
            if s.live and may_hold(s, id):
                place = segment_place(s, id)
                stop = s.n if end - s.base > s.n else <uint32_t> (end - s.base)
                i = <uint32_t> (seq - s.base) if seq > s.base else 0
                while i < stop:
                    if s.entries[i].subject_id == place and not is_dead(s, i):
                        return s.base + i
                    i += 1
            at += 1
        return 0

    cdef uint64_t prev_of_id(self, uint64_t seq, uint32_t id) noexcept nogil:
        cdef size_t at = index_at(&self.index, seq)
        cdef Segment* s
        cdef uint32_t i, place
        if at < self.index.n and self.index.segments[at].base <= seq:
            at += 1
        while at > 0:
            at -= 1
            s = self.index.segments[at]
            if s.live and may_hold(s, id):
                place = segment_place(s, id)
                i = s.n if seq - s.base >= s.n else <uint32_t> (seq - s.base + 1)
                while i > 0:
                    i -= 1
                    if s.entries[i].subject_id == place and not is_dead(s, i):
                        return s.base + i
        return 0

    cdef uint64_t search(self, uint64_t seq, StoreFilter f) noexcept nogil:
        """Return the first match >= `seq`, 0: none. A gap costs once what it takes to find all matches behind it."""
        cdef uint64_t found
        if f.n_ahead and f.ahead_from <= seq <= f.ahead_to:
            found = self.next_ahead(seq, f)
            if found:
                return found
            seq = f.ahead_to + 1
            f.forget_ahead()
        found = self.scan(seq, seq + SCAN_MAX, f)
        if found or seq + SCAN_MAX > self.last_seq:
            return found
        seq += SCAN_MAX
        if seq >= f.no_ahead_before:
            if self.look_ahead(seq, f) == 0:
                return self.next_ahead(seq, f)
            f.no_ahead_before = seq + AHEAD_GAP
        return self.scan(seq, self.last_seq + 1, f)

    cdef uint64_t scan(self, uint64_t seq, uint64_t end, StoreFilter f) noexcept nogil:
        """Return the first match in seq .. end - 1, 0: none."""
        cdef size_t at = index_at(&self.index, seq)
        cdef Segment* s
        cdef Subject* subject
        cdef uint32_t i, stop
        if f.literal:
            subject = subjects_find(&self.subject_table, f.patterns[0], f.lengths[0])
            return self.next_of_id(seq, end, subject.id)
        while at < self.index.n and self.index.segments[at].base < end:
            s = self.index.segments[at]
            if s.live:
                stop = s.n if end - s.base > s.n else <uint32_t> (end - s.base)
                i = segment_next_live(s, <uint32_t> (seq - s.base) if seq > s.base else 0)
                while i < stop:
                    if f.matches(&self.subject_table, subject_of(s, i)):
                        return s.base + i
                    i = segment_next_live(s, i + 1)
            at += 1
        return 0

    cdef uint64_t next_ahead(self, uint64_t seq, StoreFilter f) noexcept nogil:
        """Return the first remembered match >= `seq` that is not gone, 0: none."""
        cdef size_t at = f.ahead_at
        if at and f.ahead[at - 1] >= seq:
            at = 0
        while at < f.n_ahead and (f.ahead[at] < seq or index_live(&self.index, f.ahead[at]) == NULL):
            at += 1
        f.ahead_at = at
        return f.ahead[at] if at < f.n_ahead else 0

    cdef int look_ahead(self, uint64_t seq, StoreFilter f) noexcept nogil:
        """Have `f` remember all matches >= `seq`; -1: they are too many, or not all are found by their subjects."""
        cdef Matches found
        cdef uint64_t total = 0
        cdef uint64_t* seqs = NULL
        cdef size_t i, n = 0
        f.forget_ahead()
        memset(&found, 0, sizeof(Matches))
        found.max = AHEAD_MAX
        if self.collect(f, &found) == 0:
            for i in range(found.n):
                total += found.items[i].count
            if total <= AHEAD_MAX and total * 8 < self.last_seq - seq:
                seqs = <uint64_t*> malloc(total * sizeof(uint64_t) + 8)
        i = 0
        while seqs != NULL and i < found.n:
            if self.chain_down_to(found.items[i], seq, seqs, &n) != 0:
                free(seqs)
                seqs = NULL
            i += 1
        free(found.items)
        if seqs == NULL:
            return -1
        qsort(seqs, n, sizeof(uint64_t), by_number)
        f.ahead, f.n_ahead, f.ahead_at = seqs, n, 0
        f.ahead_from, f.ahead_to = seq, self.last_seq
        if n == 0:
            f.forget_ahead()
        return 0

    cdef int chain_down_to(self, Subject* s, uint64_t from_seq, uint64_t* seqs, size_t* n) noexcept nogil:
        """Add the subject's live sequences >= `from_seq` to `seqs` (NULL: count only); -1: its chain is broken."""
        cdef uint64_t seq = s.last, found = 0
        cdef Segment* segment
        cdef uint32_t i
        while seq >= from_seq:
            segment = index_find(&self.index, seq)
            if segment == NULL:                     # a dropped one, in a segment that was written anew
                seq = self.prev_of_id(seq, s.id)
                if seq == 0:
                    return -1
                continue
            i = <uint32_t> (seq - segment.base)
            if not is_dead(segment, i):
                if seqs != NULL:
                    seqs[n[0]] = seq
                n[0] += 1
                found += 1
            if found == s.count or (not s.first_stale and seq == s.first):
                return 0
            if prev_of(segment, i) == 0:
                return -1
            seq -= prev_of(segment, i)
        return 0

    cdef int count_chains(self, uint64_t from_seq, StoreFilter f, uint64_t* count) noexcept nogil:
        """Count the matches >= `from_seq` by their subjects; -1: looking at each message takes less time."""
        cdef Matches found
        cdef uint64_t total = 0
        cdef size_t i, n = 0
        cdef int result = 0
        memset(&found, 0, sizeof(Matches))
        found.max = AHEAD_MAX
        result = self.collect(f, &found)
        for i in range(found.n):
            total += found.items[i].count
        if total * 8 > self.last_seq - from_seq:
            result = -1
        i = 0
        while result == 0 and i < found.n:
            result = self.chain_down_to(found.items[i], from_seq, NULL, &n)
            i += 1
        free(found.items)
        count[0] = n
        return result

    cdef int collect(self, StoreFilter f, Matches* out) noexcept nogil:
        """Add every subject that matches, once; -1: they are more than `out.max`, or there is no memory."""
        cdef size_t k
        for k in range(f.n):
            if self.collect_pattern(f, k, out) != 0:
                return -1
        return 0

    cdef int collect_few(self, StoreFilter f, Matches* out) noexcept nogil:
        """Make `out` the list of all subjects that match; -1: they are a large part of all, or there is no memory."""
        memset(out, 0, sizeof(Matches))
        out.max = self.subject_table.table.used // 8 + FEW_SUBJECTS
        if not self.is_every(f) and self.collect(f, out) == 0:
            return 0
        free(out.items)
        memset(out, 0, sizeof(Matches))
        return -1

    cdef int collect_every(self, StoreFilter f, Matches* out) noexcept nogil:
        """Make `out` the list of all subjects that match; -1: no memory."""
        cdef uint32_t id
        cdef Subject* s
        cdef bint every
        if self.collect_few(f, out) == 0:
            return 0
        every = self.is_every(f)
        out.max = <size_t> -1
        for id in range(self.subject_table.n_ids):  # a large part of all: then their order of age is the better one
            s = subject_by_id(&self.subject_table, id)
            if s != NULL and (every or f.matches_name(s, f.n)) and matches_push(out, s) != 0:
                free(out.items)
                return -1
        return 0

    cdef bint is_every(self, StoreFilter f) noexcept nogil:
        """Tell whether it is known without a search that every subject matches."""
        cdef size_t k
        if f.all:
            return True
        if self.by_token == NULL or self.known_tokens < self.subject_table.n_ids:
            return False
        for k in range(f.n):
            if f.wild[k] and subject_index_is_every(self.by_token, f.patterns[k], f.lengths[k]):
                return True
        return False

    cdef int collect_pattern(self, StoreFilter f, size_t k, Matches* out) noexcept nogil:
        cdef size_t at = out.n, kept
        cdef uint32_t id
        cdef Subject* s
        if not f.wild[k]:
            s = subjects_find(&self.subject_table, f.patterns[k], f.lengths[k])
            if s != NULL and not f.matches_name(s, k):
                return matches_push(out, s)
            return 0
        if self.subject_table.table.used > FEW_SUBJECTS and self.know_tokens(<uint32_t> -1) == 0:
            if subject_index_collect(self.by_token, f.patterns[k], f.lengths[k], out) != 0:
                return -1
        else:
            for id in range(self.subject_table.n_ids):
                s = subject_by_id(&self.subject_table, id)
                if s != NULL and subject_matches(f.patterns[k], f.lengths[k], s.name, s.len) \
                        and matches_push(out, s) != 0:
                    return -1
        kept = at
        while k and at < out.n:                     # those that an earlier pattern brought
            if not f.matches_name(out.items[at], k):
                out.items[kept] = out.items[at]
                kept += 1
            at += 1
        if k:
            out.n = kept
        return 0

    cdef int know_tokens(self, uint32_t more) noexcept nogil:
        """Have `more` ids of subjects in the trie; 0: all are, 1: not yet, -1: no memory."""
        cdef uint32_t id = self.known_tokens
        cdef Subject* s
        if self.by_token == NULL:
            self.by_token = subject_index_new(&self.subject_table)
            if self.by_token == NULL:
                return -1
        while id < self.subject_table.n_ids and more:
            s = subject_by_id(&self.subject_table, id)
            if s != NULL and subject_index_add(self.by_token, s) != 0:
                self.forget_tokens()
                return -1
            id += 1
            more -= 1
        self.known_tokens = id
        return id < self.subject_table.n_ids

    cdef int add_tokens(self, Subject* s) noexcept nogil:
        """Put a new subject into the trie, if there is one that has come so far."""
        if s.id < self.known_tokens:
            return subject_index_add(self.by_token, s)
        if s.id == self.known_tokens and self.by_token != NULL:
            self.known_tokens += 1
            return subject_index_add(self.by_token, s)
        return 0

    cdef void forget_tokens(self) noexcept nogil:
        subject_index_free(self.by_token)
        self.by_token = NULL
        self.known_tokens = 0

    cdef uint64_t prev_of_filter(self, uint64_t seq, StoreFilter f) noexcept nogil:
        """Return the last match <= `seq`, 0: none."""
        cdef Matches found
        cdef uint64_t last, best = 0
        cdef size_t i
        cdef int failed
        last = self.scan_back(&seq, SCAN_MAX, f)
        if last or seq == 0:
            return last
        memset(&found, 0, sizeof(Matches))
        found.max = AHEAD_MAX
        failed = self.collect(f, &found)
        for i in range(found.n if failed == 0 else 0):
            last = self.last_up_to(found.items[i], seq)
            best = last if last > best else best
        free(found.items)
        return best if failed == 0 else self.scan_back(&seq, <uint64_t> -1, f)

    cdef uint64_t scan_back(self, uint64_t* seq, uint64_t limit, StoreFilter f) noexcept nogil:
        """Return the last match <= `seq` among `limit` messages, 0: none; `seq` is where to go on, 0: nowhere."""
        cdef Segment* s
        while limit:
            seq[0] = index_prev_live(&self.index, seq[0])
            if seq[0] == 0:
                return 0
            s = index_find(&self.index, seq[0])
            if f.matches(&self.subject_table, subject_of(s, <uint32_t> (seq[0] - s.base))):
                return seq[0]
            seq[0] -= 1
            limit -= 1
        return 0

    cdef uint64_t count_range(self, uint64_t low, uint64_t high, StoreFilter f) noexcept nogil:
        """Return the number of live matches in low .. high - 1."""
        cdef size_t at = index_at(&self.index, low)
        cdef Segment* s
        cdef uint32_t i, end, id = 0
        cdef uint64_t count = 0
        if f.literal:
            id = subjects_find(&self.subject_table, f.patterns[0], f.lengths[0]).id
        while at < self.index.n and self.index.segments[at].base < high:
            s = self.index.segments[at]
            if s.live and not (f.literal and not may_hold(s, id)):
                i = <uint32_t> (low - s.base) if low > s.base else 0
                end = s.n if high - s.base > s.n else <uint32_t> (high - s.base)
                while i < end:
                    if not is_dead(s, i) and f.matches(&self.subject_table, subject_of(s, i)):
                        count += 1
                    i += 1
            at += 1
        return count

    cdef uint64_t count_all_of(self, StoreFilter f) noexcept nogil:
        cdef Matches found
        cdef uint64_t count = 0
        cdef size_t i
        if f.literal:
            return self.count_of(f.patterns[0], f.lengths[0])
        if self.collect_every(f, &found) != 0:
            return self.count_range(self.first_seq, self.last_seq + 1, f)
        for i in range(found.n):
            count += found.items[i].count
        free(found.items)
        return count

    cdef uint64_t walk_back(self, Subject* s, uint64_t* live) noexcept nogil:
        """Follow the subject's chain from s.last over at most `live` live messages; return where it stopped.

        What was not found of `live` is left in it: 0 when all were.
        """
        cdef uint64_t seq = s.last, found = 0
        cdef Segment* segment
        cdef uint32_t i
        while True:
            segment = index_find(&self.index, seq)
            if segment == NULL:                     # a dropped one, in a segment that was written anew
                seq = self.prev_of_id(seq, s.id)
                if seq == 0:
                    return found
                continue
            i = <uint32_t> (seq - segment.base)
            if not is_dead(segment, i):
                found = seq
                live[0] -= 1
                if live[0] == 0:
                    return found
            if prev_of(segment, i) == 0:
                return found
            seq -= prev_of(segment, i)

    cdef void settle_first(self, Subject* s) noexcept nogil:
        cdef uint64_t left, found
        if not s.first_stale:
            return
        # The chain costs a jump per message of the subject, the scan a step per message of the stream.
        if s.count <= 1 << 20 and s.count * s.count * 16 < self.msgs:
            left = s.count
            found = self.walk_back(s, &left)
            if left == 0:
                s.first = found
                s.first_stale = 0
                return
        s.first = self.next_of_id(s.first, self.last_seq + 1, s.id)
        s.first_stale = 0

    cdef void settle_last(self, Subject* s) noexcept nogil:
        cdef uint64_t left = 1, found
        if not s.last_stale:
            return
        found = self.walk_back(s, &left)
        s.last = found if left == 0 else self.prev_of_id(s.last, s.id)
        s.last_stale = 0

    cdef uint64_t last_up_to(self, Subject* s, uint64_t up_to) noexcept nogil:
        """Return the subject's last live sequence <= up_to, 0: none."""
        cdef uint64_t seq
        cdef uint32_t step
        cdef Segment* segment
        self.settle_last(s)
        seq = s.last
        while seq > up_to:
            segment = index_find(&self.index, seq)
            if segment == NULL:
                return self.prev_of_id(up_to, s.id)
            step = prev_of(segment, <uint32_t> (seq - segment.base))
            if step == 0:
                return 0
            seq -= step
        # The chain may end at a dropped message, or in a segment that is gone.
        if index_live(&self.index, seq) == NULL:
            return self.prev_of_id(seq, s.id)
        return seq

    # -- Python ------------------------------------------------------------------------------------------------
    def next_match(self, uint64_t from_seq, StoreFilter f not None) -> int:
        """Return the sequence of the first live match >= `from_seq`, 0: none."""
        return self.next_seq(from_seq, f)

    def count_matching(self, uint64_t from_seq, StoreFilter f not None) -> int:
        """Return the number of live matches with a sequence >= `from_seq`."""
        return self.count_from(from_seq, f)

    def learn_subjects(self, StoreFilter f not None, uint32_t limit) -> bool:
        """Do a part of what a search with `f` would else do at once, for `limit` subjects; True: all is done."""
        cdef size_t i
        cdef bint wild = False
        for i in range(f.n):
            wild |= f.wild[i] != 0
        if not wild or f.all or self.subject_table.table.used <= FEW_SUBJECTS:
            return True
        return self.know_tokens(limit) != 1

    def last_seqs_or_none(self, StoreFilter f not None, uint64_t up_to_seq, size_t most):
        """Return the last sequence (<= `up_to_seq` unless that is 0) of each matching subject, ascending.

        None: they are more than `most`.
        """
        cdef uint64_t seq, up_to = up_to_seq or self.last_seq
        cdef uint64_t* lasts
        cdef Matches found
        cdef size_t i, n = 0
        cdef bint ascending = True
        if up_to_seq == 0 and most < self.subject_table.table.used:     # each subject has a last message
            memset(&found, 0, sizeof(Matches))
            found.max = most
            if self.is_every(f) or self.collect(f, &found) != 0:
                free(found.items)
                return None
        else:
            self.collect_for_python(f, &found)
        lasts = <uint64_t*> found.items         # as long, and read before it is written
        for i in range(found.n):
            seq = self.last_up_to(found.items[i], up_to)
            if seq:
                ascending = ascending and (n == 0 or lasts[n - 1] < seq)
                lasts[n] = seq
                n += 1
                if n > most:
                    free(found.items)
                    return None
        if not ascending:
            qsort(lasts, n, sizeof(uint64_t), by_number)
        try:
            return [lasts[i] for i in range(n)]
        finally:
            free(found.items)

    cdef int collect_for_python(self, StoreFilter f, Matches* out) except -1:
        if self.collect_every(f, out) != 0:
            raise MemoryError
        return 0

    def seq_at(self, int64_t ts) -> int:
        """Return the first live sequence stored at or after `ts`; last_seq + 1 when there is none."""
        return index_seq_at(&self.index, ts) or self.last_seq + 1

    def subject_counts(self, StoreFilter f not None) -> dict:
        """Return the live messages per matching subject."""
        cdef Matches found
        cdef dict counts = {}
        cdef size_t i
        self.collect_for_python(f, &found)
        for i in range(found.n):
            counts[PyBytes_FromStringAndSize(found.items[i].name, found.items[i].len)] = found.items[i].count
        free(found.items)
        return counts

    def num_subjects(self) -> int:
        """Return the number of subjects with live messages."""
        return self.subject_table.table.used

    def num_deleted(self) -> int:
        """Return the number of sequences between first and last that hold no message."""
        return self.last_seq - self.first_seq + 1 - self.msgs if self.msgs else 0

    def deleted(self, uint64_t limit=0, uint64_t after=0) -> list:
        """Return the sequences between first and last without a message, behind `after`, at most `limit` or all."""
        cdef uint64_t seq = max(self.first_seq, after + 1), found
        gaps = []
        if self.msgs == 0:
            return gaps
        while seq <= self.last_seq and not (limit and len(gaps) >= limit):
            found = index_next_live(&self.index, seq) or self.last_seq + 1
            gaps.extend(range(seq, min(found, seq + limit - len(gaps)) if limit else found))
            seq = found + 1
        return gaps

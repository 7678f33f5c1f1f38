"""The index of a store by sequence and by subject, and every search in it.

This module knows nothing of bodies and callers: a store reports added and dropped messages to its catalogue, and
rebuilds it when the store is opened. Sequences are dense in segments (store/index/sequences.pyx). Each segment has a
4096-bit set of the subject ids that it may contain. Each entry has the distance to the previous message of its
subject. Each subject has a count, and its first and last sequence. If the message of such a sequence was dropped, the
next query searches for the new one.

A search examines a few thousand sequences. If none of them matches, it examines the matching subjects instead: if
these have few later matches, the filter caches all of them. So the cost of a delivery depends neither on gaps nor on
the length of the stream. A trie of tokens finds the subjects that match a filter with wildcards. If too many subjects
match, more sequences are examined, in steps: `next_some`, `prev_some` and `count_some` return after about a
millisecond with the sequence at which the next step begins (store/searches.py).

Invariants: first_seq <= last_seq + 1; msgs is the number of live entries of all segments, and the sum of the counts
of all subjects.

Compiled, because consumers search the next match for every message (measured in benchmarks/: pull 500, KV, scaling).
Long because it has every count and every search of both kinds of store.
"""
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset

from pyjs.store.index.sequences cimport (
    ENTRY_MSG, PRESENCE_MASK, by_seq, index_at, index_count_from, index_find, index_free, index_last, index_live,
    index_next_live, index_prev_live, index_seq_at, is_dead, may_hold, prev_of, segment_add, segment_mark,
    segment_next_live, segment_place, subject_of,
)
from pyjs.store.index.subject_set cimport LOOKS
from pyjs.store.index.subject_trie cimport Matches
from pyjs.store.index.subjects cimport subject_by_id, subjects_add, subjects_find, subjects_remove

cdef enum:
    SCAN_MAX = 4096             # sequences that a search examines before it goes through the subjects
    STEP_MAX = 32768            # sequences that one step of a search or count examines: about a millisecond
    WIDE = 65536                # sequences that a step examines if it searches several matches
    AHEAD_MAX = 16384  # maximum number of matches that a filter caches; if there are more, sequences are examined
    FEW_SUBJECTS = 16384        # up to this many subjects are counted at once
    AHEAD_GAP = 65536  # sequences to examine before the next look-ahead, after one that found too many matches
    LOOK_WORK = 2               # looking up a subject takes as long as examining two messages
    FREED_AT_ONCE = 4096        # number of subjects; the memory of more is freed in another thread


cdef class Catalogue:
    def __cinit__(self, uint32_t overhead=0, uint32_t header_overhead=0):
        self.overhead = overhead
        self.header_overhead = header_overhead
        self.subjects = SubjectSet()
        self.drops = DropLog()

    def __dealloc__(self):
        index_free(&self.index)

    # -- state -------------------------------------------------------------------------------------------------
    cdef uint64_t stored_size(self, Entry* e) noexcept nogil:
        cdef uint64_t size = self.overhead + e.subject_len + e.size
        return size + self.header_overhead if e.header_len else size

    cdef Entry* add_entry(self, Segment* s, const char* subject, uint32_t subject_len,
                          uint32_t header_len, uint32_t size, int64_t ts) noexcept nogil:
        """Add a message with sequence last_seq + 1 to `s`; return its entry, or NULL if out of memory.

        The caller must set the offset of the entry.
        """
        cdef uint64_t seq = self.last_seq + 1
        cdef Entry* e
        cdef Subject* sub = subjects_add(&self.subjects.table, subject, subject_len)
        if sub == NULL:
            return NULL
        e = segment_add(s)
        if e == NULL:
            if sub.count == 0:
                subjects_remove(&self.subjects.table, sub)
            return NULL
        e.seq = seq
        e.ts = ts
        e.size = size
        e.header_len = header_len
        e.subject_len = subject_len
        e.flags = ENTRY_MSG
        e.subject_id = sub.id
        # A stale `last` is a dropped message of the subject; a chain may lead through dropped messages.
        e.prev = <uint32_t> (seq - sub.last) if sub.count and seq - sub.last < 0xffffffffu else 0
        if sub.count == 0:
            if self.subjects.by_token != NULL and self.subjects.add_tokens(sub) != 0:
                self.subjects.forget_tokens()
            sub.first = seq
            sub.first_stale = 0
        sub.count += 1
        sub.last = seq
        sub.last_stale = 0
        s.presence[(sub.id & PRESENCE_MASK) >> 6] |= <uint64_t> 1 << (sub.id & 63)
        if s.live == 0:
            s.first_ts = ts
        s.live += 1
        s.last_ts = ts
        s.live_bytes += self.stored_size(e)
        if self.msgs == 0:
            self.first_seq = seq
            self.first_ts = ts
        self.msgs += 1
        self.bytes += self.stored_size(e)
        self.last_seq = seq
        self.last_ts = ts
        return e

    cdef int add_gap(self, Segment* s) noexcept nogil:
        """Add the next sequence to `s`, without a message; return -1 if out of memory."""
        cdef Entry* e = segment_add(s)
        if e == NULL:
            return -1
        memset(e, 0, sizeof(Entry))
        self.last_seq += 1
        e.seq = self.last_seq
        e.ts = self.last_ts
        e.subject_id = 0xffffffffu
        s.last_ts = self.last_ts
        segment_mark(s, s.n - 1)
        if self.msgs == 0:
            self.first_seq = self.last_seq + 1
        return 0

    cdef void unlink(self, Segment* s, uint32_t i) noexcept nogil:
        """Mark a live entry as dead, and subtract it from the counts of messages, of bytes and of its subject."""
        cdef Entry* e = &s.entries[i]
        cdef uint64_t seq = s.base + i, size = self.stored_size(e)
        cdef Subject* sub = subject_by_id(&self.subjects.table, subject_of(s, i))
        segment_mark(s, i)
        s.live -= 1
        s.live_bytes -= size
        self.msgs -= 1
        self.bytes -= size
        if self.drops.tracked:
            self.drops.add(seq, sub.name, sub.len)
        sub.count -= 1
        if sub.count == 0:
            self.subjects.remove(sub)
        else:
            sub.first_stale |= seq == sub.first
            sub.last_stale |= seq == sub.last
            if sub.count == 1 and not sub.last_stale:
                sub.first = sub.last
                sub.first_stale = 0
        if seq == self.first_seq:
            self.move_first(seq + 1)

    cdef void move_first(self, uint64_t from_seq) noexcept nogil:
        cdef uint64_t seq = index_next_live(&self.index, from_seq) if self.msgs else 0
        cdef Segment* s
        if seq == 0:
            self.first_seq = self.last_seq + 1
            self.first_ts = 0
            return
        s = index_find(&self.index, seq)
        self.first_seq = seq
        self.first_ts = s.entries[seq - s.base].ts

    cdef void take_back(self, uint64_t seq) noexcept nogil:
        cdef Segment* s = index_last(&self.index)
        cdef uint64_t last = index_prev_live(&self.index, self.last_seq) if self.msgs else 0
        seq = max(seq, last)
        if seq >= self.last_seq or (s != NULL and seq + 1 < s.base):
            return
        while s != NULL and s.base + s.n > seq + 1:
            s.n -= 1
            s.dead[s.n >> 6] &= ~(<uint64_t> 1 << (s.n & 63))
        self.last_seq = seq
        self.falls += 1
        if self.msgs == 0:
            self.first_seq = seq + 1

    cdef void recount_all(self) noexcept nogil:
        """Recount the messages of all segments; call this only if there are few messages."""
        cdef Segment* s
        cdef size_t at
        cdef uint32_t i
        self.msgs = self.bytes = 0
        for at in range(self.index.n):
            s = self.index.segments[at]
            s.live, s.live_bytes = 0, 0
            i = segment_next_live(s, 0)
            while i < s.n:
                s.live += 1
                s.live_bytes += self.stored_size(&s.entries[i])
                i = segment_next_live(s, i + 1)
            self.msgs += s.live
            self.bytes += s.live_bytes

    cdef void part_from_subjects(self) noexcept:
        """Replace the table of subjects with an empty one; take_remains returns the old one."""
        cdef Remains remains
        try:
            remains = Remains()
            self.subjects.hand_over(remains)
            self.leave(remains)
        except MemoryError:
            self.subjects.clear()

    cdef void part_from_segments(self) noexcept:
        """Remove all segments from the index; take_remains returns their memory."""
        cdef Remains remains
        try:
            remains = Remains()
            self.leave(remains)
            remains.take_segments(&self.index)
        except MemoryError:
            index_free(&self.index)

    cdef void leave(self, Remains remains) except *:
        """Add `remains` to the memory that take_remains returns."""
        self.remains = [*(self.remains or ()), remains]

    cdef void forget_all(self, uint64_t first_seq) noexcept nogil:
        """Remove all subjects and reset all counts; the next sequence is max(first_seq, last_seq + 1)."""
        if self.subjects.table.table.used <= FREED_AT_ONCE:
            self.subjects.clear()
        else:
            with gil:
                self.part_from_subjects()
        self.msgs = 0
        self.bytes = 0
        self.first_ts = 0
        if first_seq > self.last_seq + 1:
            self.last_seq = first_seq - 1
        self.first_seq = self.last_seq + 1

    # -- queries -----------------------------------------------------------------------------------------------
    cdef uint64_t next_seq(self, uint64_t from_seq, StoreFilter f) noexcept nogil:
        cdef uint64_t rest = 0, found = self.next_some(from_seq, f, &rest)
        while rest:
            found = self.next_some(rest, f, &rest)
        return found

    cdef uint64_t next_some(self, uint64_t from_seq, StoreFilter f, uint64_t* rest) noexcept nogil:
        cdef Subject* s
        rest[0] = 0
        if self.msgs == 0 or from_seq > self.last_seq:
            return 0
        if f.all:
            return index_next_live(&self.index, from_seq)
        if not f.literal:
            return self.search(from_seq, f, rest)
        s = subjects_find(&self.subjects.table, f.patterns[0], f.lengths[0])
        if s == NULL or s.last < from_seq:
            return 0
        if not s.first_stale and s.first >= from_seq:
            return s.first
        if s.last == from_seq and not s.last_stale:
            return s.last
        return self.search(from_seq, f, rest)

    cdef uint64_t next_of_step(self, uint64_t begin, uint64_t seq, StoreFilter f, uint64_t* rest) noexcept nogil:
        """Return the first match > `seq` in a step whose first match was `begin`, or 0 at the end of the step.

        If the search is not complete, set `rest` to the sequence at which the next step begins.
        """
        if seq - begin >= WIDE and not f.all and f.n_ahead == 0:
            rest[0] = seq + 1
            return 0
        return self.next_some(seq + 1, f, rest)

    cdef uint64_t count_from(self, uint64_t from_seq, StoreFilter f) noexcept nogil:
        cdef uint64_t count = 0
        if self.count_soon(from_seq, f, &count) == 0:
            return count
        if from_seq <= self.first_seq:
            return self.count_all_of(f)
        if from_seq - self.first_seq < self.last_seq - from_seq:
            return self.count_all_of(f) - self.count_range(self.first_seq, from_seq, f)
        return self.count_range(from_seq, self.last_seq + 1, f)

    cdef uint64_t count_some(self, uint64_t* seq, bint begin, StoreFilter f) noexcept nogil:
        cdef uint64_t low = index_next_live(&self.index, seq[0]), count = 0
        if low == 0 or self.msgs == 0 or (begin and self.count_soon(low, f, &count) == 0):
            seq[0] = self.last_seq + 1
            return count
        seq[0] = self.last_seq + 1 if self.last_seq - low < STEP_MAX else low + STEP_MAX
        return self.count_range(low, seq[0], f)

    cdef int count_soon(self, uint64_t from_seq, StoreFilter f, uint64_t* count) noexcept nogil:
        """Set `count` to the number of live matches >= `from_seq`; return -1 if this may take over a millisecond."""
        cdef Subject* s
        count[0] = 0
        if self.msgs == 0 or from_seq > self.last_seq:
            return 0
        if f.all or (not f.literal and self.subjects.is_every(f)):
            count[0] = self.msgs if from_seq <= self.first_seq else index_count_from(&self.index, from_seq)
            return 0
        if f.literal:
            s = subjects_find(&self.subjects.table, f.patterns[0], f.lengths[0])
            if s == NULL or s.last < from_seq:
                return 0
            if from_seq <= s.first:
                count[0] = s.count
                return 0
        elif from_seq <= self.first_seq and self.subjects.table.table.used <= FEW_SUBJECTS:
            count[0] = self.count_all_of(f)
            return 0
        if self.last_seq - from_seq <= SCAN_MAX:
            count[0] = self.count_range(from_seq, self.last_seq + 1, f)
            return 0
        return self.count_chains(from_seq, f, count)

    cdef uint64_t next_with_headers(self, uint64_t from_seq) noexcept nogil:
        cdef uint64_t seq = index_next_live(&self.index, from_seq)
        while seq and index_live(&self.index, seq).header_len == 0:
            seq = index_next_live(&self.index, seq + 1)
        return seq

    cdef int64_t time_of(self, uint64_t seq) noexcept nogil:
        cdef Segment* s = index_find(&self.index, seq)
        return self.last_ts if s == NULL else s.entries[seq - s.base].ts

    cdef uint64_t last_seq_of(self, const char* subject, size_t n) noexcept nogil:
        cdef Subject* s = subjects_find(&self.subjects.table, subject, n)
        if s == NULL:
            return 0
        self.settle_last(s)
        return s.last

    cdef uint64_t first_seq_of(self, const char* subject, size_t n) noexcept nogil:
        cdef Subject* s = subjects_find(&self.subjects.table, subject, n)
        if s == NULL:
            return 0
        self.settle_first(s)
        return s.first

    cdef const char* subject_at(self, uint64_t seq, uint32_t* n) noexcept nogil:
        cdef Segment* segment = index_find(&self.index, seq)
        cdef Subject* s
        if segment == NULL or is_dead(segment, <uint32_t> (seq - segment.base)):
            return NULL
        s = subject_by_id(&self.subjects.table, subject_of(segment, <uint32_t> (seq - segment.base)))
        n[0] = s.len
        return s.name

    cdef uint64_t count_of(self, const char* subject, size_t n) noexcept nogil:
        cdef Subject* s = subjects_find(&self.subjects.table, subject, n)
        return 0 if s == NULL else s.count

    # -- searches ----------------------------------------------------------------------------------------------
    cdef uint64_t next_of_id(self, uint64_t seq, uint64_t end, uint32_t id) noexcept nogil:
        """Return the first live sequence of the subject `id` in seq .. end - 1, or 0 if there is none."""
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

    cdef uint64_t search(self, uint64_t seq, StoreFilter f, uint64_t* rest) noexcept nogil:
        """Return the first match >= `seq`, or 0 if none was found.

        If the search is not complete, set `rest` to the sequence at which the next step begins.
        """
        cdef uint64_t found
        if f.n_ahead and f.ahead_from <= seq <= f.ahead_to:
            found = self.next_ahead(seq, f)
            if found:
                return found
            seq = f.ahead_to + 1
            f.forget_ahead()
        found = self.scan(seq, seq + SCAN_MAX, f)
        if found or seq > self.last_seq or self.last_seq - seq < SCAN_MAX:
            return found
        seq += SCAN_MAX
        if seq >= f.no_ahead_before:
            if self.look_ahead(seq, f) == 0:
                return self.next_ahead(seq, f)
            f.no_ahead_before = seq + AHEAD_GAP
        seq = index_next_live(&self.index, seq)
        if seq == 0:
            return 0
        found = self.scan(seq, seq + STEP_MAX, f)
        if found == 0 and self.last_seq - seq >= STEP_MAX:
            rest[0] = seq + STEP_MAX
        return found

    cdef uint64_t scan(self, uint64_t seq, uint64_t end, StoreFilter f) noexcept nogil:
        """Examine each message; return the first match in seq .. end - 1, or 0 if there is none."""
        cdef size_t at = index_at(&self.index, seq)
        cdef Segment* s
        cdef Subject* subject
        cdef uint32_t i, stop
        if f.literal:
            subject = subjects_find(&self.subjects.table, f.patterns[0], f.lengths[0])
            return 0 if subject == NULL else self.next_of_id(seq, end, subject.id)
        while at < self.index.n and self.index.segments[at].base < end:
            s = self.index.segments[at]
            if s.live:
                stop = s.n if end - s.base > s.n else <uint32_t> (end - s.base)
                i = segment_next_live(s, <uint32_t> (seq - s.base) if seq > s.base else 0)
                while i < stop:
                    if f.matches(&self.subjects.table, subject_of(s, i)):
                        return s.base + i
                    i = segment_next_live(s, i + 1)
            at += 1
        return 0

    cdef uint64_t next_ahead(self, uint64_t seq, StoreFilter f) noexcept nogil:
        """Return the first cached match >= `seq` that is still live, or 0 if there is none."""
        cdef size_t at = f.ahead_at
        if at and f.ahead[at - 1] >= seq:
            at = 0
        while at < f.n_ahead and (f.ahead[at] < seq or index_live(&self.index, f.ahead[at]) == NULL):
            at += 1
        f.ahead_at = at
        return f.ahead[at] if at < f.n_ahead else 0

    cdef int look_ahead(self, uint64_t seq, StoreFilter f) noexcept nogil:
        """Cache all matches >= `seq` in `f`; return -1 if there are too many, or the chain of a subject is broken."""
        cdef Matches found
        cdef uint64_t total = 0, hops
        cdef uint64_t* seqs = NULL
        cdef size_t i, n = 0
        f.forget_ahead()
        if self.subjects.collect_soon(f, AHEAD_MAX, &found) != 0:
            return -1
        for i in range(found.n):
            total += found.items[i].count
        hops = min(<uint64_t> AHEAD_MAX, (self.last_seq - seq) >> 3)        # otherwise, to examine messages is faster
        seqs = <uint64_t*> malloc(min(total, hops) * sizeof(uint64_t) + 8)
        i = 0
        while seqs != NULL and i < found.n:
            if self.chain_down_to(found.items[i], seq, seqs, &n, &hops) != 0:
                free(seqs)
                seqs = NULL
            i += 1
        free(found.items)
        if seqs == NULL:
            return -1
        qsort(seqs, n, sizeof(uint64_t), by_seq)
        f.ahead, f.n_ahead, f.ahead_at = seqs, n, 0
        f.ahead_from, f.ahead_to = seq, self.last_seq
        if n == 0:
            f.forget_ahead()
        return 0

    cdef int chain_down_to(self, Subject* s, uint64_t from_seq, uint64_t* seqs, size_t* n,
                           uint64_t* hops) noexcept nogil:
        """Add the subject's live sequences >= `from_seq` to `seqs` (NULL: only count), and their number to `n`.

        Each message of the chain takes one of `hops`. Return -1 if these are used up, or if the chain is broken.
        """
        cdef uint64_t seq = s.last, found = 0
        cdef Segment* segment
        cdef uint32_t i
        while seq >= from_seq:
            if hops[0] == 0:
                return -1
            hops[0] -= 1
            segment = index_find(&self.index, seq)
            if segment == NULL:                     # compaction removed the segment of a dropped message
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
        """Set `count` to the number of matches >= `from_seq`; return -1 if too many match, or a chain is broken."""
        cdef Matches found
        cdef uint64_t hops = min(<uint64_t> AHEAD_MAX, (self.last_seq - from_seq) >> 3)
        cdef size_t i = 0, n = 0
        cdef int result = 0
        if self.subjects.collect_soon(f, AHEAD_MAX, &found) != 0:
            return -1
        while result == 0 and i < found.n:
            if from_seq <= self.first_seq:
                n += found.items[i].count
            else:
                result = self.chain_down_to(found.items[i], from_seq, NULL, &n, &hops)
            i += 1
        free(found.items)
        count[0] = n
        return result

    cdef uint64_t prev_of_filter(self, uint64_t seq, StoreFilter f) noexcept nogil:
        """Return the last match <= `seq`, or 0 if there is none."""
        cdef uint64_t rest = seq, found = 0
        while found == 0 and rest:
            found = self.prev_some(&rest, f)
            if found == 0 and rest and self.subjects.learn(f, 0):   # too many subjects match to look them up
                found = self.scan_back(&rest, rest, f)
        return found

    cdef uint64_t prev_some(self, uint64_t* seq, StoreFilter f) noexcept nogil:
        cdef Matches found
        cdef uint64_t last, best = 0, hops = AHEAD_MAX
        cdef size_t i
        cdef bint few
        if f.literal and seq[0] >= self.last_seq:
            seq[0] = 0
            return self.last_seq_of(f.patterns[0], f.lengths[0])
        last = self.scan_back(seq, SCAN_MAX, f)
        if last or seq[0] == 0:
            return last
        few = self.subjects.collect_soon(f, AHEAD_MAX, &found) == 0
        self.work_back += found.n + LOOK_WORK * (LOOKS - found.looks_left)
        if not few:
            return self.scan_back(seq, STEP_MAX, f)
        for i in range(found.n):
            last = self.last_up_to(found.items[i], seq[0], &hops)
            best = last if last > best else best
        free(found.items)
        self.work_back += AHEAD_MAX - hops
        if best > seq[0]:
            return self.scan_back(seq, STEP_MAX, f)
        seq[0] = 0
        return best

    cdef uint64_t scan_back(self, uint64_t* seq, uint64_t limit, StoreFilter f) noexcept nogil:
        """Examine up to `limit` live messages downwards from `seq`; return the first match, or 0 if there is none.

        Without a match, set `seq` to the sequence at which the search continues, or to 0 if the search is complete.
        """
        cdef Segment* s
        while limit:
            self.work_back += 1
            seq[0] = index_prev_live(&self.index, seq[0])
            if seq[0] == 0:
                return 0
            s = index_find(&self.index, seq[0])
            if f.matches(&self.subjects.table, subject_of(s, <uint32_t> (seq[0] - s.base))):
                return seq[0]
            seq[0] -= 1
            limit -= 1
        return 0

    cdef uint64_t count_range(self, uint64_t low, uint64_t high, StoreFilter f) noexcept nogil:
        """Return the number of live matches in low .. high - 1."""
        cdef size_t at = index_at(&self.index, low)
        cdef Segment* s
        cdef Subject* only
        cdef uint32_t i, end, id = 0
        cdef uint64_t count = 0
        if f.literal:
            only = subjects_find(&self.subjects.table, f.patterns[0], f.lengths[0])
            if only == NULL:
                return 0
            id = only.id
        while at < self.index.n and self.index.segments[at].base < high:
            s = self.index.segments[at]
            if s.live and not (f.literal and not may_hold(s, id)):
                end = s.n if high - s.base > s.n else <uint32_t> (high - s.base)
                i = segment_next_live(s, <uint32_t> (low - s.base) if low > s.base else 0)
                while i < end:
                    if subject_of(s, i) == id if f.literal else f.matches(&self.subjects.table, subject_of(s, i)):
                        count += 1
                    i = segment_next_live(s, i + 1)
            at += 1
        return count

    cdef uint64_t count_all_of(self, StoreFilter f) noexcept nogil:
        cdef Matches found
        cdef uint64_t count = 0
        cdef size_t i
        if f.literal:
            return self.count_of(f.patterns[0], f.lengths[0])
        if self.subjects.collect_every(f, &found) != 0:
            return self.count_range(self.first_seq, self.last_seq + 1, f)
        for i in range(found.n):
            count += found.items[i].count
        free(found.items)
        return count

    cdef uint64_t walk_back(self, Subject* s, uint64_t* live) noexcept nogil:
        """Follow the subject's chain from s.last over up to `live` live messages; return the last sequence found.

        Set `live` to the number of live messages that were not found; 0 means that all were found.
        """
        cdef uint64_t seq = s.last, found = 0
        cdef Segment* segment
        cdef uint32_t i
        while True:
            segment = index_find(&self.index, seq)
            if segment == NULL:                     # compaction removed the segment of a dropped message
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
        # Following a chain takes a jump for each message of the subject; a scan takes a step for each message of the
        # stream.
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

    cdef uint64_t last_up_to(self, Subject* s, uint64_t up_to, uint64_t* hops=NULL,
                             uint64_t begin=0) noexcept nogil:
        """Return the subject's last live sequence <= up_to, or 0 if there is none.

        Each message above `up_to` that is passed takes one of `hops` (NULL: no limit). At 0 hops the search stops and
        returns the sequence reached, which is above `up_to`. To continue, pass this sequence as `begin`.
        """
        cdef uint64_t seq
        cdef uint32_t step
        cdef Segment* segment
        self.settle_last(s)
        seq = begin or s.last
        while seq > up_to:
            if hops != NULL:
                if hops[0] == 0:
                    return seq
                hops[0] -= 1
            segment = index_find(&self.index, seq)
            if segment == NULL:
                return self.prev_of_id(up_to, s.id)
            step = prev_of(segment, <uint32_t> (seq - segment.base))
            if step == 0:
                return 0
            seq -= step
        # The chain may end at a dropped message whose segment was removed.
        if index_live(&self.index, seq) == NULL:
            return self.prev_of_id(seq, s.id)
        return seq

    # -- Python ------------------------------------------------------------------------------------------------
    def take_remains(self) -> list:
        """Return the `Remains` with the memory of dropped messages; the caller must free them, in any thread."""
        remains, self.remains = self.remains, None
        return remains or []

    def next_match(self, uint64_t from_seq, StoreFilter f not None) -> int:
        """Return the sequence of the first live match >= `from_seq`, or 0 if there is none."""
        return self.next_seq(from_seq, f)

    def count_matching(self, uint64_t from_seq, StoreFilter f not None) -> int:
        """Return the number of live matches with a sequence >= `from_seq`."""
        return self.count_from(from_seq, f)

    def next_step(self, uint64_t from_seq, StoreFilter f not None) -> tuple:
        """Search for the first live match >= `from_seq` for about a millisecond.

        Return its sequence or 0, and the sequence at which the next step begins, or 0 after the last step.
        """
        cdef uint64_t rest = 0
        found = self.next_some(from_seq, f, &rest)
        return found, rest

    def prev_step(self, uint64_t up_to, StoreFilter f not None) -> tuple:
        """Search for the last live match <= `up_to` for about a millisecond; return the same as `next_step`."""
        found = self.prev_some(&up_to, f) if self.msgs else 0
        return found, 0 if found or self.msgs == 0 else up_to

    def count_step(self, uint64_t from_seq, StoreFilter f not None, bint begin) -> tuple:
        """Count live matches >= `from_seq` for about a millisecond; `begin` must be set in the first step only.

        Return the number counted in this step, and the sequence at which the next step begins. After the last step,
        this sequence is above last_seq.
        """
        count = self.count_some(&from_seq, begin, f)
        return count, from_seq

    def count_back_step(self, uint64_t before_seq, StoreFilter f not None) -> tuple:
        """Count live matches with a sequence < `before_seq`, backwards, for about a millisecond.

        Return the number counted in this step, and the sequence below which the next step continues, or 0 after the
        last step.
        """
        cdef uint64_t last = index_prev_live(&self.index, before_seq - 1) if self.msgs and before_seq else 0
        cdef uint64_t low = last - STEP_MAX + 1 if last >= self.first_seq + STEP_MAX else 0
        return self.count_range(low, last + 1, f) if last else 0, low

    def matches_step(self, uint64_t from_seq, uint64_t before_seq, uint32_t limit, StoreFilter f not None) -> tuple:
        """Search up to `limit` live matches with from_seq <= seq < before_seq for about a millisecond.

        Return a list of their sequences, and the sequence at which the next step begins, or 0 after the last step.
        """
        cdef uint64_t rest = 0, seq = self.next_some(from_seq, f, &rest), begin = seq
        seqs = []
        while limit and seq and seq < before_seq:
            seqs.append(seq)
            limit -= 1
            seq = self.next_of_step(begin, seq, f, &rest)
        seq = seq or rest
        return seqs, seq if seq < before_seq else 0

    def learn_subjects(self, StoreFilter f not None, uint32_t limit) -> bool:
        """Prepare a search with `f`: add up to `limit` subjects to the trie; return False if more must be added.

        If the search needs no trie, nothing is added.
        """
        return self.subjects.learn(f, limit)

    def stored_at(self, uint64_t seq) -> int:
        """Return the time at which a message was stored, in ns since the epoch, or 0 if the message is not live."""
        cdef Entry* e = index_live(&self.index, seq)
        return 0 if e == NULL else e.ts

    def size_at(self, uint64_t seq) -> int:
        """Return the size of headers and payload of a message in bytes, or 0 if the message is not live."""
        cdef Entry* e = index_live(&self.index, seq)
        return 0 if e == NULL else e.size

    def next_live(self, uint64_t seq) -> int:
        """Return the first live sequence from `seq` on, or 0 if there is none."""
        return index_next_live(&self.index, seq)

    def seq_at(self, int64_t ts) -> int:
        """Return the first live sequence stored at or after `ts` (in ns), or last_seq + 1 if there is none."""
        return index_seq_at(&self.index, ts) or self.last_seq + 1

    cdef int check_counts(self) except -1:
        """Assert the invariants that are cheap to check; called for each commit and after recovery."""
        assert self.first_seq <= self.last_seq + 1
        assert self.msgs <= self.last_seq + 1 - self.first_seq
        assert self.msgs or self.bytes == 0
        return 0

    def num_subjects(self) -> int:
        """Return the number of subjects with live messages."""
        return self.subjects.table.table.used

    def num_deleted(self) -> int:
        """Return the number of sequences between first_seq and last_seq that have no message."""
        return self.last_seq - self.first_seq + 1 - self.msgs if self.msgs else 0

    def deleted(self, uint64_t limit=0, uint64_t after=0) -> list:
        """Return the sequences above `after` that have no message: the first `limit`, or all if that is 0.

        Sequences below first_seq or above last_seq are not included.
        """
        cdef uint64_t seq = max(self.first_seq, after + 1), found
        gaps = []
        if self.msgs == 0:
            return gaps
        while seq <= self.last_seq and not (limit and len(gaps) >= limit):
            found = index_next_live(&self.index, seq) or self.last_seq + 1
            gaps.extend(range(seq, min(found, seq + limit - len(gaps)) if limit else found))
            seq = found + 1
        return gaps

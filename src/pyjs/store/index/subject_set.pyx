"""The subjects of one store: a table by name and id, and a trie of their tokens for searches by wildcards.

This module knows nothing of messages except the sequences in the table. The first search that needs the trie builds
it in steps; later searches use it again. If there are few subjects, a search compares each of them instead.

Compiled, because it runs for every append, to look up the subject (measured in benchmarks/: jspub-150k).
"""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free

from pyjs.base.grow cimport grow
from pyjs.store.index.sequences cimport PRESENCE_MASK, Segment, index_find, index_next_live, subject_of
from pyjs.store.index.subject_trie cimport (
    matches_push, matches_up_to, subject_index_add, subject_index_collect, subject_index_free, subject_index_is_every,
    subject_index_new, subject_index_remove,
)
from pyjs.store.index.subjects cimport (
    subject_by_id, subject_matches, subjects_add, subjects_clear, subjects_find, subjects_free, subjects_init,
    subjects_remove,
)

cdef enum:
    FEW_SUBJECTS = 1000         # up to this many subjects are compared one by one


cdef class SubjectSet:
    def __cinit__(self):
        subjects_init(&self.table)

    def __dealloc__(self):
        subject_index_free(self.by_token)
        subjects_free(&self.table)

    cdef void remove(self, Subject* s) noexcept nogil:
        if self.by_token != NULL:
            subject_index_remove(self.by_token, s)
        subjects_remove(&self.table, s)

    cdef void clear(self) noexcept nogil:
        self.forget_tokens()
        subjects_clear(&self.table)

    # -- tokens ------------------------------------------------------------------------------------------------
    cdef int add_tokens(self, Subject* s) noexcept nogil:
        """Add a new subject to the trie if the trie has all older ids; otherwise do nothing."""
        if s.id < self.known_tokens:
            return subject_index_add(self.by_token, s)
        if s.id == self.known_tokens and self.by_token != NULL:
            self.known_tokens += 1
            return subject_index_add(self.by_token, s)
        return 0

    cdef int know_tokens(self, uint32_t more) noexcept nogil:
        """Add up to `more` subject ids to the trie.

        Return 0 if the trie is now complete, 1 if more ids must be added, or -1 if out of memory.
        """
        cdef uint32_t id = self.known_tokens
        cdef Subject* s
        if self.by_token == NULL:
            self.by_token = subject_index_new(&self.table)
            if self.by_token == NULL:
                return -1
        while id < self.table.n_ids and more:
            s = subject_by_id(&self.table, id)
            if s != NULL and subject_index_add(self.by_token, s) != 0:
                self.forget_tokens()
                return -1
            id += 1
            more -= 1
        self.known_tokens = id
        return id < self.table.n_ids

    cdef void forget_tokens(self) noexcept nogil:
        subject_index_free(self.by_token)
        self.by_token = NULL
        self.known_tokens = 0

    cdef bint learn(self, StoreFilter f, uint32_t limit) noexcept nogil:
        """Prepare a search with `f`: add up to `limit` subjects to the trie; return False if more must be added.

        If the search needs no trie, nothing is added.
        """
        cdef size_t i
        cdef bint wild = False
        for i in range(f.n):
            wild |= f.wild[i] != 0
        if not wild or f.all or self.table.table.used <= FEW_SUBJECTS:
            return True
        return self.know_tokens(limit) != 1

    # -- matches -----------------------------------------------------------------------------------------------
    cdef bint is_every(self, StoreFilter f) noexcept nogil:
        """Return whether the filter is known to match every subject, without a search."""
        cdef size_t k
        if f.all:
            return True
        if self.by_token == NULL or self.known_tokens < self.table.n_ids:
            return False
        for k in range(f.n):
            if f.wild[k] and subject_index_is_every(self.by_token, f.patterns[k], f.lengths[k]):
                return True
        return False

    cdef int collect_soon(self, StoreFilter f, size_t most, Matches* out) noexcept nogil:
        """Set `out` to the matching subjects.

        Return -1 if more than about `most` match, if the search would take too long, or if out of memory. The search
        has used LOOKS - `out.looks_left` lookups.
        """
        cdef size_t left = 0
        out[0] = matches_up_to(most)
        out.looks_left = LOOKS
        if self.learn(f, LOOKS):
            if self.collect(f, out) == 0:
                return 0
            left = out.looks_left
        free(out.items)
        out[0] = matches_up_to(0)
        out.looks_left = left
        return -1

    cdef int collect(self, StoreFilter f, Matches* out) noexcept nogil:
        """Collect the matching subjects without duplicates; return -1 if out of memory or at a limit of `out`."""
        cdef size_t k, start
        cdef uint8_t* known = NULL
        cdef int result = 0
        for k in range(f.n):
            if out.looks_left == 0:
                result = -1
                break
            out.looks_left -= 1
            start = out.n
            result = self.collect_one(f, k, out)
            if result == 0 and f.n > 1 and out.n > start:
                result = self.keep_new(&known, start, out)
            if result != 0:
                break
        free(known)
        return result

    cdef int collect_few(self, StoreFilter f, Matches* out) noexcept nogil:
        """Set `out` to all matching subjects; return -1 if too many match, or if out of memory."""
        out[0] = matches_up_to(self.table.table.used // 8 + FEW_SUBJECTS)
        out.looks_left = self.table.table.used + FEW_SUBJECTS       # as many as a look at each subject
        if not self.is_every(f) and self.collect(f, out) == 0:
            return 0
        free(out.items)
        out[0] = matches_up_to(0)
        return -1

    cdef int collect_every(self, StoreFilter f, Matches* out) noexcept nogil:
        """Set `out` to all matching subjects; return -1 if out of memory."""
        cdef uint32_t id
        cdef Subject* s
        cdef bint every
        if self.collect_few(f, out) == 0:
            return 0
        every = self.is_every(f)
        out.max = out.looks_left = <size_t> -1
        # if most subjects match, the order of ids, which is that of their age, is faster
        for id in range(self.table.n_ids):
            s = subject_by_id(&self.table, id)
            if s != NULL and (every or f.matches_name(s)) and matches_push(out, s) != 0:
                free(out.items)
                return -1
        return 0

    cdef int keep_new(self, uint8_t** known, size_t start, Matches* out) noexcept nogil:
        """Remove the items of `out` from index `start` on that are in the set `known`; add the others to `known`.

        `known` has a bit for each subject id; NULL: the set is empty. Return -1 if out of memory.
        """
        cdef size_t at, kept = start
        cdef uint32_t id
        if known[0] == NULL:
            known[0] = <uint8_t*> calloc(self.table.n_ids // 8 + 1, 1)
            if known[0] == NULL:
                return -1
        for at in range(start, out.n):
            id = out.items[at].id
            if not known[0][id >> 3] & (1 << (id & 7)):
                known[0][id >> 3] |= 1 << (id & 7)
                out.items[kept] = out.items[at]
                kept += 1
        out.n = kept
        return 0

    cdef int collect_one(self, StoreFilter f, size_t k, Matches* out) noexcept nogil:
        """Collect the subjects that match pattern `k`.

        Return -1 if a limit of `out` is reached, or if out of memory.
        """
        cdef uint32_t id
        cdef Subject* s
        if not f.wild[k]:
            s = subjects_find(&self.table, f.patterns[k], f.lengths[k])
            return 0 if s == NULL else matches_push(out, s)
        if self.table.table.used > FEW_SUBJECTS and self.know_tokens(<uint32_t> -1) == 0:
            return subject_index_collect(self.by_token, f.patterns[k], f.lengths[k], out)
        for id in range(self.table.n_ids):
            if out.looks_left == 0:
                return -1
            out.looks_left -= 1
            s = subject_by_id(&self.table, id)
            if s == NULL or not subject_matches(f.patterns[k], f.lengths[k], s.name, s.len):
                continue
            if matches_push(out, s) != 0:
                return -1
        return 0

    # -- renewal -----------------------------------------------------------------------------------------------
    cdef int renew(self, SeqIndex* index, uint64_t seq, Remains remains) noexcept nogil:
        """Rebuild the table from the messages with sequences >= `seq`, and move the old table to `remains`.

        Return -1 if out of memory.
        """
        cdef SubjectTable fresh
        cdef Subject* old
        cdef Subject* s
        cdef Segment* segment
        cdef uint64_t each
        cdef uint32_t i
        cdef uint32_t* ids = NULL                           # of the messages, in order
        cdef size_t n = 0, room = 0
        subjects_init(&fresh)
        fresh.last_gen = self.table.last_gen        # filters store generations, so these must not restart
        each = index_next_live(index, seq)
        while each:
            segment = index_find(index, each)
            old = subject_by_id(&self.table, subject_of(segment, <uint32_t> (each - segment.base)))
            s = subjects_add(&fresh, old.name, old.len)
            if s == NULL or grow(<void**> &ids, &room, n + 1, sizeof(uint32_t)) != 0:
                free(ids)
                subjects_free(&fresh)
                return -1
            ids[n] = s.id
            n += 1
            if s.count == 0:
                s.first = each
            s.count += 1
            s.last = each
            each = index_next_live(index, each + 1)
        each, n = index_next_live(index, seq), 0
        while each:                                         # at the end, since nothing after this can fail
            segment = index_find(index, each)
            i = <uint32_t> (each - segment.base)
            segment.entries[i].subject_id = ids[n]
            segment.presence[(ids[n] & PRESENCE_MASK) >> 6] |= <uint64_t> 1 << (ids[n] & 63)
            n += 1
            each = index_next_live(index, each + 1)
        free(ids)
        remains.subjects, self.table = self.table, fresh
        remains.by_token, self.by_token = self.by_token, NULL
        self.known_tokens = 0
        return 0

    cdef void hand_over(self, Remains remains) except *:
        """Move the table to `remains`, and begin with an empty one."""
        remains.take_subjects(&self.table, &self.by_token)
        self.known_tokens = 0

"""The index of a store, by sequence and by subject."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.index.dropped cimport DropLog, Remains
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.sequences cimport Entry, Segment, SeqIndex
from pyjs.store.index.subject_set cimport SubjectSet
from pyjs.store.index.subjects cimport Subject

cdef class Catalogue:
    """The live sequences and their subjects. Only the store that owns the catalogue changes it."""
    cdef readonly uint64_t first_seq    # last_seq + 1 if all messages were removed; 0 before the first message
    cdef readonly uint64_t last_seq
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes        # as nats-server counts bytes: subject, headers, payload and the overheads
    cdef readonly int64_t first_ts, last_ts     # ns; 0: there is no such message
    cdef readonly uint32_t overhead             # bytes counted per message in `bytes`
    cdef readonly uint32_t header_overhead      # bytes counted in addition per message with headers

    cdef SeqIndex index
    cdef readonly SubjectSet subjects
    cdef readonly DropLog drops
    cdef uint64_t work_back             # work of all searches for a last match: messages and subjects examined
    cdef uint32_t falls                 # how many times last_seq has become lower, so that sequences are used again
    cdef list remains                   # memory of dropped messages that must be freed, see take_remains; or None

    cdef Entry* add_entry(self, Segment* s, const char* subject, uint32_t subject_len,
                          uint32_t header_len, uint32_t size, int64_t ts) noexcept nogil
    cdef int add_gap(self, Segment* s) noexcept nogil
    cdef void unlink(self, Segment* s, uint32_t i) noexcept nogil
    cdef void move_first(self, uint64_t from_seq) noexcept nogil
    # make the sequences above `seq` unused again; all of them are dead
    cdef void take_back(self, uint64_t seq) noexcept nogil
    cdef uint64_t stored_size(self, Entry* e) noexcept nogil
    cdef void recount_all(self) noexcept nogil
    cdef void forget_all(self, uint64_t first_seq) noexcept nogil       # drop all messages, but keep the segments
    cdef void part_from_subjects(self) noexcept
    cdef void part_from_segments(self) noexcept
    cdef void leave(self, Remains remains) except *

    # first live match; 0: there is none
    cdef uint64_t next_seq(self, uint64_t from_seq, StoreFilter f) noexcept nogil
    # one step of next_seq; `rest`: where the next step begins, 0: the search is complete
    cdef uint64_t next_some(self, uint64_t from_seq, StoreFilter f, uint64_t* rest) noexcept nogil
    cdef uint64_t next_of_step(self, uint64_t begin, uint64_t seq, StoreFilter f, uint64_t* rest) noexcept nogil
    cdef uint64_t count_from(self, uint64_t from_seq, StoreFilter f) noexcept nogil  # number of live matches
    # one step of count_from: count from `seq` on, and move `seq` to the next step, or beyond last_seq after the last;
    # `begin`: it is the first step
    cdef uint64_t count_some(self, uint64_t* seq, bint begin, StoreFilter f) noexcept nogil
    cdef int count_soon(self, uint64_t from_seq, StoreFilter f, uint64_t* count) noexcept nogil
    # first live message with headers; 0: there is none
    cdef uint64_t next_with_headers(self, uint64_t from_seq) noexcept nogil
    cdef int64_t time_of(self, uint64_t seq) noexcept nogil      # time of a live message; otherwise last_ts
    # of the last live message; 0: there is none
    cdef uint64_t last_seq_of(self, const char* subject, size_t n) noexcept nogil
    cdef uint64_t first_seq_of(self, const char* subject, size_t n) noexcept nogil
    # of a live message; NULL: there is none
    cdef const char* subject_at(self, uint64_t seq, uint32_t* n) noexcept nogil
    cdef uint64_t count_of(self, const char* subject, size_t n) noexcept nogil    # number of live messages

    cdef uint64_t next_of_id(self, uint64_t seq, uint64_t end, uint32_t id) noexcept nogil
    cdef uint64_t prev_of_id(self, uint64_t seq, uint32_t id) noexcept nogil
    cdef uint64_t search(self, uint64_t seq, StoreFilter f, uint64_t* rest) noexcept nogil
    cdef uint64_t scan(self, uint64_t seq, uint64_t end, StoreFilter f) noexcept nogil
    cdef uint64_t scan_back(self, uint64_t* seq, uint64_t limit, StoreFilter f) noexcept nogil
    cdef uint64_t next_ahead(self, uint64_t seq, StoreFilter f) noexcept nogil
    cdef int look_ahead(self, uint64_t seq, StoreFilter f) noexcept nogil
    cdef int chain_down_to(self, Subject* s, uint64_t from_seq, uint64_t* seqs, size_t* n,
                           uint64_t* hops) noexcept nogil
    cdef int count_chains(self, uint64_t from_seq, StoreFilter f, uint64_t* count) noexcept nogil
    cdef uint64_t prev_of_filter(self, uint64_t seq, StoreFilter f) noexcept nogil
    # one step of prev_of_filter; moves `seq` to where the next step begins, 0: the search is complete
    cdef uint64_t prev_some(self, uint64_t* seq, StoreFilter f) noexcept nogil
    cdef uint64_t count_range(self, uint64_t low, uint64_t high, StoreFilter f) noexcept nogil
    cdef uint64_t count_all_of(self, StoreFilter f) noexcept nogil
    cdef int check_counts(self) except -1
    cdef void settle_first(self, Subject* s) noexcept nogil
    cdef void settle_last(self, Subject* s) noexcept nogil
    cdef uint64_t walk_back(self, Subject* s, uint64_t* live) noexcept nogil
    cdef uint64_t last_up_to(self, Subject* s, uint64_t up_to, uint64_t* hops=*, uint64_t begin=*) noexcept nogil

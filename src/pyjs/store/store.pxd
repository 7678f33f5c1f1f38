"""The interface of a store of messages by sequence, in files or in memory."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.store.clock_steps cimport ClockSteps
from pyjs.store.index.catalogue cimport Catalogue
from pyjs.store.index.sequences cimport Entry, Found, Segment
from pyjs.store.index.dropped cimport Remains
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.index.last_matches cimport LastMatches
from pyjs.store.index.subjects cimport Subject
from pyjs.wire.ops cimport Msg

cdef struct Record:             # one stored message, valid until the next append, drop or commit
    const char* subject
    const char* body            # headers, then payload
    uint64_t seq
    int64_t ts                  # ns since the epoch
    uint32_t subject_len
    uint32_t header_len
    uint32_t size               # header_len + payload length

cdef inline void fill_record(Record* r, Entry* e, uint64_t seq, const char* subject) noexcept nogil:
    """Fill `r` with the message of entry `e`; headers and payload follow `subject` in memory."""
    r.subject, r.body = subject, subject + e.subject_len
    r.seq, r.ts = seq, e.ts
    r.subject_len, r.header_len, r.size = e.subject_len, e.header_len, e.size

cdef class StoredMessage:
    """A copy of one message of a store."""
    cdef readonly uint64_t seq
    cdef readonly int64_t ts
    cdef readonly bytes subject
    cdef readonly bytes headers         # b"" or the whole NATS/1.0 block
    cdef readonly bytes payload

cdef class StreamStore:
    """The messages of one stream by sequence. Only one thread may use a store; its jobs run in other threads."""
    cdef readonly Catalogue catalogue
    cdef LastMatches last_matches
    cdef public uint32_t many    # if more messages than this must be dropped at the front, they are dropped together
    # between two steps of a removal, in which a reader would see only a part of its effects
    cdef public bint changing
    # After a recovery, the first message whose roll-up may lack removals, because a kill came before their commit;
    # 0: there is no such message.
    cdef uint64_t run_from
    # The last entry that a replicated stream has applied; index 0: none. After a recovery, it is the last entry
    # of which all effects are stored, and no effects of later entries are stored.
    cdef readonly uint64_t applied_index, applied_term
    cdef readonly int64_t applied_ns            # ns, time of that entry
    cdef public int64_t ids_from    # ns; ids of messages before this time no longer count; never decreases
    cdef readonly ClockSteps steps      # steps of the clock since `ids_from`, up to the last applied entry
    cdef public bint has_ids                    # ids count, so headers of removed messages are kept
    cdef readonly bytes applied_id    # Nats-Msg-Id of the last message up to that entry, see Dedupe.last_msg_id
    cdef readonly uint64_t group                # identity of a replica's log; 0: not a replica

    # -- message path ------------------------------------------------------------------------------------------
    # return the sequence; 0: refused, since the store has failed
    cdef uint64_t append(self, Msg* m, int64_t ts) noexcept nogil
    # Appends between these two calls are one batch: after a crash, all of them exist or none. -1: refused.
    cdef int begin_batch(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil
    cdef void end_batch(self) noexcept nogil
    cdef void drop_batch(self) noexcept nogil    # ends the batch without effect, after an append of it was refused
    # The same over several turns, in which nothing else may be appended or committed. put_part takes the bytes of
    # one message, flush_parts writes them. After add_parts, `append` of the same messages adds them to the
    # index; any other append is refused. -1: refused.
    cdef int begin_parts(self, uint64_t count, uint64_t size, int64_t ts) noexcept nogil
    cdef int put_part(self, Msg* m, uint64_t seq, int64_t ts, bint last) noexcept nogil
    cdef int flush_parts(self) noexcept nogil
    cdef void add_parts(self) noexcept nogil
    cdef void end_parts(self) noexcept nogil
    # ends the batch without effect; does nothing after the end of the batch
    cdef void drop_parts(self) noexcept nogil
    cdef uint64_t skip(self) noexcept nogil                         # use up one sequence without a message
    cdef int skip_to(self, uint64_t seq) noexcept nogil             # use up all sequences up to `seq`; -1: refused
    cdef int commit(self) noexcept nogil        # write all appends to the file; -1: failed, see `error`
    # Return 0; -1: absent, -2: damaged, -3: not readable now.
    cdef int load(self, uint64_t seq, Record* r) noexcept nogil
    cdef int drop(self, uint64_t seq, bint erase) noexcept nogil    # 0; -1: there was no such message
    # Find and check the live entry i. Return 0: `p` is a whole record; 1: `p` is subject | headers | payload; below
    # 0: an error, as in `load`.
    cdef int find_stored(self, Segment* s, uint32_t i, const char** p) noexcept nogil

    # Called before and after the effects of each entry of a replicated stream; the effects append about `size`
    # bytes.
    cdef int begin_entry(self, uint64_t size) except -1
    cdef int end_entry(self, uint64_t index, uint64_t term, int64_t ns, bytes last_id) except -1

    # Hooks that each kind of store implements.
    cdef void forget(self, Segment* s, uint32_t i, bint erase) noexcept nogil       # entry i was dropped just now
    cdef void forget_found(self, Segment* s, Found* found, Remains remains) noexcept nogil      # the same for many
    # remove segment `at`, which has no live messages and is not the last one
    cdef void retire(self, size_t at) noexcept nogil
    cdef void retire_to(self, size_t at, Remains remains) noexcept nogil        # its memory becomes part of `remains`
    cdef void clear_segments(self) noexcept nogil               # all messages were removed
    cdef void part_from_first(self, size_t n, Remains remains) noexcept         # remove the first n segments
    cdef Segment* tail(self) noexcept nogil  # the segment that the next entry goes into; NULL: refused

    cdef int jump_to(self, uint64_t seq) noexcept nogil             # make `seq` the next sequence, in a new segment
    cdef bint keeps_few(self, uint64_t seq) noexcept nogil
    cdef void keep_from(self, uint64_t seq) noexcept
    cdef uint64_t drop_below(self, uint64_t seq) noexcept nogil
    cdef void drop_singly_below(self, uint64_t seq) noexcept nogil
    cdef uint64_t drop_all(self, uint64_t first_seq) noexcept nogil
    cdef bint sweep(self, StoreFilter f, uint64_t before_seq)
    cdef void sweep_segments(self, Subject* subject, uint64_t before_seq, Remains remains) noexcept nogil
    cdef void sweep_segment(self, Segment* s, Subject* subject, uint32_t end, Remains remains) noexcept nogil
    cdef StoredMessage copy_out(self, uint64_t seq)
    # `work` grows by the work of the search, in units of a turn's input (core/session.pyx)
    cdef uint64_t last_of(self, const char* subject, size_t n, int64_t* work) noexcept nogil

"""The commit of atomic batches of one stream."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.features.batches cimport AtomicBatch, BatchUsage
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.wire.ops cimport Msg

cdef class BatchCommits:
    cdef Stream stream
    cdef object state                   # a batch_checks.State
    cdef BatchUsage usage
    cdef AtomicBatch batch              # the batch that is committed in steps; None: there is none
    cdef bytes reply                    # reply subject of the batch's last message
    cdef object checks                  # batch_checks.BatchChecks of the batch
    cdef int phase                      # the phase of the next step
    cdef bint stepping                  # a step is running
    cdef size_t at                      # index of the next message in this phase
    cdef size_t last_wanted             # index of the last message that will be stored
    cdef int64_t first_ts               # ns, time of the first message; the others follow one nanosecond apart
    cdef list held                      # publishes since the commit began: (subject, reply, body, header_len)
    cdef size_t held_size

    cdef void commit(self, Msg* m, AtomicBatch batch) except *
    cdef void commit_whole(self, Msg* m, AtomicBatch batch) except *
    cdef int hold(self, Msg* m) noexcept nogil
    cdef void begin(self, Msg* m, AtomicBatch batch) except *
    cdef void step(self) except *
    cdef void do_step(self) except *
    cdef void enter(self) except *
    cdef void do_all(self) except *
    cdef void check_some(self) except *
    cdef void begin_parts(self) except *
    cdef void put_some(self) except *
    cdef void add_all(self) except *
    cdef void leave(self) except *
    cdef void release(self) except *
    cdef void refuse(self, bytes reply, object error) except *
    cdef void replay(self, bytes subject, bytes reply, bytes body, size_t header_len) except *
    cdef void check(self, AtomicBatch batch, size_t first, size_t end, size_t n_checked) except *
    cdef void check_room(self, AtomicBatch batch) except *
    cdef size_t count_to_check(self, AtomicBatch batch) noexcept nogil
    cdef uint64_t append_batch(self, AtomicBatch batch) except? 0
    cdef uint64_t append_all(self, AtomicBatch batch) noexcept nogil
    cdef bint is_wanted(self, Msg* m) noexcept nogil
    cdef uint64_t skip(self, Msg* m) noexcept nogil
    cdef uint64_t keep_wanted(self, Msg* m) noexcept nogil
    cdef void note_batch(self, AtomicBatch batch, uint64_t first) noexcept nogil
    cdef void answer(self, Msg* m, AtomicBatch batch, uint64_t seq) except *

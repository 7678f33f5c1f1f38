"""One replica of a stream."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.core.sink cimport Sink
from pyjs.jetstream.stream.features.batches cimport AtomicBatch
from pyjs.jetstream.stream.limits cimport Usage
from pyjs.jetstream.stream.replicated.applied_index cimport AppliedIndex
from pyjs.jetstream.stream.replicated.gaps cimport Gaps
from pyjs.jetstream.stream.replicated.leader_clock cimport LeaderClock
from pyjs.jetstream.stream.replicated.payload cimport Item, PayloadBuffer
from pyjs.jetstream.stream.replicated.proposal cimport Proposal
from pyjs.jetstream.stream.replicated.room cimport InFlight
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.wire.ops cimport Msg

cdef class Replica(Sink):
    cdef readonly Stream stream
    cdef Usage account, server  # usage of the account and of the server
    cdef object group           # Group, see replica.pyi
    cdef object owner           # Owner, see replica.pyi; None: it has no owner
    cdef readonly PayloadBuffer buffer   # the messages of this turn
    cdef Proposal proposal      # reply subjects of the messages in `buffer`
    cdef readonly bint leads
    cdef public bint stopping   # the node is stopping, so no more messages are accepted
    cdef readonly uint64_t index, term  # index and term of the last applied entry
    cdef readonly object stopped        # the error that stopped this replica; None: it runs
    cdef readonly uint64_t in_flight    # bytes of proposals that are neither applied nor lost
    cdef public uint64_t in_flight_max
    cdef object waiting         # deque of entries that wait until an operation in steps is complete
    cdef bint working           # steps of an operation are running
    # this node proposed the last applied entry, so it republishes the messages of that entry
    cdef readonly bint proposed
    cdef int64_t expiry_ns      # time of the next proposal to expire messages; INT64_MAX: one is in flight
    cdef readonly AppliedIndex consumers    # consumers.ReplicatedConsumers
    cdef object running         # Outcome of the running operation, if a chore of the leader waits for it; else None
    cdef list removals          # sequences of acknowledged messages to remove
    cdef InFlight taken         # messages that are collected or proposed
    cdef LeaderClock clock
    cdef int64_t previous_ns    # time of the entry before the last applied one
    cdef readonly Gaps gaps     # None: no message is lost, or an operator has accepted the loss

    cpdef apply(self, uint64_t index, uint64_t term, int64_t time_ns, bytes payload, Proposal proposal=*)
    cdef bint refused(self, Msg* m) noexcept nogil
    cdef bint depends(self, Msg* m) noexcept nogil
    cdef bint refuse_dependent(self, Msg* m) noexcept nogil
    cdef int64_t least_ns(self) noexcept nogil
    cdef bint decides_items(self, const char* p, size_t n, size_t* at, int64_t now_ns) noexcept nogil
    cdef bint collect_copy(self, Msg* m, bint mirrored, uint64_t seq, int64_t ts) noexcept nogil
    cdef void apply_copy(self, Item* item) noexcept nogil
    cdef void collect_batched(self, Msg* m) noexcept
    cdef void collect_transformed(self, Msg* m) noexcept
    cdef bint collect(self, Msg* m) noexcept nogil
    cdef void add_batch(self, Msg* m, AtomicBatch batch) except *
    cdef int fill_batch(self, Msg* m, AtomicBatch batch) noexcept nogil
    cdef bint is_full(self, uint64_t size) noexcept nogil
    cdef bint report_step(self) except -1
    cdef bint is_batched(self, Msg* m) noexcept nogil
    cdef void apply_items(self, bytes payload, Proposal proposal) except *
    cdef int apply_messages(self, const char* p, size_t n, Proposal proposal) except -1 nogil
    cdef void apply_next(self, uint64_t index, uint64_t term, int64_t time_ns, bytes payload,
                         Proposal proposal) except *
    cdef int apply_change(self, Item* item) except -1
    cdef int apply_batch(self, Item* item, Proposal proposal) except -1
    cdef void begin_entry(self, size_t size, size_t items, int64_t time_ns) except *
    cdef void end_entry(self, int64_t time_ns) except *

"""Publishes that need more than a check and an append."""
from libc.stdint cimport uint64_t

from pyjs.core.sink cimport Sink
from pyjs.jetstream.stream.features.batch_commits cimport BatchCommits
from pyjs.jetstream.stream.features.batches cimport AtomicBatch, AtomicBatches, BatchHeaders
from pyjs.jetstream.stream.features.fast_publishes cimport FastPublishes
from pyjs.jetstream.stream.features.scheduling cimport Scheduling
from pyjs.jetstream.stream.pub_headers cimport PubHeaders
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.wire.ops cimport Msg

cdef class SpecialPublishes(Sink):
    cdef Stream stream
    cdef object server              # engine.Shared
    cdef AtomicBatches batches
    cdef readonly BatchCommits commits
    cdef readonly Scheduling scheduling
    cdef FastPublishes fast
    cdef char* scratch              # buffer in which the message of a counter is composed
    cdef size_t scratch_room

    cdef void take(self, Msg* m, PubHeaders* h) noexcept
    cdef bint is_refused(self, Msg* m) noexcept nogil
    cdef void batched(self, Msg* m, bint special) noexcept nogil
    cdef void take_batched(self, Msg* m, BatchHeaders* h, bint special) except *
    cdef AtomicBatch collect(self, Msg* m)
    cdef int restage(self, AtomicBatch batch, Msg* m) except -1
    cdef void commit_staged(self, Msg* m, AtomicBatch batch) noexcept
    cdef void answer_staged(self, Msg* m) noexcept nogil
    cdef void scheduled(self, Msg* m) except *
    cdef uint64_t last_value(self, const char* subject, size_t n) noexcept nogil
    cdef bint added(self, Msg* m, PubHeaders* h) noexcept nogil
    cdef void store_sum(self, Msg* m, PubHeaders* h, size_t size) noexcept nogil
    cdef void add_up(self, Msg* m, PubHeaders* h) except *
    cdef uint64_t store(self, Msg* m, bytes headers, bytes payload, bytes told) except? 0
    cdef void answer(self, Msg* m, uint64_t seq, bytes told) except *

"""Publishes that need more than a check and an append."""
from libc.stdint cimport uint64_t

from pyjs.core.sink cimport Sink
from pyjs.jetstream.stream.features.fast_publishes cimport FastPublishes
from pyjs.jetstream.stream.pub_headers cimport PubHeaders
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.wire.ops cimport Msg

cdef class SpecialPublishes(Sink):
    cdef Stream stream
    cdef object server              # engine.Shared
    cdef object batches             # batches.AtomicBatches
    cdef readonly object scheduling         # scheduling.Scheduling
    cdef FastPublishes fast

    cdef bint is_refused(self, Msg* m) noexcept nogil
    cdef void batched(self, Msg* m) except *
    cdef void commit_batch(self, Msg* m, list messages, bytes batch_id) except *
    cdef bint is_plain(self, bytes headers) except -1
    cdef uint64_t append_batch(self, list messages) except? 0
    cdef uint64_t keep(self, Msg* m) noexcept
    cdef void scheduled(self, Msg* m) except *
    cdef void add_up(self, Msg* m, PubHeaders* h) except *
    cdef uint64_t store(self, Msg* m, bytes headers, bytes payload, bytes told) except? 0
    cdef void answer(self, Msg* m, uint64_t seq, bytes told) except *

"""Publishes of fast batches into one stream."""
from libc.stdint cimport uint64_t

from pyjs.core.sink cimport Sink
from pyjs.jetstream.stream.features.fast_batches cimport FastBatch, FastBatches, FastReply
from pyjs.jetstream.stream.pub_headers cimport PubHeaders
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.wire.ops cimport Msg

cdef class FastPublishes(Sink):
    cdef Stream stream
    cdef object state               # a batch_checks.State
    cdef readonly FastBatches batches

    cdef bint goes_on(self, Msg* m, FastReply* r, PubHeaders* h) noexcept nogil
    cdef void append(self, Msg* m, PubHeaders* h) noexcept nogil
    cdef void note_stored(self, Msg* m, PubHeaders* h, uint64_t seq) noexcept nogil
    cdef void send_flow(self, Msg* m, FastBatch batch) noexcept nogil
    cdef void say_flow(self, Msg* m, int kind, uint64_t stream_seq, uint64_t seq, uint64_t flow) noexcept nogil
    cdef void say(self, Msg* m, bytes body) noexcept
    cdef void take(self, Msg* m, FastReply* r, bint is_valid) except *
    cdef bint follows(self, Msg* m, FastReply* r, FastBatch batch) except -1
    cdef void ping(self, Msg* m, FastReply* r, FastBatch batch) except *
    cdef void check(self, Msg* m, FastReply* r, FastBatch batch, bytes headers) except *
    cdef void store(self, Msg* m, FastReply* r, FastBatch batch, bytes headers, bytes payload) except *
    cdef void refuse(self, Msg* m, FastReply* r, FastBatch batch, error, uint64_t known) except *
    cdef void end(self, Msg* m, FastBatch batch) except *

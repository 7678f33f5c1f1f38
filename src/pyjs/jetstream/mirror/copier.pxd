"""Copies messages of one stream into another, a bounded number per turn."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.mirror.backlog cimport Backlog
from pyjs.jetstream.stream.stream cimport Stream
from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.store cimport Record
from pyjs.wire.ops cimport Msg

cdef class Copier(StreamConsumer):
    cdef readonly Stream target
    cdef readonly Stream origin             # None: the stream was not found
    cdef readonly bint mirrors  # the copier belongs to a mirror: copies keep sequence and time, and get no header
    cdef readonly bint blocked              # the target refuses the message at `at`
    cdef public int64_t active_ns           # wall time at which the origin was last read; 0: never
    cdef public object error                # errcodes.ApiError shown in reports; None: there is none
    cdef public uint64_t stored             # seq in the origin of the last message that was stored; 0: none was
    cdef readonly uint64_t written          # all seq <= this are committed by the target, or not wanted; >= kept
    cdef readonly uint64_t kept             # as `written`, but also as durable as `sync_interval` requires
    cdef uint64_t generation  # raised when the position is reset, so that results of earlier syncs are ignored
    cdef uint64_t at                        # seq in the origin of the next message to read
    cdef uint64_t copied                    # seq in the origin of the last copied message
    cdef uint64_t seq                       # seq in the origin of the message that is being copied
    cdef int64_t ts                         # time of that message
    cdef Backlog backlog
    cdef StoreFilter wanted                 # the configured filters, for the origin's store
    cdef list transforms                    # subjects.transform.SubjectTransform
    cdef bint renames                       # `transforms` is not empty
    cdef object owner                       # sourcing.Inflow
    cdef bint current                       # the owner knows that the copy is complete
    cdef bytes head, tail  # text of Nats-Stream-Source before the sequence, and between sequence and subject
    cdef bytes ident                        # identity of the origin, which follows the subject
    cdef const char* head_text              # these three point into `head`, `tail` and `ident`
    cdef const char* tail_text
    cdef const char* ident_text
    cdef size_t head_len, tail_len, ident_len
    cdef bint queued                        # the copier is in Turn.consumers
    cdef uint64_t noted  # first copy of its feed that was reported to the owner since the last commit
    cdef readonly object feed  # durable.ConsumerFeed: deliveries are copied; None: messages are read from `origin`
    cdef char* scratch                      # buffer for a message with changed headers
    cdef size_t scratch_room

    cdef void start_at(self, uint64_t position) noexcept
    cdef int copy_some(self) except -1
    cdef int copy(self, Record* r) noexcept nogil
    cdef int mirror(self, Msg* m, Record* r) noexcept nogil
    cdef int source(self, Msg* m, Record* r) noexcept nogil
    cdef int take(self, Msg* m) noexcept nogil
    cdef int propose(self, Msg* m) noexcept nogil
    cdef int take_renamed(self, Msg* m) noexcept
    cdef bytes renamed(self, const char* subject, uint32_t n)
    cdef int reserve(self, size_t n) noexcept nogil

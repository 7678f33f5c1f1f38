"""A place in one stream from which another one copies: the mirror's, or one of its sources."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.jetstream.stream.stream cimport Stream
from pyjs.jetstream.stream.stream_consumer cimport StreamConsumer
from pyjs.store.index.filter cimport StoreFilter
from pyjs.store.store cimport Record
from pyjs.wire.ops cimport Msg

cdef class Copier(StreamConsumer):
    cdef readonly Stream target
    cdef readonly Stream origin             # None: it is not there
    cdef readonly bint mirrors              # keeps sequences and times, adds nothing
    cdef readonly bint blocked              # the target refuses the message at `at`
    cdef public int64_t active_ns           # when it last looked at its origin, 0: never
    cdef public object error                # errcodes.ApiError, None: all is well
    cdef public uint64_t stored             # sequence in the origin of what was stored last, 0: nothing
    cdef readonly uint64_t written          # everything up to here is committed by the target, or not wanted
    cdef readonly uint64_t kept             # the same, and as safe as `sync_interval` wants it
    cdef uint64_t at                        # where to look next
    cdef uint64_t copied                    # the last that was copied
    cdef StoreFilter wanted                 # `filters` over the origin
    cdef list transforms                    # subjects.transform.SubjectTransform
    cdef bint renames                       # there are some
    cdef object owner                       # sourcing.Inflow
    cdef bint current                       # the owner knows that nothing is left
    cdef bytes head, tail                   # Nats-Stream-Source: what comes before the sequence, and between
    cdef bytes ident                        # behind the subject
    cdef const char* head_text              # in `head`, and so on
    cdef const char* tail_text
    cdef const char* ident_text
    cdef size_t head_len, tail_len, ident_len
    cdef bint queued                        # in Turn.consumers
    cdef char* scratch                      # a message with changed headers
    cdef size_t scratch_room

    cdef int copy_some(self) except -1
    cdef int copy(self, Record* r) noexcept nogil
    cdef int take(self, Msg* m) noexcept nogil
    cdef int mirror(self, Msg* m, Record* r) noexcept nogil
    cdef int source(self, Msg* m, Record* r) noexcept nogil
    cdef bytes renamed(self, const char* subject, uint32_t n)
    cdef int take_renamed(self, Msg* m) noexcept
    cdef void after(self, Msg* m, uint64_t seq, object ttl, object rollup) noexcept
    cdef int reserve(self, size_t n) noexcept nogil

"""Evictions: removals of older messages because of new ones."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.jetstream.stream.limits cimport StreamLimits
from pyjs.store.store cimport StreamStore
from pyjs.store.index.subjects cimport Subject

cdef class Evictions:
    cdef StreamStore store
    cdef object turn                    # core.sink.Turn
    cdef uint64_t* seqs                 # sequences of messages that may have raised their subjects above the limit
    cdef size_t n, room
    cdef readonly list purges           # filters of purges that must be reported to consumers; b"": all messages
    cdef list rollups  # (sequence, subject that is rolled up or b"" for all subjects, whether the message was stored)
    cdef bint has_rollups               # `rollups` is not empty; can be read without the GIL
    cdef uint64_t rolled_up_before      # sequence of the newest queued roll-up of all subjects; 0: there is none
    cdef uint64_t swept_before  # sequence of the newest queued roll-up of a subject with wildcards; 0: there is none

    cdef bint pending(self) noexcept nogil
    cdef bint exceeds(self, StreamLimits limits) noexcept nogil
    cdef bint may_remove(self, StreamLimits limits, uint64_t seq) noexcept nogil
    cdef bint due(self, StreamLimits limits) noexcept nogil
    cdef void note(self, uint64_t seq) noexcept nogil
    cdef uint64_t after_rollups(self, uint64_t seq) noexcept nogil
    cdef void note_rollup(self, bytes subject, bytes scope, uint64_t seq)
    cdef void forget_from(self, uint64_t seq)
    cdef bint carry_out(self, StreamLimits limits) noexcept nogil
    cdef list roll_up(self)
    cdef uint64_t purge(self, bytes subject, uint64_t before_seq, uint64_t keep) except? 0
    cdef void trim_noted(self, int64_t max_per_subject) noexcept nogil
    cdef void trim_subject(self, Subject* s, int64_t max_per_subject) noexcept nogil
    cdef void trim_stream(self, int64_t max_msgs, int64_t max_bytes) noexcept nogil

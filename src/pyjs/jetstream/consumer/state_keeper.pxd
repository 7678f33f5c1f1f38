"""Keeps the state of a consumer in its file."""
from pyjs.jetstream.consumer.acks.log cimport StateLog

cdef enum KeepState:
    KEPT                        # the file says everything but what is in `changes`
    REWRITING                   # a whole state is being written in a thread; the consumer waits for it
    REWRITE_FAILED              # it was not durable: the next one is written at once

cdef class StateKeeper:
    cdef KeepState state
    cdef readonly object file           # StateFile, None: nothing keeps the state
    cdef readonly object log
    cdef object metadata                # metadata.MetadataWriter, for whole states; None: they are written at once
    cdef StateLog changes
    cdef bint sync_always               # acks are confirmed after the sync, not after the write

    cdef bint wants_rewrite(self) noexcept
    cpdef bint record(self, consumer) except -1

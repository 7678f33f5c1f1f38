"""The writer of a consumer's state file."""
from pyjs.jetstream.consumer.acks.log cimport StateLog

cdef enum KeepState:
    WRITTEN                     # the file has everything except `changes`
    REWRITING                   # a thread writes a snapshot, and the consumer waits
    REWRITE_FAILED              # the snapshot failed, and the next one is written without a thread

cdef class StateKeeper:
    cdef KeepState state
    cdef readonly object file           # StateFile; None: the state is not stored
    cdef readonly object log
    cdef object metadata  # metadata.MetadataWriter, for snapshots; None: they are written without a thread
    cdef StateLog changes
    cdef list waiting                   # callbacks: called with None when all changes are durable, or with the error
    cdef readonly bint sync_always      # acks are answered after the sync, not after the write

    cdef bint wants_rewrite(self) noexcept
    cpdef bint record(self, consumer) except -1

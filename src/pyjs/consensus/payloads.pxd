"""Payloads of entries: staged ones, recent ones in memory, and older ones, which are read from the log."""

cdef class Payloads:
    cdef object log                 # log.node_log.NodeLog
    cdef Py_ssize_t memory_max
    cdef readonly dict staged       # Key -> payload of an entry that the engine is getting
    cdef readonly dict recent       # Key -> payload, oldest first
    cdef Py_ssize_t size            # of `recent`, with ENTRY_COST for each; at most `memory_max`, or one entry

    cpdef stage(self, tuple key, bytes payload)
    cpdef bytes take(self, tuple key)
    cdef drop_oldest(self)
    cpdef bytes get(self, tuple key)
    cpdef list recent_of(self, list keys, Py_ssize_t size_max)

"""Frames of the engine for other nodes, together with the payloads of their entries."""
from pyjs.consensus.payloads cimport Payloads

cdef class Outbox:
    cdef object peers                   # seams.Peers
    cdef Payloads payloads
    cdef object text_log                # base.log.Log
    cdef readonly int dropped           # number of frames with entries that were dropped
    cdef readonly dict damaged  # group -> its CorruptRecord; the owner empties the dict, and closes these groups
    cdef set unreadable                 # groups whose damage was written to the text log

    cpdef send(self, batches)
    cdef send_entries(self, node, bytes frames, list keys)
    cdef send_parts(self, node, bytes frames, list keys, free)
    cdef send_load(self, node, load)
    cdef list read(self, list keys)

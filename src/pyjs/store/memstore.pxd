"""The store of memory streams."""
from pyjs.store.store cimport StreamStore

cdef class MemStore(StreamStore):
    """Messages in memory, gone with the process."""

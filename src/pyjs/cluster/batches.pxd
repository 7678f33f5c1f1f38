"""The connections of this server that carry batches, by node."""

cdef class Batches:
    cdef readonly dict connections      # number of the other server's node -> Route
    cdef readonly int dropped           # number of batches that were dropped because there was no connection

    cpdef send(self, node, parts)
    cpdef pending_size(self, node)

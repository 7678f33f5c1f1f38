"""The connections of this server that carry batches, by node: the part of `Replication` that runs for each batch.

Compiled, because each entry of a replicated group takes several batches (measured in benchmarks/: r3-sync-1).
"""
from pyjs.cluster.route cimport Route


cdef class Batches:
    """The connections for batches; the owner, a subclass, adds and removes them."""

    def __cinit__(self):
        self.connections = {}

    cpdef send(self, node, parts):
        """Send a batch, or drop it if there is no connection."""
        cdef Route route = self.connections.get(node)
        if route is None:
            self.dropped += 1
        else:
            route.send_batch(parts)

    cpdef pending_size(self, node):
        """Return the number of unsent bytes for a node."""
        cdef Route route = self.connections.get(node)
        return 0 if route is None else route.unsent()

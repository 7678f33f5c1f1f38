"""The reads and writes of one connection to another server: the part of its asyncio protocol that runs for each.

Compiled, because each entry of a replicated group takes several of them (measured in benchmarks/: r3-sync-1).
"""
from pyjs.cluster.route cimport Route

from pyjs.server.connection import FULL_READ


cdef class RouteSocket:
    """The base class of `RouteConnection`, which sets the attributes."""

    def get_buffer(self, sizehint) -> bytearray:
        """Return the buffer for a read; all connections share it, since `buffer_updated` follows immediately."""
        return self.driver.buffer

    def buffer_updated(self, nbytes) -> None:
        """Pass a read to the route, and request a turn if the route or the node has work for one."""
        cdef Route route = self.route
        if route is None:       # the route could not be opened, and the connection is being aborted
            return
        if nbytes >= FULL_READ:
            self._give_way()
        try:
            route.receive_buffer(self.driver.buffer, nbytes)
        except Exception as error:
            self._break(error)
        if route.needs_turn:
            self.driver.wake_for_input()
        else:
            self.driver.wake_if_needed()

    def write(self, data) -> None:
        """Send `data` now, or when the kernel accepts it."""
        self.transport.write(data)

    def write_all(self, pieces) -> None:
        """Send `pieces` in order, each as `write` would."""
        self.transport.writelines(pieces)

    def pending_size(self) -> int:
        """Return the number of bytes of unsent output in the transport."""
        return self.transport.get_write_buffer_size()

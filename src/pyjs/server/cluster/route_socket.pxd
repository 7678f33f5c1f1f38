"""The reads and writes of one connection to another server."""
from pyjs.cluster.route cimport Route
from pyjs.server.driver cimport Driver

cdef class RouteSocket:
    cdef public Driver driver
    cdef public Route route             # None before the connection is made and after it is lost
    cdef public object transport        # asyncio.Transport

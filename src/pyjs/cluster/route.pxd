"""One connection to another server of the cluster."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.cluster.writer cimport RouteWriter
from pyjs.core.account cimport Account
from pyjs.core.intake cimport Intake
from pyjs.core.sink cimport Turn
from pyjs.wire.ops cimport Msg
from pyjs.wire.route_frames cimport FrameReader

cdef enum RouteState:
    GREETING                    # the first lines are being exchanged, see `greeting`
    OPEN                        # frames are exchanged
    CLOSED

cdef class Route:
    cdef readonly object cluster        # cluster.cluster.Cluster
    cdef readonly Turn turn
    cdef readonly object host           # core.host.Host
    cdef readonly object link           # core.link.Link
    cdef public object peer             # core.link.Peer: the address
    cdef readonly object dial           # cluster.mesh.Dial; None: the other side opened the connection
    cdef public object info             # cluster.hello.PeerInfo of the other side, None: not known yet
    cdef readonly object greeting       # cluster.greeting.Greeting, None: complete
    cdef readonly uint64_t rid
    cdef readonly object account    # always None, as a route belongs to no account; turns use it for fair shares
    cdef RouteWriter writer
    cdef FrameReader reader
    cdef Intake input                   # the unparsed frames
    cdef bytes line                     # the beginning of a line of the greeting
    cdef RouteState state
    cdef readonly dict remote           # account name -> RemoteAccount
    cdef list numbered                  # the other side's account number -> RemoteAccount or Unknown
    cdef object sender                  # core.auth.identity.Sender of the next message; None: not announced
    cdef readonly str closed_reason     # "": open
    cdef readonly int64_t started_at_ns, last_activity_ns, rtt_ns
    cdef readonly uint64_t in_msgs, in_bytes
    cdef uint64_t frames                # number of frames that were handled
    cdef readonly bint needs_turn       # the last read had frames other than heartbeats and batches
    cdef readonly Route main    # the route whose large messages this connection carries; None: this object is a route
    cdef readonly Route aside           # the connection for this route's large messages; None: none
    cdef uint64_t awaited               # number of frames that `main` must have handled before the next frame here
    cdef readonly bint silent           # no heartbeat has arrived for a while
    cdef readonly bint synced           # the other side has sent its initial interest

    # the receiver of batches with frames of the engine, and the number of the node that sends them; None: no receiver
    cdef object consensus, node

    cpdef bint receive_data(self, bytes data) except -1
    cpdef receive_buffer(self, bytearray buffer, size_t n)
    cpdef send_batch(self, parts)
    cdef size_t unsent(self) except? 0
    cdef int take_batch(self, bytes body) except -1
    cdef bint must_wait(self) noexcept
    cdef int go_on_later(self) except -1
    cdef int wake_aside(self) except -1
    cdef bint parse(self, int64_t work) except -1
    cdef int64_t parse_read(self, int64_t left) except? -1
    cdef int64_t take_msg(self) except -1
    cdef int deliver_traced(self, Msg* m, Account account, set queues, object trace) except -1
    cdef int64_t refuse_msg(self) except -1
    cdef int deliver_here(self, Msg* m, const char* queues, size_t n) except -1
    cdef int take_frame(self) except -1

"""One connection to another server of the cluster."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.intake cimport Intake
from pyjs.core.outbuf cimport OutBuf
from pyjs.core.sink cimport Sink, Turn
from pyjs.subjects.routes cimport Target
from pyjs.wire.ops cimport Msg
from pyjs.wire.route_frames cimport FrameReader

cdef enum RouteState:
    GREETING                    # the first lines, in `greeting`
    OPEN                        # frames
    CLOSED

cdef class RemoteAccount(Sink):
    """One account at the other server: the receiver of all its subscriptions there."""
    cdef readonly Account account
    cdef Route route
    cdef uint32_t number                # in frames that leave
    cdef readonly dict subscriptions    # (subject, queue) -> Subscription

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1

cdef class Route:
    cdef readonly object cluster        # cluster.cluster.Cluster
    cdef readonly Turn turn
    cdef readonly object host           # core.host.Host
    cdef readonly object link           # core.link.Link
    cdef public object peer             # core.link.Peer: the address
    cdef readonly object dial           # cluster.mesh.Dial, None: the other side connected
    cdef public object info             # cluster.hello.PeerInfo of the other side, None: not known yet
    cdef readonly object greeting       # cluster.greeting.Greeting, None: it is over
    cdef readonly uint64_t rid
    cdef readonly object account        # None: a route belongs to no account; for fair shares of a turn
    cdef OutBuf out
    cdef FrameReader reader
    cdef Intake input                   # the unread frames
    cdef bytes line                     # the begin of a line of the greeting
    cdef RouteState state
    cdef bint paused                    # the transport's buffer is full
    cdef bint lost                      # the transport is gone
    cdef bint dirty                     # is in Turn.sessions
    cdef uint64_t bit                   # of Msg.told; 0: not open yet
    cdef Msg* last                      # the message written last, while it is being published; NULL: another frame
    cdef size_t frame_start, frame_size     # of its frame in `out`, which may get more queue groups
    cdef readonly dict remote           # account name -> RemoteAccount
    cdef list numbered                  # the other side's numbers of accounts -> RemoteAccount or Unknown
    cdef readonly str closed_reason     # "": open
    cdef readonly int64_t started_at_ns, last_activity_ns, rtt_ns
    cdef readonly uint64_t in_msgs, in_bytes, out_msgs, out_bytes
    cdef readonly bint silent           # no heartbeat for a while
    cdef readonly bint synced           # the other side has sent all interest that there was
    cdef object timers

    cdef int send_msg(self, Msg* m, uint32_t account, Target* t) noexcept nogil
    cdef int add_queue(self, Target* t) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil
    cdef bint parse(self, int64_t work) except -1
    cdef int64_t parse_read(self, int64_t left) except? -1
    cdef int64_t take_msg(self) except -1
    cdef int64_t refuse_msg(self) except -1
    cdef int deliver_here(self, Msg* m, const char* queues, size_t n) except -1
    cdef void tell_news(self) noexcept
    cdef int take_frame(self) except -1
    cdef int write_out(self) except -1

"""One client connection, without its socket."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.outbuf cimport OutBuf
from pyjs.core.sink cimport Sink, Turn
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.subjects.trie cimport SubState
from pyjs.wire.ops cimport Msg
from pyjs.wire.parser cimport Parser

cdef class ClientSession(Sink):
    cdef Parser parser
    cdef OutBuf out
    cdef readonly Turn turn
    cdef readonly Account account
    cdef readonly object host           # core.host.Host
    cdef readonly object link           # core.link.Link
    cdef readonly object peer
    cdef readonly uint64_t cid
    cdef public object options          # ConnectOptions
    cdef object pings                   # core.pings.Pings
    cdef object login                   # core.login.Login
    cdef readonly object user           # core.auth.User, None: not authenticated yet
    cdef readonly dict subscriptions    # sid -> Subscription
    cdef readonly int64_t started_at_ns, last_activity_ns, closed_at_ns
    cdef readonly uint64_t in_msgs, in_bytes, out_msgs, out_bytes, stalls
    cdef readonly str closed_reason     # "": open
    cdef readonly bint connected        # CONNECT was accepted
    cdef readonly bint awaiting_auth    # the first operation must be CONNECT
    cdef bint closing                   # take no more input, deliver nothing
    cdef bint dirty                     # is in Turn.sessions
    cdef list used_up                   # Subscriptions that reached their UNSUB max
    cdef object unparsed                # deque of reads: the first is with the parser when `mid_read`
    cdef bint mid_read                  # the parser stopped inside unparsed[0]
    cdef bint input_queued              # is in Turn.inputs
    cdef bint awaiting_verdict          # a job decides about the last CONNECT: parse nothing until then
    cdef bint held                      # reading is paused because of `unparsed`
    cdef bint resting                   # reading is paused for STALL_NS
    cdef bint link_lost                 # nothing can be written any more
    cdef bint input_over                # nothing more arrives: close when `unparsed` is used up
    cdef bint paused                    # the transport takes no more
    cdef bint stalled                   # a receiver is nearly full: read on a little later
    cdef bint echo, headers, verbose, pedantic, no_responders
    cdef bint guarded                   # publishing is subject to permissions
    cdef object replies                 # core.replies.Replies, None: no allow_responses
    cdef int64_t paused_at_ns
    cdef bint pong_sent
    cdef readonly object permissions    # core.permissions.Permissions of the user, None: everything is allowed
    cdef list timers
    cdef size_t unsent                  # bytes with the transport when it was last given some
    cdef size_t stall_at                # pending bytes from which publishers are slowed down

    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int deliver_composed(self, Msg* m, Target* t) noexcept nogil
    cdef bint parse(self, int64_t work) except -1
    cdef int64_t parse_read(self, int64_t left) except? -1
    cdef int64_t relieve(self, int64_t left) except? -1
    cdef int publish(self, Msg* m) noexcept nogil           # the number of receivers, -1: refused
    cdef int publish_checked(self, Msg* m) noexcept nogil
    cdef void no_responder(self, Msg* m) noexcept
    cdef bint may_publish(self, Msg* m) noexcept
    cdef void retire_later(self, SubState* sub) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil
    cdef int write_out(self) except -1
    cdef int deliver_whole(self, Msg* m) noexcept nogil
    cdef void note_reply(self, Msg* m) noexcept
    cdef void slow_down(self) noexcept nogil
    cdef int control(self, int op) except -1

"""One client connection, without its socket."""
from libc.stdint cimport int64_t, uint64_t

from pyjs.core.account cimport Account
from pyjs.core.auth.decisions cimport Decisions
from pyjs.core.intake cimport Intake
from pyjs.core.outbuf cimport OutBuf
from pyjs.core.sink cimport Sink, Turn
from pyjs.subjects.routes cimport Target
from pyjs.subjects.sublist cimport Subscription
from pyjs.subjects.trie cimport SubState
from pyjs.wire.ops cimport Msg
from pyjs.wire.parser cimport Parser

cdef enum Entry:
    NEEDS_CONNECT               # the first operation must be CONNECT
    MAY_CONNECT  # CONNECT is optional: no authorization, or a reload turned it off after the client had connected
    CONNECTED                   # CONNECT was accepted
    GREETED                     # after CONNECT, its first PONG was sent, followed by INFO

cdef enum Output:
    FLOWS
    PAUSED                      # the transport's buffer is full
    LOST                        # the transport is closed

cdef enum Feature:              # options of CONNECT that the message path reads
    ECHO = 1
    HEADERS = 2
    VERBOSE = 4
    PEDANTIC = 8
    NO_RESPONDERS = 16
    GUARDED = 32                # publishing requires permissions


cdef class ClientSession(Sink):
    cdef Parser parser
    cdef OutBuf out
    cdef readonly Turn turn
    cdef readonly Account account
    cdef readonly object host           # core.host.Host
    cdef readonly object link           # core.link.Link
    cdef public object peer             # core.link.Peer; replaced after a proxy header
    cdef readonly uint64_t cid
    cdef readonly str nonce             # the text that an nkey must sign; "": no user has an nkey
    cdef public object options          # ConnectOptions
    cdef object pings                   # core.pings.Pings
    cdef object login                   # core.auth.login.Login
    cdef readonly object user           # core.auth.users.User, None: not authenticated yet
    cdef readonly dict subscriptions    # sid -> Subscription
    cdef readonly int64_t started_at_ns, last_activity_ns, closed_at_ns
    cdef readonly uint64_t in_msgs, in_bytes, out_msgs, out_bytes, stalls
    cdef readonly str closed_reason     # "": open
    cdef Entry entry                    # state of the login
    cdef Output output                  # state of the transport
    cdef unsigned int features          # Feature flags
    cdef readonly Py_ssize_t subscriptions_max
    cdef bint closing                   # the session has ended: no input is accepted, nothing is delivered
    cdef bint dirty                     # is in Turn.sessions
    cdef list used_up                   # Subscriptions that reached their UNSUB max
    cdef Intake input                   # the unparsed input
    cdef object replies                 # core.auth.replies.Replies, None: no allow_responses
    cdef readonly object permissions    # core.auth.permissions.Permissions; None: everything is allowed
    cdef Decisions decisions            # cached decisions of `permissions` about publishing
    cdef object deadlines               # core.deadlines.Deadlines

    cdef inline bint is_behind(self) noexcept nogil:
        """Return whether too much output is waiting for a slow write."""
        return self.output == FLOWS and self.out.is_behind(self.turn.unflushed)

    cdef void set_feature(self, unsigned int feature, bint on)
    cdef int deliver(self, Msg* m, Target* t) noexcept nogil
    cdef int deliver_traced(self, Msg* m, Target* t, object trace) except -1
    cdef int deliver_composed(self, Msg* m, Target* t) noexcept nogil
    cdef bint parse(self, int64_t work) except -1
    cdef int64_t parse_read(self, int64_t left) except? -1
    cdef int64_t relieve(self, int64_t left) except? -1
    cdef int publish(self, Msg* m) noexcept nogil           # the number of receivers, -1: refused
    cdef int publish_checked(self, Msg* m) noexcept nogil
    cdef int publish_traced(self, Msg* m) noexcept
    cdef bint refused(self, Msg* m) noexcept nogil
    cdef void no_responder(self, Msg* m) noexcept
    cdef bint may_publish(self, Msg* m) noexcept
    cdef void retire_later(self, SubState* sub) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil
    cdef int write_out(self) except -1
    cdef void note_reply(self, Msg* m) noexcept
    cdef void slow_down(self) noexcept nogil
    cdef int control(self, int op) except -1
